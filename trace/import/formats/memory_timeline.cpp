// PyTorch's export_memory_timeline, raw: [time, action, bytes, category] rows of one device, without names of
// storages. Actions and categories are those of torch/profiler/_memory_profiler.py.
#include <simdjson.h>

#include <algorithm>
#include <map>

#include "trace/builder.hpp"
#include "trace/error.hpp"
#include "trace/import/importer.hpp"
#include "trace/import/json_elements.hpp"

namespace swaplab {
namespace {

namespace dom = simdjson::dom;

constexpr std::int64_t kMaxTime = std::int64_t{1} << 62;  // ns
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;

enum Action : std::int64_t { preexisting = 1, create = 2, increment_version = 3, destroy = 4 };
constexpr std::int64_t kCategories = 8;
constexpr const char* kCategoryNames[kCategories] = {
    "parameter",  "optimizer_state", "input",           "temporary",
    "activation", "gradient",        "autograd_detail", "none"};

StorageClass class_of(std::int64_t category) {
  switch (category) {
    case 0:
      return StorageClass::parameter;
    case 1:
      return StorageClass::optimizer_state;
    case 2:
      return StorageClass::data;
    case 5:
      return StorageClass::gradient;
    default:
      return StorageClass::unknown;
  }
}

class Reader {
 public:
  explicit Reader(const ImportInput& input) : input_(input) {
    TraceHeader header;
    header.source = "import-memory-timeline";
    header.device = "cuda";
    b_.set_header(header);
    create_ = signature("memory::create");
    write_ = signature("memory::write");
    b_.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
  }

  ImportResult run() {
    const auto source = input_.open();
    static constexpr std::string_view arrays[] = {""};
    JsonVisitor visitor;
    visitor.element = [&](std::string_view, std::string_view text, std::uint64_t offset) {
      row(text, offset);
    };
    visitor.member = [](std::string_view, std::string_view) {};
    read_json_elements(*source, input_.name(), arrays, visitor);
    abandon_version();
    ImportResult result;
    report(result.report);
    if (b_.op_count() > 0) {
      b_.mark(MarkKind::iter_end, "", 0, Nanos{-1});
      result.trace = b_.finish();
    }
    return result;
  }

 private:
  struct Row {
    std::int64_t time, action, bytes, category;
  };
  [[noreturn]] void fail(std::uint64_t offset, const std::string& expected) const {
    throw Error(ErrorKind::input,
                input_.name() + ": byte " + std::to_string(offset) + ": expected " + expected);
  }
  SigId signature(std::string_view name) {
    TraceBuilder::Signature s;
    s.name = name;
    return b_.add_signature(s);
  }

  void row(std::string_view text, std::uint64_t offset) {
    dom::element element;
    dom::array list;
    if (parser_.parse(text.data(), text.size()).get(element) != simdjson::SUCCESS) {
      const std::string fault = json_error(text, offset);
      if (fault.empty()) fail(offset, "a row nested at most 1024 deep");
      throw Error(ErrorKind::input, input_.name() + ": " + fault);
    }
    if (element.get(list) != simdjson::SUCCESS || list.size() != 4)
      fail(offset, "a row [time, action, bytes, category]");
    std::int64_t n[4] = {};
    std::size_t i = 0;
    for (const dom::element item : list) {
      if (item.get(n[i]) != simdjson::SUCCESS) fail(offset, "four integers of 64 bits");
      ++i;
    }
    const Row r{n[0], n[1], n[2], n[3]};
    if (r.time < -1 || r.time > kMaxTime) fail(offset, "a time from -1 to 2^62 ns");
    if (r.action < preexisting || r.action > destroy) fail(offset, "an action from 1 to 4");
    if (r.bytes < -kMaxBytes || r.bytes > kMaxBytes) fail(offset, "at most 2^50 B");
    if (r.category < 0 || r.category >= kCategories) fail(offset, "a category from 0 to 7");
    if ((r.action == destroy && r.bytes > 0) || (r.action < increment_version && r.bytes < 0))
      fail(offset, "bytes that are negative where storages end, else positive");
    ++rows_;
    take(r);
  }

  void take(const Row& r) {
    const bool pair =
        r.action == increment_version && r.bytes > 0 && versioned_ && pending_.bytes == -r.bytes;
    if (!pair) abandon_version();
    switch (r.action) {
      case preexisting:
        ++preexisting_;
        baseline_ += r.bytes;
        add(b_.alloc(Bytes{r.bytes}, "cuda:0", true), r);
        return;
      case create: {
        ++created_;
        const StorageId out = b_.alloc(Bytes{r.bytes}, "cuda:0", false);
        step(create_, {}, std::span(&out, 1), r.time);
        add(out, r);
        return;
      }
      case destroy: {
        ++destroyed_;
        StorageId storage{};
        if (!remove(r, storage)) return;
        b_.free(storage);
        return;
      }
      default:
        break;
    }
    // A new version stands as two rows: the bytes leave the old category and enter the new one.
    if (!pair) {
      if (r.bytes > 0) {
        ++half_versions_;
        return;
      }
      versioned_ = remove(r, changing_);
      pending_ = r;
      return;
    }
    versioned_ = false;
    ++versions_;
    step(write_, std::span(&changing_, 1), {}, r.time);
    add(changing_, r);
  }

  void abandon_version() {
    if (!versioned_) return;
    versioned_ = false;
    ++half_versions_;
    add(changing_, {pending_.time, pending_.action, -pending_.bytes, pending_.category});
  }

  void add(StorageId storage, const Row& r) {
    live_[{r.bytes, r.category}].push_back(storage);
    if (const StorageClass cls = class_of(r.category); cls != StorageClass::unknown) b_.tag(storage, cls, "");
    ++categories_[static_cast<std::size_t>(r.category)];
  }
  // The newest live storage of that size and category.
  bool remove(const Row& r, StorageId& storage) {
    const auto found = live_.find({-r.bytes, r.category});
    if (found == live_.end()) {
      ++unmatched_;
      return false;
    }
    ambiguous_ += found->second.size() > 1 ? 1 : 0;
    storage = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) live_.erase(found);
    return true;
  }
  void step(SigId sig, std::span<const StorageId> in, std::span<const StorageId> out, std::int64_t time) {
    TraceBuilder::Op op;
    op.signature = sig;
    op.in = in;
    op.written = in;
    op.out = out;
    if (time >= 0) {
      op.host_gap = Nanos{clock_ < 0 ? 0 : std::max<std::int64_t>(time - clock_, 0)};
      backwards_ += clock_ > time ? 1 : 0;
      clock_ = std::max(clock_, time);
    }
    b_.op(op);
  }

  void report(ImportReport& r) const {
    std::int64_t live = 0;
    for (const auto& [key, storages] : live_) live += static_cast<std::int64_t>(storages.size());
    const auto operators = static_cast<std::int64_t>(b_.op_count());
    r.version = "raw";
    r.add_found("rows", rows_);
    r.add_found("preexisting", preexisting_);
    r.add_found("created", created_);
    r.add_found("new_versions", versions_);
    r.add_found("destroyed", destroyed_);
    for (std::size_t i = 0; i < kCategories; ++i)
      r.add_found(std::string("category ") + kCategoryNames[i], categories_[i]);
    r.add_found("live_at_end", live);
    r.add_found("peak_bytes", b_.peak_bytes().value);
    r.add_found("storages", static_cast<std::int64_t>(b_.storage_count()));
    r.add_found("trace_operators", operators);
    r.add_found("iterations", operators != 0 ? 1 : 0);
    r.baseline = Bytes{baseline_};
    r.derive("operators", operators,
             "each creation and each new version stands as an operator that makes or writes its storage");
    r.derive("storages by size and category", destroyed_ + versions_ - unmatched_,
             "rows name no storage: the newest live one of that size and category");
    r.derive("of them with a choice", ambiguous_, "several live storages had that size and category");
    r.derive("iterations", operators != 0 ? 1 : 0, "the whole timeline is one iteration");
    r.derive("rows before an earlier row's time", backwards_, "the order of the file is kept");
    r.drop("rows that end no live storage", unmatched_, "none of that size and category lives");
    r.drop("halves of new versions", half_versions_, "the row before or after, of the same size, is missing");
    r.missing = {"operators and their reads", "device times", "addresses", "the device's name"};
    r.study = operators != 0 ? StudyKind::memory_only : StudyKind::none;
    r.study_reason = operators != 0 ? "lifetimes, sizes and writes with their times, but no operators"
                                    : "the timeline creates no storage";
  }

  const ImportInput& input_;
  dom::parser parser_;
  TraceBuilder b_;
  SigId create_{}, write_{};
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<StorageId>> live_;
  bool versioned_ = false;  // changing_ left its category with pending_
  StorageId changing_{};
  Row pending_{};
  std::int64_t clock_ = -1, rows_ = 0, preexisting_ = 0, created_ = 0, versions_ = 0, destroyed_ = 0;
  std::int64_t baseline_ = 0, unmatched_ = 0, ambiguous_ = 0, half_versions_ = 0, backwards_ = 0;
  std::int64_t categories_[kCategories] = {};
};

class MemoryTimelineImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"memory-timeline", "PyTorch export_memory_timeline, raw JSON: [time, action, bytes, category]",
            ""};
  }
  bool recognises(std::string_view head) const override {
    std::size_t at = 0;
    for (int brackets = 0; brackets < 2; ++brackets) {
      at = head.find_first_not_of(" \t\r\n", at);
      if (at == std::string_view::npos || head[at] != '[') return false;
      ++at;
    }
    const std::string_view row = head.substr(at, head.find(']', at) - at);
    return row.size() < 200 && std::count(row.begin(), row.end(), ',') == 3 &&
           row.find_first_not_of("-0123456789, \t\r\n") == std::string_view::npos;
  }
  ImportResult import(std::span<const ImportInput> inputs) const override { return Reader(inputs[0]).run(); }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(MemoryTimelineImporter)
}  // namespace swaplab
