// Reader of workload descriptions (schema swaplab/workload@1, README.md).
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "trace/error.hpp"
#include "trace/synth/config_keys.hpp"

namespace swaplab::synth {
namespace {

constexpr std::string_view kSchema = "swaplab/workload@1";

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  void read(const YAML::Node& node, const std::string& path, WorkloadConfig& config) {
    if (!node.IsMap()) fail(node, path, "expected a mapping (key: value)");
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) fail(entry.first, path, "expected a plain word as key");
      const std::string key = (path.empty() ? "" : path + ".") + entry.first.Scalar();
      if (!seen_.insert(key).second) fail(entry.first, key, "duplicate key");
      if (path.empty() && (key == "schema" || key == "name" || key == "summary")) {
        if (!entry.second.IsScalar()) fail(entry.second, key, "expected a text");
        top(entry.second, key, config);
      } else if (is_section(key)) {
        read(entry.second, key, config);
      } else {
        set(entry, path, key, config);
      }
    }
  }

  bool saw(const std::string& key) const { return seen_.count(key) != 0; }
  const std::string& summary() const { return summary_; }

  [[noreturn]] void fail(const YAML::Node& node, const std::string& key, const std::string& message) const {
    const int line = node.IsDefined() && node.Mark().line >= 0 ? node.Mark().line + 1 : 1;
    throw Error(ErrorKind::input,
                file_ + ":" + std::to_string(line) + ": " + (key.empty() ? "" : key + ": ") + message);
  }

 private:
  static bool is_section(const std::string& key) {
    return std::any_of(config_keys().begin(), config_keys().end(),
                       [&](const ConfigKey& k) { return k.path.starts_with(key + "."); });
  }

  void top(const YAML::Node& node, const std::string& key, WorkloadConfig& config) {
    const std::string& text = node.Scalar();
    if (key == "schema" && text != kSchema)
      fail(node, key, "'" + text + "' is not supported; expected " + std::string(kSchema));
    if (key == "name") {
      if (text.empty() || text.find_first_of("\"\\\n") != std::string::npos)
        fail(node, key, "a name is a plain text without quotes");
      config.name = text;
    }
    if (key == "summary") summary_ = text;
  }

  void set(const std::pair<YAML::Node, YAML::Node>& entry, const std::string& path, const std::string& key,
           WorkloadConfig& config) const {
    for (const ConfigKey& known : config_keys()) {
      if (known.path != key) continue;
      std::string text;
      if (known.list && entry.second.IsSequence()) {
        for (const YAML::Node& element : entry.second) {
          if (!element.IsScalar()) fail(element, key, "expected " + known.form);
          text += (text.empty() ? "" : ",") + element.Scalar();
        }
      } else if (entry.second.IsScalar()) {
        text = entry.second.Scalar();
      } else {
        fail(entry.second, key, "expected " + known.form);
      }
      if (const std::string problem = known.set(config, text); !problem.empty())
        fail(entry.second, key, problem);
      return;
    }
    std::vector<std::string> siblings;
    if (path.empty()) siblings = {"schema", "name", "summary"};
    const std::string prefix = path.empty() ? "" : path + ".";
    for (const ConfigKey& known : config_keys()) {
      if (!known.path.starts_with(prefix)) continue;
      const std::string_view rest = known.path.substr(prefix.size());
      siblings.emplace_back(rest.substr(0, rest.find('.')));
    }
    fail(entry.first, key, "unknown key" + did_you_mean(entry.first.Scalar(), siblings));
  }

  const std::string& file_;
  std::set<std::string> seen_;
  std::string summary_;
};

void apply_override(WorkloadConfig& config, const std::string& text) {
  const std::size_t equals = text.find('=');
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) names.emplace_back(key.path);
  if (equals == std::string::npos)
    throw Error(ErrorKind::usage,
                "'" + text + "' is no override; write KEY=VALUE, for example model.layers=48");
  const std::string path = text.substr(0, equals);
  for (const ConfigKey& key : config_keys()) {
    if (key.path != path) continue;
    if (const std::string problem = key.set(config, text.substr(equals + 1)); !problem.empty())
      throw Error(ErrorKind::usage, path + ": " + problem);
    return;
  }
  throw Error(ErrorKind::usage, "unknown workload key '" + path + "'" + did_you_mean(path, names));
}

void fill_defaults(WorkloadConfig& c) {
  ModelConfig& m = c.model;
  if (m.kv_heads == 0) m.kv_heads = m.heads;
  if (m.ffn == 0) m.ffn = 4 * m.hidden;
  if (m.experts.ffn == 0) m.experts.ffn = m.ffn;
  if (m.max_positions == 0)
    m.max_positions = *std::max_element(c.training.sequence.begin(), c.training.sequence.end());
}

}  // namespace

WorkloadConfig parse_workload(const std::string& text, const std::string& file_name,
                              std::span<const std::string> overrides) {
  WorkloadConfig config;
  Reader reader(file_name);
  try {
    const YAML::Node root = YAML::Load(text);
    reader.read(root, "", config);
    for (const char* key : {"schema", "name"})
      if (!reader.saw(key)) reader.fail(root, "", "missing key '" + std::string(key) + "'");
  } catch (const YAML::Exception& e) {
    throw Error(ErrorKind::input, file_name + ":" + std::to_string(std::max(e.mark.line, 0) + 1) +
                                      ": not readable as YAML: " + e.msg);
  }
  for (const std::string& text_of : overrides) apply_override(config, text_of);
  fill_defaults(config);
  try {
    check_workload(config);
  } catch (const Error& e) {
    throw Error(e.kind(), file_name + ": " + e.what());
  }
  return config;
}

std::string workload_reference() {
  std::string text;
  WorkloadConfig defaults;
  for (const ConfigKey& key : config_keys()) {
    std::string value = key.get(defaults);
    std::erase(value, '"');
    if (value == "true" || value == "false") value = value == "true" ? "yes" : "no";
    text +=
        std::string(key.path) + " = " + value + "\n    " + std::string(key.meaning) + " (" + key.form + ")\n";
  }
  return text;
}

std::string workload_json(const WorkloadConfig& config) {
  // Keys of one section stand together in the table.
  std::string text = "{\"name\":\"" + config.name + "\"";
  std::string open;
  for (const ConfigKey& key : config_keys()) {
    const std::size_t dot = key.path.rfind('.');
    const std::string section(dot == std::string_view::npos ? "" : key.path.substr(0, dot));
    const std::string_view name = dot == std::string_view::npos ? key.path : key.path.substr(dot + 1);
    if (section != open) {
      if (!open.empty() && !section.starts_with(open + ".")) {
        text += std::string(1 + static_cast<std::size_t>(std::count(open.begin(), open.end(), '.')), '}');
        if (open.starts_with(section + ".")) text.pop_back();
      }
      if (!open.starts_with(section + ".")) {
        const std::size_t last = section.rfind('.');
        text += ",\"" + section.substr(last == std::string::npos ? 0 : last + 1) + "\":{";
      } else {
        text += ',';
      }
      open = section;
    } else {
      text += ',';
    }
    text += '"' + std::string(name) + "\":" + key.get(config);
  }
  return text + "}}";
}

void check_workload(const WorkloadConfig& c) {
  const ModelConfig& m = c.model;
  const ParallelConfig& p = c.parallel;
  const TrainingConfig& t = c.training;
  const auto require = [](bool holds, const std::string& message) {
    if (!holds) throw Error(ErrorKind::input, message);
  };
  const bool transformer =
      m.family == Family::decoder || m.family == Family::encoder || m.family == Family::vit;
  const auto longest = *std::max_element(t.sequence.begin(), t.sequence.end());
  if (transformer) {
    require(m.hidden % m.heads == 0, "model.hidden must be a multiple of model.heads");
    require(m.heads % m.kv_heads == 0, "model.heads must be a multiple of model.kv_heads");
    require(m.positions != Positions::rotary || (m.hidden / m.heads) % 2 == 0,
            "rotary positions need an even head size (model.hidden / model.heads)");
  }
  if (m.family == Family::decoder || m.family == Family::encoder)
    require(m.max_positions >= longest, "model.max_positions must cover the longest training.sequence");
  require(m.family == Family::decoder || m.positions != Positions::rotary,
          "model.positions: rotary is for decoders");
  require(m.family == Family::decoder || m.experts.count == 0, "model.experts is for decoders");
  require(m.experts.count == 0 || m.experts.top_k <= m.experts.count,
          "model.experts.top_k exceeds model.experts.count");
  require(m.experts.count == 0 || m.experts.count % p.expert == 0,
          "model.experts.count must be a multiple of parallel.expert");
  require(p.expert == 1 || m.experts.count > 0, "parallel.expert needs model.experts");
  require(m.loss_chunks <= longest, "model.loss_chunks exceeds the sequence length");
  if (m.family == Family::vit)
    require(m.image_size % m.patch == 0, "model.image_size must be a multiple of model.patch");
  if (m.family == Family::resnet)
    require(m.depth == 18 || m.depth == 34 || m.depth == 50 || m.depth == 101 || m.depth == 152,
            "model.depth must be 18, 34, 50, 101 or 152");
  if (m.family == Family::unet) {
    require(m.channels % 32 == 0, "model.channels must be a multiple of 32 (group norm)");
    require(m.image_size % (std::int64_t{1} << (m.channel_factors.size() - 1)) == 0,
            "model.image_size must be divisible by 2 once per level of model.channel_factors");
  }
  require(p.tensor == 1 || m.family == Family::decoder, "parallel.tensor is for decoders");
  if (p.tensor > 1) {
    require(m.kv_heads % p.tensor == 0,
            "model.heads and model.kv_heads must be multiples of parallel.tensor");
    require(m.ffn % p.tensor == 0 && m.vocab % p.tensor == 0,
            "model.ffn and model.vocab must be multiples of parallel.tensor (pad the vocabulary)");
    require(m.loss_chunks == 1, "model.loss_chunks cannot be combined with parallel.tensor");
    require(m.experts.count == 0,
            "model.experts cannot be combined with parallel.tensor; use parallel.expert");
  }
  require(!p.sequence || p.tensor > 1, "parallel.sequence needs parallel.tensor > 1");
  if (p.sequence) {
    for (const std::int64_t length : t.sequence)
      require(length % p.tensor == 0, "each training.sequence must be a multiple of parallel.tensor");
  }
  require(p.stage < p.pipeline, "parallel.stage must be below parallel.pipeline");
  if (p.pipeline > 1) {
    require(m.family == Family::decoder, "parallel.pipeline is for decoders");
    require(m.layers % p.pipeline == 0, "model.layers must be a multiple of parallel.pipeline");
    require(t.validation_every == 0, "training.validation_every cannot be combined with parallel.pipeline");
    require(m.experts.count == 0, "model.experts cannot be combined with parallel.pipeline");
    require(p.zero < 3, "parallel.zero 3 cannot be combined with parallel.pipeline");
    require(!t.loss_scaling, "training.loss_scaling cannot be combined with parallel.pipeline");
  }
  require(p.zero == 0 || p.data > 1, "parallel.zero needs parallel.data > 1");
  require(!t.master_weights || t.precision == Precision::bf16,
          "training.master_weights needs training.precision bf16");
  require(t.recompute != Recompute::selective || transformer,
          "training.recompute selective is for transformers");
  const std::int64_t total = t.iterations + (t.validation_every > 0 ? t.iterations / t.validation_every : 0);
  for (const std::int64_t it : t.skip_steps) {
    require(it < total, "training.skip_steps names iteration " + std::to_string(it) + ", beyond the last");
    require(t.validation_every == 0 || it % (t.validation_every + 1) != t.validation_every,
            "training.skip_steps names iteration " + std::to_string(it) + ", a validation");
  }
}

}  // namespace swaplab::synth
