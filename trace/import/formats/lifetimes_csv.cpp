// Buffer lifetimes (minimalloc, SOMAS, IOPDDL): id, lower, upper, size; half-open, without times or uses.
#include <algorithm>
#include <limits>
#include <set>

#include "trace/builder.hpp"
#include "trace/error.hpp"
#include "trace/import/decimal.hpp"
#include "trace/import/importer.hpp"
#include "trace/import/lines.hpp"
#include "trace/import/sum.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const auto comma = line.find(',');
    std::string_view field = line.substr(0, comma);
    while (!field.empty() && (field.front() == ' ' || field.front() == '\t')) field.remove_prefix(1);
    while (!field.empty() && (field.back() == ' ' || field.back() == '\t')) field.remove_suffix(1);
    fields.push_back(field);
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

struct Buffer {
  std::int64_t lower, upper, bytes;
  std::uint32_t row;
};

class LifetimesImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"lifetimes-csv", "buffer lifetimes (minimalloc, SOMAS, IOPDDL): id,lower,upper,size", ""};
  }
  bool recognises(std::string_view head) const override {
    if (head.substr(0, 3) == "\xef\xbb\xbf") head.remove_prefix(3);
    std::string_view line = head.substr(0, head.find('\n'));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const auto fields = fields_of(line);
    const auto has = [&](std::string_view name) {
      return std::find(fields.begin(), fields.end(), name) != fields.end();
    };
    return has("id") && has("lower") && has("upper") && has("size");
  }

  ImportResult import(std::span<const ImportInput> inputs) const override {
    Lines lines(inputs[0]);
    std::string_view line;
    if (!lines.next(line)) lines.fail("expected the header id,lower,upper,size");
    const auto header = fields_of(line);
    const auto column = [&](std::string_view name) {
      const auto found = std::find(header.begin(), header.end(), name);
      if (found == header.end()) lines.fail("expected a column '" + std::string(name) + "'");
      return static_cast<std::size_t>(found - header.begin());
    };
    const std::size_t columns = header.size();
    const std::size_t id = column("id"), lower = column("lower"), upper = column("upper"),
                      size = column("size");
    std::vector<Buffer> buffers;
    std::set<std::string, std::less<>> ids;
    std::int64_t total = 0, empty = 0;
    while (lines.next(line)) {
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      const auto fields = fields_of(line);
      if (fields.size() != columns)
        lines.fail("expected " + std::to_string(columns) + " fields, found " + std::to_string(fields.size()));
      const auto number = [&](std::size_t at, const char* name, std::int64_t low, std::int64_t high) {
        const auto value = scaled_decimal(fields[at], 0);
        if (!value || *value < low || *value > high ||
            fields[at].find_first_of(".eE") != std::string_view::npos)
          lines.fail("'" + std::string(name) + "' must be an integer from " + std::to_string(low) + " to " +
                     std::to_string(high) + ", found '" + std::string(fields[at]) + "'");
        return *value;
      };
      constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
      const Buffer buffer{number(lower, "lower", 0, most), number(upper, "upper", 0, most),
                          number(size, "size", 0, kMaxBytes), static_cast<std::uint32_t>(buffers.size())};
      if (buffer.upper < buffer.lower)
        lines.fail("'upper' " + std::string(fields[upper]) + " lies before 'lower' " +
                   std::string(fields[lower]));
      if (!ids.emplace(fields[id]).second)
        lines.fail("the id '" + std::string(fields[id]) + "' occurs twice");
      add_checked(total, buffer.bytes);
      if (buffer.upper == buffer.lower) {
        ++empty;
        continue;
      }
      buffers.push_back(buffer);
    }
    ImportResult result;
    ImportReport& r = result.report;
    r.version = "id,lower,upper,size";
    r.add_found("buffers", static_cast<std::int64_t>(ids.size()));
    r.add_found("allocated_bytes", total);
    r.drop("buffers of no length", empty, "they end where they begin");
    r.missing = {"operators", "device times", "which storages an operator reads"};
    r.study_reason = "the file holds no buffer";
    if (buffers.empty()) return result;
    r.study = StudyKind::memory_only;
    r.study_reason = "lifetimes and sizes in logical time, but no times and no uses";
    r.derive("operators", static_cast<std::int64_t>(buffers.size()),
             "each allocation stands as an operator that makes its storage");
    r.derive("order", static_cast<std::int64_t>(buffers.size()),
             "by lower, then as in the file; what ends at a point is freed before what begins there");
    result.trace = emit(buffers);
    r.add_found("max_load_bytes", result.trace->peak_bytes.value);
    r.add_found("trace_operators", static_cast<std::int64_t>(buffers.size()));
    r.add_found("storages", static_cast<std::int64_t>(buffers.size()));
    return result;
  }

 private:
  static Trace emit(std::vector<Buffer>& buffers) {
    std::stable_sort(buffers.begin(), buffers.end(),
                     [](const Buffer& a, const Buffer& b) { return a.lower < b.lower; });
    TraceBuilder b;
    TraceHeader header;
    header.source = "import-lifetimes-csv";
    header.device = "cuda";
    b.set_header(header);
    TraceBuilder::Signature signature;
    signature.name = "memory::alloc";
    const SigId sig = b.add_signature(signature);
    b.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
    std::set<std::pair<std::int64_t, std::uint32_t>> ends;  // upper, storage
    for (const Buffer& buffer : buffers) {
      while (!ends.empty() && ends.begin()->first <= buffer.lower) {
        b.free(StorageId{ends.begin()->second});
        ends.erase(ends.begin());
      }
      const StorageId out = b.alloc(Bytes{buffer.bytes}, "cuda:0", false);
      ends.emplace(buffer.upper, index(out));
      TraceBuilder::Op op;
      op.signature = sig;
      op.out = std::span(&out, 1);
      b.op(op);
    }
    for (const auto& [upper, storage] : ends) b.free(StorageId{storage});
    b.mark(MarkKind::iter_end, "", 0, Nanos{-1});
    return b.finish();
  }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(LifetimesImporter)
}  // namespace swaplab
