// SimAI (ASTRA-sim) text workloads: per layer the times of three passes and the communication after each.
#include <algorithm>
#include <map>

#include "trace/builder.hpp"
#include "trace/import/decimal.hpp"
#include "trace/import/importer.hpp"
#include "trace/import/lines.hpp"
#include "trace/import/sum.hpp"
#include "trace/import/utf8.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kMaxTime = std::int64_t{1} << 53;  // ns
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 56;
constexpr std::size_t kColumns = 12;
constexpr std::string_view kParallelism[] = {"HYBRID_TRANSFORMER_FWD_IN_BCKWD",
                                             "HYBRID_TRANSFORMER",
                                             "HYBRID_DLRM_ENHANCED",
                                             "HYBRID_DLRM",
                                             "HYBRID_DATA_MODEL",
                                             "HYBRID_MODEL_DATA",
                                             "HYBRID_CUSTOMIZED",
                                             "TRANSFORMER_INFERENCE",
                                             "MICRO",
                                             "MODEL",
                                             "DATA"};

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (;;) {
    const auto first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos) return words;
    line.remove_prefix(first);
    const auto end = std::min(line.find_first_of(" \t"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

// The first line's parallelism; empty when it names none.
std::string_view parallelism_of(std::string_view line) {
  const auto words = words_of(line);
  if (words.empty()) return {};
  std::string_view word = words.front();
  if (!word.empty() && word.back() == ':') word.remove_suffix(1);
  const auto found = std::find(std::begin(kParallelism), std::end(kParallelism), word);
  return found == std::end(kParallelism) ? std::string_view() : *found;
}

enum Pass : std::uint8_t { forward, input_gradient, weight_gradient };
struct Layer {
  std::string name;
  std::int64_t time[3] = {}, update = 0;  // ns
};

class Reader {
 public:
  explicit Reader(const ImportInput& input) : lines_(input) {}

  ImportResult run() {
    std::string_view line;
    if (!lines_.next(line)) lines_.fail("expected a workload");
    parallelism_ = parallelism_of(line);
    if (parallelism_.empty()) lines_.fail("expected a parallelism of ASTRA-sim, such as HYBRID_TRANSFORMER");
    ImportResult result;
    ImportReport& r = result.report;
    r.version = parallelism_;
    const auto header = words_of(line);
    for (std::size_t i = 1; i + 1 < header.size(); ++i) {
      if (header[i].back() != ':') continue;
      const auto value = unsigned_integer(header[i + 1]);
      if (value && *value < static_cast<std::uint64_t>(kMaxBytes))
        r.add_found(mend_utf8(header[i].substr(0, header[i].size() - 1), bad_utf8_),
                    static_cast<std::int64_t>(*value));
    }
    if (!lines_.next(line)) lines_.fail("expected the number of layers");
    const auto words = words_of(line);
    const auto count = words.size() == 1 ? unsigned_integer(words[0]) : std::nullopt;
    if (!count) lines_.fail("expected the number of layers, found '" + std::string(line.substr(0, 40)) + "'");
    while (lines_.next(line)) {
      if (line.find_first_not_of(" \t") != std::string_view::npos) layer(line);
    }
    if (layers_.size() != *count)
      lines_.fail("expected " + std::to_string(*count) + " layers, found " + std::to_string(layers_.size()));
    const bool timed = std::any_of(layers_.begin(), layers_.end(), [](const Layer& l) {
      return l.time[forward] + l.time[input_gradient] + l.time[weight_gradient] + l.update > 0;
    });
    if (timed) result.trace = emit();
    report(r);
    return result;
  }

 private:
  // name, dependency, then time, communication and its bytes of each pass, then the update's time.
  void layer(std::string_view line) {
    const auto words = words_of(line);
    if (words.size() < kColumns)
      lines_.fail("expected " + std::to_string(kColumns) + " columns, found " + std::to_string(words.size()));
    Layer layer;
    layer.name = mend_utf8(words[0], bad_utf8_);
    if (words[1] != "-1") ++dependencies_;
    for (std::size_t pass = 0; pass < 3; ++pass) {
      layer.time[pass] = number(words[2 + 3 * pass], kMaxTime, "a time in ns");
      const std::int64_t bytes = number(words[4 + 3 * pass], kMaxBytes, "bytes");
      const std::string_view what = words[3 + 3 * pass];
      if (what == "NONE") continue;
      if (what.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != std::string_view::npos)
        lines_.fail("expected a communication such as ALLREDUCE or NONE, found '" +
                    std::string(what.substr(0, 40)) + "'");
      ++collectives_[std::string(what)];
      communicated_ = std::min(communicated_ + bytes, std::int64_t{1} << 60);
    }
    layer.update = number(words[11], kMaxTime, "a time in ns");
    layers_.push_back(std::move(layer));
  }
  std::int64_t number(std::string_view text, std::int64_t most, const char* what) {
    const auto value = unsigned_integer(text);
    if (!value || *value > static_cast<std::uint64_t>(most))
      lines_.fail(std::string("expected ") + what + ", found '" + std::string(text.substr(0, 40)) + "'");
    return static_cast<std::int64_t>(*value);
  }

  Trace emit() {
    TraceBuilder b;
    TraceHeader header;
    header.source = "import-simai";
    header.device = "cuda";
    b.set_header(header);
    std::map<std::string, SigId> signatures;
    const auto add = [&](const Layer& layer, const char* pass, std::int64_t time, Phase phase) {
      if (time == 0) return;
      const std::string name = layer.name + pass;
      const auto [it, inserted] = signatures.try_emplace(name);
      if (inserted) {
        TraceBuilder::Signature s;
        s.name = name;
        it->second = b.add_signature(s);
      }
      TraceBuilder::Op op;
      op.signature = it->second;
      op.phase = phase;
      op.device_time = Nanos{time};
      b.op(op);
      ++operators_;
      add_checked(device_time_, time);
    };
    b.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
    for (const Layer& layer : layers_) add(layer, " forward", layer.time[forward], Phase::forward);
    for (auto it = layers_.rbegin(); it != layers_.rend(); ++it) {
      add(*it, " input gradient", it->time[input_gradient], Phase::backward);
      add(*it, " weight gradient", it->time[weight_gradient], Phase::backward);
      add(*it, " update", it->update, Phase::optimizer);
    }
    b.mark(MarkKind::iter_end, "", 0, Nanos{-1});
    return b.finish();
  }

  void report(ImportReport& r) const {
    std::int64_t collectives = 0;
    for (const auto& [name, count] : collectives_) collectives += count;
    r.add_found("layers", static_cast<std::int64_t>(layers_.size()));
    r.add_found("communications", collectives);
    for (const auto& [name, count] : collectives_) r.add_found("communication " + name, count);
    r.add_found("communicated_bytes", communicated_);
    r.add_found("device_time_ns", device_time_);
    r.add_found("trace_operators", operators_);
    r.add_found("iterations", operators_ != 0 ? 1 : 0);
    r.derive("operators", operators_,
             "passes with a time: forward in order, then gradients and update in reverse order");
    r.derive("iterations", operators_ != 0 ? 1 : 0, "the whole workload is one iteration");
    r.drop("communications", collectives, "the file has their bytes, but no times without a network model");
    r.drop("dependencies other than -1", dependencies_, "the order of the layers is kept");
    r.repair("bytes that are not UTF-8", bad_utf8_, "replaced by U+FFFD");
    r.missing = {"storages and sizes of tensors", "host times", "communication times"};
    r.study = operators_ != 0 ? StudyKind::times_only : StudyKind::none;
    r.study_reason =
        operators_ != 0 ? "compute times per layer and pass, but no storages" : "no layer has a compute time";
  }

  Lines lines_;
  std::string_view parallelism_;
  std::vector<Layer> layers_;
  std::map<std::string, std::int64_t> collectives_;
  std::int64_t communicated_ = 0, dependencies_ = 0, operators_ = 0, device_time_ = 0, bad_utf8_ = 0;
};

class SimaiImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"simai", "SimAI and ASTRA-sim text workloads: compute times and communication per layer", ""};
  }
  bool recognises(std::string_view head) const override {
    const auto line = head.find('\n');
    if (line == std::string_view::npos || parallelism_of(head.substr(0, line)).empty()) return false;
    std::string_view second = head.substr(line + 1);
    second = second.substr(0, second.find('\n'));
    while (!second.empty() && (second.back() == '\r' || second.back() == ' ')) second.remove_suffix(1);
    return unsigned_integer(second).has_value();
  }
  ImportResult import(std::span<const ImportInput> inputs) const override { return Reader(inputs[0]).run(); }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(SimaiImporter)
}  // namespace swaplab
