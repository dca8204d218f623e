// Reader of machine descriptions (schema swaplab/machine@1, configs/machines/README.md).
#include "sim/machine_io.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/machine_figures.hpp"
#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::string_view kSchema = "swaplab/machine@1";
constexpr std::array<std::string_view, 2> kDirections = {"d2h", "h2d"};

class Reader;

// A mapping of the file: each key once, every key known, asked for by name.
class Section {
 public:
  Section(const Reader& reader, const YAML::Node& node, std::string path);
  const std::string& path() const { return path_; }
  std::string path_of(std::string_view key) const {
    return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
  }
  bool has(std::string_view key) const { return find(key) != nullptr; }
  YAML::Node require(std::string_view key) const;
  Section section(std::string_view key) const { return {reader_, require(key), path_of(key)}; }
  std::string text(std::string_view key) const;
  // Refuses keys outside `known`.
  void allow_only(const std::vector<std::string>& known) const;
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;

 private:
  const std::pair<std::string, YAML::Node>* find(std::string_view key) const {
    for (const auto& entry : entries_)
      if (entry.first == key) return &entry;
    return nullptr;
  }
  const Reader& reader_;
  YAML::Node node_;
  std::string path_;
  std::vector<std::pair<std::string, YAML::Node>> entries_;
  std::vector<YAML::Node> keys_;
};

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  [[noreturn]] void fail(const YAML::Node& node, const std::string& key, const std::string& message) const {
    const int line = node.IsDefined() && node.Mark().line >= 0 ? node.Mark().line + 1 : 1;
    throw Error(ErrorKind::input,
                file_ + ":" + std::to_string(line) + ": " + (key.empty() ? "" : key + ": ") + message);
  }

  Machine read(const YAML::Node& root) {
    const Section top(*this, root, "");
    const std::string schema = top.text("schema");
    if (schema != kSchema)
      top.fail("schema", "'" + schema + "' is not supported; expected " + std::string(kSchema));
    top.allow_only({"schema", "name", "summary", "hbm", "compute", "efficiency", "host", "host_memory",
                    "links", "pageable_links", "interference"});
    Machine m;
    m.name = top.text("name");
    m.summary = top.text("summary");
    read_figures(top, m);
    read_efficiency(top.section("efficiency"), m);
    m.pinned = read_links(top.section("links"), m);
    m.pageable = read_links(top.section("pageable_links"), m);
    return m;
  }

 private:
  void read_figures(const Section& top, Machine& m) const {
    std::vector<std::string_view> done;
    for (const MachineFigure& first : machine_figures()) {
      if (std::find(done.begin(), done.end(), first.section) != done.end()) continue;
      done.push_back(first.section);
      const Section section = top.section(first.section);
      std::vector<std::string> known;
      for (const MachineFigure& f : machine_figures())
        if (f.section == first.section) known.emplace_back(f.key);
      if (first.section == "host_memory") known.emplace_back("round_to_power_of_two");
      section.allow_only(known);
      for (const MachineFigure& f : machine_figures())
        if (f.section == first.section)
          f.field(m) = figure(section, f.key, f.dimension, f.range, f.may_be_unlimited, m);
      if (first.section == "host_memory") m.host_memory.round_to_power_of_two = flag(section, m);
    }
  }

  // {value: "12.4 GB/s", status: ..., source: ...}
  std::int64_t figure(const Section& parent, std::string_view key, Dimension dimension, Range range,
                      bool may_be_unlimited, Machine& m) const {
    const Section s = parent.section(key);
    s.allow_only({"value", "value_" + std::string(base_unit_suffix(dimension)), "status", "source"});
    note_source(s, m);
    return amount(s, "value", dimension, range, may_be_unlimited);
  }

  bool flag(const Section& host_memory, Machine& m) const {
    const Section s = host_memory.section("round_to_power_of_two");
    s.allow_only({"value", "status", "source"});
    note_source(s, m);
    const std::string text = s.text("value");
    if (text == "yes" || text == "true") return true;
    if (text == "no" || text == "false") return false;
    s.fail("value", "'" + text + "' is neither yes nor no");
  }

  // `key` with a unit in its text, or `key`_<base unit> as an integer.
  std::int64_t amount(const Section& s, const std::string& key, Dimension dimension, Range range,
                      bool may_be_unlimited = false) const {
    const std::string integer_key = key + "_" + std::string(base_unit_suffix(dimension));
    if (s.has(key) && s.has(integer_key)) s.fail(integer_key, "given twice, also as '" + key + "'");
    const std::string& used = s.has(integer_key) ? integer_key : key;
    const std::string text = s.text(used);
    if (may_be_unlimited && text == "unlimited") return unlimited_value(dimension);
    std::int64_t value = 0;
    if (used == integer_key) {
      const char* end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data(), end, value);
      if (error != std::errc() || stop != end || value < 0 || value > kSaturated)
        s.fail(used, "'" + text + "' is not an integer from 0 to 2^61");
    } else {
      const ParsedQuantity parsed = parse_quantity(text, dimension);
      if (!parsed.problem.empty()) s.fail(used, parsed.problem);
      value = parsed.value;
    }
    if (range != Range::non_negative && value == 0 && !(may_be_unlimited && used == integer_key))
      s.fail(used, "must be above 0");
    if (range == Range::fraction && value > kUnchanged) s.fail(used, "'" + text + "' is above 100 %");
    return value;
  }

  void note_source(const Section& s, Machine& m) const {
    const std::string status = s.text("status");
    const std::vector<std::string> known = {"measured", "published", "assumed"};
    if (std::find(known.begin(), known.end(), status) == known.end())
      s.fail("status",
             "'" + status + "' is none of measured, published, assumed" + did_you_mean(status, known));
    const std::string source = s.text("source");
    if (source.find_first_not_of(" \t\n") == std::string::npos)
      s.fail("source", "is empty; every figure names its source");
    m.sources.push_back({s.path(), status, source});
  }

  void read_efficiency(const Section& efficiency, Machine& m) const {
    std::vector<std::string> classes;
    for (std::size_t c = 0; c < kOpClassCount; ++c)
      classes.emplace_back(op_class_name(static_cast<OpClass>(c)));
    efficiency.allow_only(classes);
    for (std::size_t c = 0; c < kOpClassCount; ++c) {
      const Section s = efficiency.section(classes[c]);
      s.allow_only({"compute", "compute_ppm", "memory", "memory_ppm", "status", "source"});
      note_source(s, m);
      m.efficiency[c].compute = amount(s, "compute", Dimension::share, Range::fraction);
      m.efficiency[c].memory = amount(s, "memory", Dimension::share, Range::fraction);
    }
  }

  std::array<TransferTable, 2> read_links(const Section& links, Machine& m) const {
    links.allow_only({kDirections.begin(), kDirections.end()});
    std::array<TransferTable, 2> tables;
    for (std::size_t d = 0; d < kDirections.size(); ++d)
      tables[d] = read_link(links.section(kDirections[d]), m);
    return tables;
  }

  TransferTable read_link(const Section& link, Machine& m) const {
    link.allow_only({"bandwidth", "latency", "table"});
    const std::int64_t bandwidth = figure(link, "bandwidth", Dimension::bandwidth, Range::positive, false, m);
    if (link.has("latency") == link.has("table")) link.fail("needs either 'latency' or 'table'");
    std::vector<TransferPoint> points;
    if (link.has("latency")) {
      const std::int64_t latency =
          figure(link, "latency", Dimension::duration, Range::non_negative, false, m);
      if (latency > 0) points.push_back({Bytes{0}, Nanos{latency}});
    } else {
      const Section table = link.section("table");
      table.allow_only({"points", "status", "source"});
      note_source(table, m);
      points = read_points(table);
    }
    return TransferTable(std::move(points), bandwidth);
  }

  std::vector<TransferPoint> read_points(const Section& table) const {
    const YAML::Node list = table.require("points");
    if (!list.IsSequence() || list.size() == 0)
      table.fail("points", "expected a list of {size, bandwidth or time}");
    std::vector<TransferPoint> points;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Section s(*this, list[i], table.path_of("points") + "[" + std::to_string(i) + "]");
      s.allow_only({"size", "size_bytes", "bandwidth", "bandwidth_bytes_per_s", "time", "time_ns"});
      const bool by_rate = s.has("bandwidth") || s.has("bandwidth_bytes_per_s");
      if (by_rate == (s.has("time") || s.has("time_ns"))) s.fail("needs either 'bandwidth' or 'time'");
      const Bytes bytes{amount(s, "size", Dimension::size, Range::non_negative)};
      if (by_rate && bytes.value == 0) s.fail("a bandwidth at size 0 says nothing; give a time");
      const Nanos time{by_rate ? ceil_mul_div(bytes.value, 1'000'000'000,
                                              amount(s, "bandwidth", Dimension::bandwidth, Range::positive))
                               : amount(s, "time", Dimension::duration, Range::non_negative)};
      if (bytes.value > 0 && time.value == 0) s.fail("a copy cannot take no time");
      if (!points.empty() && bytes <= points.back().bytes) s.fail("sizes must increase from point to point");
      if (!points.empty() && time < points.back().time)
        s.fail("takes " + std::to_string(time.value) + " ns, less than the smaller copy before it (" +
               std::to_string(points.back().time.value) + " ns)");
      points.push_back({bytes, time});
    }
    return points;
  }

  std::string file_;
};

Section::Section(const Reader& reader, const YAML::Node& node, std::string path)
    : reader_(reader), node_(node), path_(std::move(path)) {
  if (!node.IsDefined() || !node.IsMap()) reader_.fail(node, path_, "expected a mapping (key: value)");
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) reader_.fail(entry.first, path_, "expected a plain word as key");
    if (has(entry.first.Scalar())) reader_.fail(entry.first, path_of(entry.first.Scalar()), "duplicate key");
    entries_.emplace_back(entry.first.Scalar(), entry.second);
    keys_.push_back(entry.first);
  }
}

YAML::Node Section::require(std::string_view key) const {
  const auto* entry = find(key);
  if (entry == nullptr) {
    std::vector<std::string> present;
    for (const auto& e : entries_) present.push_back(e.first);
    const std::string near = nearest_name(key, present);
    fail("missing key '" + std::string(key) + "'" + (near.empty() ? "" : "; found '" + near + "'"));
  }
  return entry->second;
}

std::string Section::text(std::string_view key) const {
  const YAML::Node node = require(key);
  if (!node.IsScalar()) fail(key, "expected a text or number");
  return node.Scalar();
}

void Section::allow_only(const std::vector<std::string>& known) const {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (std::find(known.begin(), known.end(), entries_[i].first) == known.end())
      reader_.fail(keys_[i], path_of(entries_[i].first),
                   "unknown key" + did_you_mean(entries_[i].first, known));
}

void Section::fail(const std::string& message) const {
  reader_.fail(node_, path_, message);
}

void Section::fail(std::string_view key, const std::string& message) const {
  const auto* entry = find(key);
  reader_.fail(entry == nullptr ? node_ : entry->second, path_of(key), message);
}

// Sees the structure go by and keeps nothing.
class Ignore : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
  }
  void OnMapEnd() override {}
};

// "none", "one" or "several". Counts to two only: on a stray comma the parser of yaml-cpp 0.7 hands out
// empty documents without end, which its LoadAll would collect until memory runs out.
std::string document_count(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Ignore ignore;
  if (!parser.HandleNextDocument(ignore)) return "none";
  return parser.HandleNextDocument(ignore) ? "several" : "one";
}

}  // namespace

Machine parse_machine(const std::string& text, const std::string& file_name) {
  try {
    if (const std::string count = document_count(text); count != "one")
      throw Error(ErrorKind::input, file_name + ": expected one machine description, found " + count);
    return Reader(file_name).read(YAML::Load(text));
  } catch (const YAML::Exception& e) {
    throw Error(ErrorKind::input, file_name + ":" + std::to_string(std::max(e.mark.line, 0) + 1) +
                                      ": not readable as YAML: " + e.msg);
  }
}

}  // namespace swaplab
