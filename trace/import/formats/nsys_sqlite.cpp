// Nsight Systems reports exported to SQLite: kernels, copies and their launches; with --cuda-memory-usage
// also the driver's allocations.
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

#include "trace/builder.hpp"
#include "trace/error.hpp"
#include "trace/import/importer.hpp"
#include "trace/import/sqlite_file.hpp"
#include "trace/import/streams.hpp"
#include "trace/import/sum.hpp"
#include "trace/import/utf8.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kMaxTime = std::int64_t{1} << 62;      // ns
constexpr std::int64_t kMaxDuration = std::int64_t{1} << 53;  // ns
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;
constexpr std::uint32_t kNone = 0xffffffffu;

struct Launch {
  std::int64_t start, end;
  std::int64_t thread;
};
enum class Kind : std::uint8_t { device_work, allocation, free };
struct Item {  // what becomes an operator or ends a storage, in the order of the host
  Kind kind;
  std::int64_t at, device_start, device_time;  // ns
  std::string name;
  std::pair<std::int64_t, std::int64_t> stream;  // device, stream
  std::uint32_t launch = kNone;
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
};

class Reader {
 public:
  explicit Reader(const ImportInput& input) : db_(input), name_(input.name()) {}

  ImportResult run() {
    read_names();
    read_launches();
    kernels_ = read_device("CUPTI_ACTIVITY_KIND_KERNEL", "");
    copies_ = read_device("CUPTI_ACTIVITY_KIND_MEMCPY", "Memcpy");
    sets_ = read_device("CUPTI_ACTIVITY_KIND_MEMSET", "Memset");
    read_memory();
    if (has_table("NVTX_EVENTS")) nvtx_ = db_.count("NVTX_EVENTS");
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      return std::tie(a.at, a.device_start) < std::tie(b.at, b.device_start);
    });
    ImportResult result;
    const bool any =
        std::any_of(items_.begin(), items_.end(), [](const Item& i) { return i.kind != Kind::free; });
    if (any) result.trace = emit();
    report(result.report);
    return result;
  }

 private:
  bool has_table(const std::string& table) { return !db_.columns(table).empty(); }
  // The table's columns must include `wanted`; false when there is no such table.
  bool expect(const std::string& table, std::initializer_list<const char*> wanted) {
    const std::vector<std::string> columns = db_.columns(table);
    if (columns.empty()) return false;
    for (const char* column : wanted) {
      if (std::find(columns.begin(), columns.end(), column) == columns.end())
        throw Error(ErrorKind::input, name_ + ": expected a column '" + column + "' in the table " + table +
                                          " of Nsight Systems");
    }
    return true;
  }

  void read_names() {
    if (!expect("StringIds", {"id", "value"})) return;
    db_.query("SELECT id, value FROM StringIds", [&](const SqliteRow& row) {
      names_.emplace(row.integer(0), mend_utf8(row.text(1), bad_utf8_));
    });
  }
  std::string text_of(std::int64_t id) const {
    const auto found = names_.find(id);
    return found == names_.end() ? "string " + std::to_string(id) : found->second;
  }
  static bool usable(std::int64_t start, std::int64_t end) {
    return start > -kMaxTime && start < kMaxTime && end > -kMaxTime && end < kMaxTime && end >= start &&
           end - start <= kMaxDuration;
  }

  void read_launches() {
    if (!expect("CUPTI_ACTIVITY_KIND_RUNTIME", {"start", "end", "globalTid", "correlationId", "nameId"}))
      return;
    db_.query(
        "SELECT start, \"end\", globalTid, correlationId, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY "
        "start",
        [&](const SqliteRow& row) {
          ++runtime_;
          const std::int64_t start = row.integer(0), end = row.integer(1), thread = row.integer(2);
          if (!row.all_integers(0, 4) || !usable(start, end)) {
            ++bad_times_;
            return;
          }
          if (text_of(row.integer(4)).find("Synchronize") != std::string::npos)
            waits_.push_back({start, end, thread});
          // The upper bits of a thread's number are its process, in which correlations are unique.
          launch_of_.insert_or_assign(std::pair(process_of(thread), row.integer(3)),
                                      static_cast<std::uint32_t>(launches_.size()));
          launches_.push_back({start, end, thread});
        });
  }
  static std::int64_t process_of(std::int64_t global) { return global >> 24; }

  std::int64_t read_device(const std::string& table, const std::string& fixed) {
    if (!expect(table, {"start", "end", "deviceId", "streamId", "correlationId", "globalPid"})) return 0;
    std::string columns = "start, \"end\", deviceId, streamId, correlationId, globalPid";
    if (fixed.empty() && expect(table, {"shortName"})) columns += ", shortName";
    if (fixed == "Memcpy" && expect(table, {"copyKind", "bytes"})) columns += ", copyKind, bytes";
    if (fixed == "Memset" && expect(table, {"bytes"})) columns += ", bytes";
    std::int64_t count = 0;
    db_.query("SELECT " + columns + " FROM " + table + " ORDER BY start", [&](const SqliteRow& row) {
      ++count;
      const std::int64_t start = row.integer(0), end = row.integer(1);
      if (!row.all_integers(0, 4) || !usable(start, end)) {
        ++bad_times_;
        return;
      }
      Item item{Kind::device_work, start, start, end - start, fixed, {row.integer(2), row.integer(3)}};
      if (fixed.empty()) item.name = text_of(row.integer(6));
      if (fixed == "Memcpy") {
        item.name += copy_name(row.integer(6));
        add_checked(copied_,
                    row.all_integers(7, 1) ? std::clamp<std::int64_t>(row.integer(7), 0, kMaxBytes) : 0);
      }
      const auto found = row.all_integers(4, 2)
                             ? launch_of_.find(std::pair(process_of(row.integer(5)), row.integer(4)))
                             : launch_of_.end();
      if (found == launch_of_.end()) {
        ++without_launch_;
      } else {
        item.launch = found->second;
        item.at = launches_[found->second].start;
      }
      add_checked(device_time_, item.device_time);
      busy_[item.stream] += item.device_time;
      items_.push_back(std::move(item));
    });
    return count;
  }
  static const char* copy_name(std::int64_t kind) {
    switch (kind) {
      case 1:
        return " HtoD";
      case 2:
        return " DtoH";
      case 8:
        return " DtoD";
      case 10:
        return " PtoP";
      default:
        return "";
    }
  }

  void read_memory() {
    const std::string table = "CUDA_GPU_MEMORY_USAGE_EVENTS";
    if (!expect(table, {"start", "address", "bytes", "memKind", "memoryOperationType", "deviceId"})) return;
    has_memory_ = true;
    db_.query("SELECT start, address, bytes, memKind, memoryOperationType, deviceId FROM " + table +
                  " ORDER BY start",
              [&](const SqliteRow& row) {
                ++memory_events_;
                if (!row.all_integers(0, 6)) {
                  ++bad_times_;
                  return;
                }
                const std::int64_t start = row.integer(0), bytes = row.integer(2), what = row.integer(4);
                if (row.integer(3) != 2 && row.integer(3) != 5) {  // device, device static
                  ++host_memory_;
                  return;
                }
                if (start <= -kMaxTime || start >= kMaxTime || bytes < 0 || bytes > kMaxBytes ||
                    (what != 0 && what != 1)) {
                  ++bad_times_;
                  return;
                }
                Item item{what == 0 ? Kind::allocation : Kind::free,
                          start,
                          start,
                          0,
                          "memory::alloc",
                          {row.integer(5), 0}};
                item.address = static_cast<std::uint64_t>(row.integer(1));
                item.bytes = bytes;
                items_.push_back(std::move(item));
              });
  }

  Trace emit() {
    TraceBuilder b;
    TraceHeader header;
    header.source = "import-nsys-sqlite";
    header.device = "cuda";
    b.set_header(header);
    const auto streams = stream_numbers(busy_);
    std::map<std::string, SigId> signatures;
    std::map<std::pair<std::int64_t, std::uint64_t>, StorageId> live;
    std::vector<bool> used(launches_.size(), false);
    b.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
    std::int64_t clock = items_.front().at;
    std::size_t wait = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      const auto place = std::pair(item.stream.first, item.address);
      if (item.kind == Kind::free) {
        const auto found = live.find(place);
        if (found == live.end()) {
          ++unmatched_frees_;
        } else {
          b.free(found->second);
          live.erase(found);
        }
        continue;
      }
      StorageId out{};
      TraceBuilder::Op op;
      if (item.kind == Kind::allocation) {
        if (const auto found = live.find(place); found != live.end()) {
          ++repeated_;
          b.free(found->second);
          live.erase(found);
        }
        out = b.alloc(Bytes{item.bytes}, "cuda:" + std::to_string(item.stream.first), false);
        live.emplace(place, out);
        ++storages_;
        op.out = std::span(&out, 1);
      } else {
        op.stream = streams.at(item.stream);
      }
      const auto [it, inserted] = signatures.try_emplace(item.name);
      if (inserted) {
        TraceBuilder::Signature s;
        s.name = item.name;
        it->second = b.add_signature(s);
      }
      op.signature = it->second;
      op.device_time = Nanos{item.device_time};
      op.host_gap = Nanos{std::max<std::int64_t>(item.at - clock, 0)};
      op.host_time = Nanos{0};
      if (item.launch != kNone && !used[item.launch]) {
        used[item.launch] = true;  // several kernels of a graph share one launch
        const Launch& launch = launches_[item.launch];
        op.host_time = Nanos{std::max<std::int64_t>(launch.end - std::max(clock, launch.start), 0)};
        clock = std::max(clock, launch.end);
      }
      // A wait between this operator and the next belongs to this one.
      const std::int64_t next =
          i + 1 < items_.size() ? items_[i + 1].at : std::numeric_limits<std::int64_t>::max();
      for (; wait < waits_.size() && waits_[wait].start < next; ++wait) {
        if (waits_[wait].start < item.at) continue;
        op.sync = SyncKind::explicit_sync;
        clock = std::max(clock, waits_[wait].end);
        ++syncs_;
      }
      b.op(op);
      ++operators_;
    }
    b.mark(MarkKind::iter_end, "", 0, Nanos{-1});
    return b.finish();
  }

  void report(ImportReport& r) {
    r.version = "SQLite export";
    if (has_table("META_DATA_EXPORT")) {
      db_.query("SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_SCHEMA_VERSION'",
                [&](const SqliteRow& row) { r.version = "schema " + mend_utf8(row.text(0), bad_utf8_); });
    }
    r.add_found("kernels", kernels_);
    r.add_found("device_copies", copies_);
    r.add_found("device_sets", sets_);
    r.add_found("copied_bytes", copied_);
    r.add_found("runtime_calls", runtime_);
    r.add_found("nvtx_events", nvtx_);
    r.add_found("memory_events", memory_events_);
    r.add_found("streams", static_cast<std::int64_t>(busy_.size()));
    r.add_found("device_time_ns", device_time_);
    r.add_found("trace_operators", operators_);
    r.add_found("storages", storages_);
    r.add_found("iterations", operators_ != 0 ? 1 : 0);
    r.derive("operators", operators_,
             "each kernel, copy, set and allocation, in the order of their launches");
    r.derive("operators without launch", without_launch_,
             "no runtime call has their correlation: placed by their device time");
    r.derive("host waits", syncs_, "synchronising calls; they belong to the operator before them");
    r.derive("iterations", operators_ != 0 ? 1 : 0, "the whole report is one iteration");
    r.drop("records without usable numbers", bad_times_,
           "they end before they begin, or hold what no device can");
    r.drop("memory events of the host", host_memory_, "a swap study moves device memory");
    r.drop("frees without an allocation", unmatched_frees_, "the allocation is older than the report");
    r.drop("allocations of a live address", repeated_,
           "the free between is not in the file; the older storage ends there");
    r.repair("bytes that are not UTF-8", bad_utf8_, "replaced by U+FFFD");
    r.missing = {"host operators and shapes"};
    if (!has_memory_) r.missing.push_back("storages (record with --cuda-memory-usage=true)");
    if (operators_ == 0) {
      r.study_reason = "the report holds no kernels and no memory events";
    } else if (storages_ != 0) {
      r.missing.push_back("which storages an operator reads");
      r.study = StudyKind::memory_only;
      r.study_reason =
          "the driver's allocations and times; a caching allocator's blocks inside them are not in the file";
    } else {
      r.study = StudyKind::times_only;
      r.study_reason = "kernels with their launches and times, but no storages";
    }
  }

  SqliteFile db_;
  std::string name_;
  std::unordered_map<std::int64_t, std::string> names_;
  std::vector<Launch> launches_, waits_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> launch_of_;
  std::vector<Item> items_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> busy_;  // device time, ns
  bool has_memory_ = false;
  std::int64_t kernels_ = 0, copies_ = 0, sets_ = 0, runtime_ = 0, nvtx_ = 0, memory_events_ = 0, copied_ = 0;
  std::int64_t bad_times_ = 0, bad_utf8_ = 0, without_launch_ = 0, device_time_ = 0, host_memory_ = 0;
  std::int64_t operators_ = 0, storages_ = 0, syncs_ = 0, unmatched_frees_ = 0, repeated_ = 0;
};

class NsysImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"nsys-sqlite", "Nsight Systems report exported with 'nsys export --type sqlite'", ""};
  }
  bool recognises(std::string_view head) const override {
    static constexpr std::string_view magic("SQLite format 3\0", 16);
    return head.substr(0, magic.size()) == magic;
  }
  ImportResult import(std::span<const ImportInput> inputs) const override {
    {
      SqliteFile db(inputs[0]);
      if (db.columns("StringIds").empty())
        throw Error(ErrorKind::input,
                    inputs[0].name() +
                        ": is an SQLite database, but no export of Nsight Systems (it has no "
                        "table StringIds)");
    }
    return Reader(inputs[0]).run();
  }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(NsysImporter)
}  // namespace swaplab
