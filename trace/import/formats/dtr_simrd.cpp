// Logs of DTR's simulator (simrd): operators with times, aliases and releases; nearly complete swap input.
#include <simdjson.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "trace/builder.hpp"
#include "trace/error.hpp"
#include "trace/import/decimal.hpp"
#include "trace/import/importer.hpp"
#include "trace/import/lines.hpp"
#include "trace/import/sum.hpp"

namespace swaplab {
namespace {

namespace dom = simdjson::dom;
constexpr std::int64_t kMaxValue = std::int64_t{1} << 50;  // bytes or ns of one record

// A storage and the names that hold it.
struct Held {
  StorageId id{};
  std::int64_t names = 0;
  bool freed = false;
};

class Reader {
 public:
  explicit Reader(const ImportInput& input) : lines_(input) {}

  ImportResult run() {
    TraceHeader header;
    header.source = "import-dtr-simrd";
    header.device = "cuda";
    b_.set_header(header);
    b_.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
    try {
      std::string_view line;
      while (lines_.next(line)) {
        if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
        record(line);
      }
      finish_call();
      if (b_.op_count() > 0) b_.mark(MarkKind::iter_end, "", 0, Nanos{-1});
    } catch (const Error& error) {
      // The builder does not know lines.
      const std::string message = error.what();
      if (message.find(":" + std::to_string(lines_.number()) + ": ") != std::string::npos) throw;
      lines_.fail(message);
    }
    ImportResult result;
    report(result.report);
    if (b_.op_count() > 0) result.trace = b_.finish();
    return result;
  }

 private:
  void record(std::string_view line) {
    dom::element root;
    dom::object o;
    if (parser_.parse(line.data(), line.size(), false).get(root) != simdjson::SUCCESS ||
        root.get(o) != simdjson::SUCCESS)
      lines_.fail("expected one JSON object");
    const std::string_view kind = text(o, "INSTRUCTION");
    ++instructions_[std::string(kind)];
    ++records_;
    if (kind == "MEMORY") return memory(o);
    if (kind == "ALIAS") return alias(o);
    finish_call();
    if (kind == "CONSTANT") {
      constant_ = text(o, "NAME");
      awaiting_constant_ = true;
    } else if (kind == "CALL" || kind == "MUTATE") {
      call(o, kind == "MUTATE");
    } else if (kind == "COPY") {
      hold(std::string(text(o, "DST")), find(text(o, "SRC")));
    } else if (kind == "COPY_FROM") {
      const std::size_t source = find(text(o, "SRC"));
      release(text(o, "DST"));
      hold(std::string(text(o, "DST")), source);
    } else if (kind == "RELEASE") {
      release(text(o, "NAME"));
    } else if (kind == "ANNOTATE") {
      backward_ |= text(o, "ANNOTATION") == "BACKWARD";
    } else {
      lines_.fail("unknown INSTRUCTION '" + std::string(kind) + "'");
    }
  }

  std::string_view text(dom::object o, std::string_view key) {
    std::string_view value;
    if (o[key].get(value) != simdjson::SUCCESS)
      lines_.fail("expected a record with a text '" + std::string(key) + "'");
    return value;
  }
  std::int64_t number(dom::object o, std::string_view key) {
    dom::element value;
    if (o[key].get(value) != simdjson::SUCCESS) lines_.fail("expected '" + std::string(key) + "'");
    std::string_view digits;
    std::int64_t result = -1;
    if (value.get(digits) == simdjson::SUCCESS) {
      result = scaled_decimal(digits, 0).value_or(kMaxValue + 1);
    } else if (value.get(result) != simdjson::SUCCESS) {
      result = kMaxValue + 1;
    }
    if (result < -1 || result > kMaxValue)
      lines_.fail("'" + std::string(key) + "' must be an integer up to 2^50, found " +
                  simdjson::minify(value));
    return result;
  }
  std::vector<std::string> names(dom::object o, std::string_view key) {
    dom::array list;
    if (o[key].get(list) != simdjson::SUCCESS) lines_.fail("expected a list '" + std::string(key) + "'");
    std::vector<std::string> all;
    for (const dom::element item : list) {
      std::string_view name;
      if (item.get(name) != simdjson::SUCCESS) lines_.fail("'" + std::string(key) + "' must hold names");
      all.emplace_back(name);
    }
    return all;
  }

  std::size_t find(std::string_view name) {
    const auto found = by_name_.find(std::string(name));
    if (found == by_name_.end()) lines_.fail("'" + std::string(name) + "' names no tensor that lives here");
    return found->second;
  }
  void hold(const std::string& name, std::size_t storage) {
    if (!by_name_.try_emplace(name, storage).second) lines_.fail("the name '" + name + "' is in use");
    ++held_[storage].names;
  }
  void release(std::string_view name) {
    const auto found = by_name_.find(std::string(name));
    if (found == by_name_.end())
      lines_.fail("RELEASE of '" + std::string(name) + "', which names no live tensor");
    Held& storage = held_[found->second];
    by_name_.erase(found);
    if (--storage.names == 0) {
      b_.free(storage.id);
      storage.freed = true;
    }
  }

  void memory(dom::object o) {
    const std::string name(text(o, "NAME"));
    const std::int64_t bytes = number(o, "MEMORY");
    if (bytes < 0) lines_.fail("'MEMORY' must not be negative");
    add_checked(total_memory_, bytes);
    if (awaiting_constant_ && name == constant_) {
      awaiting_constant_ = false;
      held_.push_back({b_.alloc(Bytes{bytes}, "cuda:0", true), 0, false});
      add_checked(baseline_, bytes);
      ++constants_;
      return hold(name, held_.size() - 1);
    }
    result_of(name).bytes = bytes;
  }
  void alias(dom::object o) {
    const std::string name(text(o, "NAME"));
    const std::int64_t argument = number(o, "ALIAS");
    if (argument < 0) ++fresh_;
    Result& result = result_of(name);
    if (argument >= static_cast<std::int64_t>(arguments_.size()))
      lines_.fail("'" + name + "' aliases argument " + std::to_string(argument) + " of a call with " +
                  std::to_string(arguments_.size()));
    result.alias = argument;
  }

  struct Result {
    std::string name;
    std::int64_t bytes = -1, alias = -1;
  };
  Result& result_of(const std::string& name) {
    const auto found = result_rows_.find(name);
    if (found != result_rows_.end()) return results_[found->second];
    lines_.fail("'" + name + "' is no result of the call before and no constant");
  }

  void call(dom::object o, bool mutate) {
    calling_ = true;
    name_ = text(o, "NAME");
    time_ = number(o, "TIME");
    if (time_ < 0) lines_.fail("'TIME' must not be negative");
    add_checked(total_time_, time_);
    for (const std::string& name : names(o, "ARGS")) arguments_.push_back(find(name));
    if (!mutate) {
      for (std::string& name : names(o, "RESULT")) {
        result_rows_.try_emplace(name, results_.size());
        results_.push_back({std::move(name), -1, -1});
      }
      return;
    }
    dom::array list;
    if (o["MUTATE"].get(list) != simdjson::SUCCESS) lines_.fail("expected a list 'MUTATE'");
    for (const dom::element item : list) {
      std::uint64_t argument = 0;
      if (item.get(argument) != simdjson::SUCCESS || argument >= arguments_.size())
        lines_.fail("'MUTATE' must hold positions of arguments");
      mutated_.push_back(argument);
    }
  }

  // The call and its MEMORY and ALIAS records are one operator.
  void finish_call() {
    awaiting_constant_ = false;
    if (!calling_) return;
    std::vector<StorageId> in, out, written;
    for (const std::size_t a : arguments_) in.push_back(held_[a].id);
    for (const std::uint64_t m : mutated_) written.push_back(held_[arguments_[m]].id);
    bool view = !results_.empty() && mutated_.empty();
    for (Result& r : results_) {
      if (r.bytes < 0) lines_.fail("the result '" + r.name + "' of '" + name_ + "' has no MEMORY record");
      if (r.alias >= 0) {
        const std::size_t storage = arguments_[static_cast<std::size_t>(r.alias)];
        out.push_back(held_[storage].id);
        hold(std::move(r.name), storage);
        continue;
      }
      view = false;
      held_.push_back({b_.alloc(Bytes{r.bytes}, "cuda:0", false), 0, false});
      out.push_back(held_.back().id);
      hold(std::move(r.name), held_.size() - 1);
    }
    const auto [it, inserted] = signatures_.try_emplace({name_, view});
    if (inserted) {
      TraceBuilder::Signature s;
      s.name = name_;
      s.view = view;
      it->second = b_.add_signature(s);
    }
    TraceBuilder::Op op;
    op.signature = it->second;
    op.phase = backward_ ? Phase::backward : Phase::forward;
    backward_ops_ += backward_ ? 1 : 0;
    op.device_time = Nanos{time_};
    op.in = in;
    op.out = out;
    op.written = written;
    b_.op(op);
    calling_ = false;
    arguments_.clear();
    results_.clear();
    result_rows_.clear();
    mutated_.clear();
  }

  void report(ImportReport& r) const {
    r.version = "JSON lines";
    r.add_found("records", records_);
    for (const auto& [name, count] : instructions_) r.add_found(name, count);
    r.add_found("fresh_aliases", fresh_);
    r.add_found("total_memory_bytes", total_memory_);
    r.add_found("device_time_ns", total_time_);
    r.add_found("trace_operators", static_cast<std::int64_t>(b_.op_count()));
    r.add_found("storages", static_cast<std::int64_t>(b_.storage_count()));
    r.add_found("iterations", 1);
    r.add_found("peak_bytes", b_.peak_bytes().value);
    r.baseline = Bytes{baseline_};
    r.derive("storages", static_cast<std::int64_t>(b_.storage_count()),
             "names that alias or copy one another share one; it ends with the last of them");
    r.derive("storages from before", constants_, "CONSTANT records: parameters and data");
    r.derive("backward operators", backward_ops_, "after the BACKWARD annotation");
    r.derive("iterations", 1, "the whole log is one iteration");
    r.missing = {"shapes", "host times"};
    r.study = b_.op_count() > 0 ? StudyKind::full : StudyKind::none;
    r.study_reason = b_.op_count() > 0 ? "operators, aliases, releases and times" : "the log holds no CALL";
  }

  Lines lines_;
  dom::parser parser_;
  TraceBuilder b_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<Held> held_;
  std::map<std::string, std::int64_t> instructions_;
  std::map<std::pair<std::string, bool>, SigId> signatures_;
  std::string constant_, name_;
  bool awaiting_constant_ = false, calling_ = false, backward_ = false;
  std::int64_t time_ = 0;
  std::vector<std::size_t> arguments_;
  std::vector<Result> results_;
  std::unordered_map<std::string, std::size_t> result_rows_;
  std::vector<std::uint64_t> mutated_;
  std::int64_t records_ = 0, total_memory_ = 0, total_time_ = 0, baseline_ = 0, constants_ = 0, fresh_ = 0,
               backward_ops_ = 0;
};

class DtrImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"dtr-simrd", "logs of DTR's simulator: operators with times, aliases and releases", ""};
  }
  bool recognises(std::string_view head) const override {
    const std::string_view line = head.substr(0, head.find('\n'));
    return line.find("\"INSTRUCTION\"") != std::string_view::npos;
  }
  ImportResult import(std::span<const ImportInput> inputs) const override { return Reader(inputs[0]).run(); }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(DtrImporter)
}  // namespace swaplab
