// G10's tables of one value per kernel, without the kernels: times (also under page faults) or workspaces.
#include "trace/builder.hpp"
#include "trace/import/g10_tables.hpp"
#include "trace/import/importer.hpp"

namespace swaplab {
namespace {

class G10TableImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"g10-table", "G10 tables of a value per kernel (ms or B); give kernels.config too", ""};
  }
  bool recognises(std::string_view head) const override { return g10::looks_like_table(head); }
  ImportResult import(std::span<const ImportInput> inputs) const override {
    const g10::Table table = g10::read_table(inputs[0]);
    const auto rows = static_cast<std::int64_t>(table.value.size());
    ImportResult result;
    ImportReport& r = result.report;
    r.version = table.bytes ? "bytes per kernel" : "ms per kernel";
    r.add_found("rows", rows);
    r.missing = {"kernels and tensors: give kernels.config too"};
    if (table.bytes) {
      r.add_found("workspace_bytes", table.sum);
      r.study_reason = table.sum == 0 ? "workspaces of kernels, all of 0 B, and no kernels"
                                      : "workspaces of kernels, but no kernels";
      return result;
    }
    r.add_found("device_time_ns", table.sum);
    r.derive("digits below 1 ns", table.cut, "cut off");
    r.missing.push_back("whether the times are those without page faults: the file does not say");
    if (rows == 0) {
      r.study_reason = "the file holds no kernel";
      return result;
    }
    r.study = StudyKind::times_only;
    r.study_reason = "a time per kernel, but no names and no storages";
    r.add_found("trace_operators", rows);
    r.add_found("iterations", 1);
    r.derive("iterations", 1, "the whole table is one iteration");
    TraceBuilder b;
    TraceHeader header;
    header.source = "import-g10-table";
    header.device = "cuda";
    b.set_header(header);
    TraceBuilder::Signature s;
    s.name = "kernel";
    const SigId signature = b.add_signature(s);
    b.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
    for (const std::int64_t time : table.value) {
      TraceBuilder::Op op;
      op.signature = signature;
      op.device_time = Nanos{time};
      b.op(op);
    }
    b.mark(MarkKind::iter_end, "", 0, Nanos{-1});
    result.trace = b.finish();
    return result;
  }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(G10TableImporter)
}  // namespace swaplab
