// Saving a checkpoint behind the optimizer step: every parameter is read by the host, which waits.
#include <algorithm>

#include "trace/perturb/dataflow.hpp"
#include "trace/perturb/perturbation.hpp"

namespace swaplab {
namespace {

struct SaveParams {
  std::string states = "parameters";
  std::int64_t mb_per_s = 12'000;
};

class CheckpointSave final : public Perturbation {
 public:
  explicit CheckpointSave(SaveParams params) : params_(std::move(params)) {}
  void apply(EditableTrace& edit, std::size_t index, Random&) const override {
    const Dataflow flow(edit, index);
    std::vector<StorageId> saved;
    for (const auto& [id, uses] : flow.storages) {
      const StorageId s{id};
      const StorageClass cls = edit.storage_class(s);
      const bool state = cls == StorageClass::optimizer_state || cls == StorageClass::buffer;
      if (!uses.freed && (cls == StorageClass::parameter || (state && params_.states == "all")))
        saved.push_back(s);
    }
    if (saved.empty()) return;
    std::sort(saved.begin(), saved.end());  // the map has no order of its own
    bool timed = false;
    for (const Dataflow::Node& node : flow.nodes) timed |= edit.op(node.op).device_time.value >= 0;
    Items& items = edit.iterations[index].items;
    const Item end = items.back();
    if (end.kind == ItemKind::mark) items.pop_back();
    edit.open_change("checkpoint_save", index);
    for (const StorageId s : saved) {
      const std::int64_t bytes = edit.bytes(s).value;
      EditSignature signature;
      signature.name = "aten._to_copy.default";
      // No shape is known here for certain, so the copy is described by its bytes.
      signature.detail = R"({"in":[[[)" + std::to_string(bytes) + R"(],"uint8"]],"out":[[[)" +
                         std::to_string(bytes) + R"(],"uint8"]],"attr":["cpu"]})";
      signature.flop = 0;
      signature.read = signature.written = Bytes{bytes};
      EditOp op;
      op.signature = edit.add_signature(signature);
      op.sync = SyncKind::d2h;
      op.in = {s};
      if (timed) op.device_time = Nanos{(bytes * 1000 + params_.mb_per_s - 1) / params_.mb_per_s};
      items.push_back({ItemKind::op, edit.add_op(std::move(op))});
    }
    edit.close_change();
    if (end.kind == ItemKind::mark) items.push_back(end);
  }

 private:
  SaveParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(
    CheckpointSave, SaveParams,
    {"checkpoint_save", "the host reads all parameters behind the optimizer step, one after the other"},
    {choice_field("states", &SaveParams::states, {"parameters", "all"},
                  "all: optimizer state and buffers as well"),
     count_field("mb_per_s", &SaveParams::mb_per_s, 1, 10'000'000,
                 "rate of the copies in MB/s, for traces with device times")});

}  // namespace
}  // namespace swaplab
