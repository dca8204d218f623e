// The optimizer step is passed over, as after an overflow of the loss scale.
#include "trace/perturb/perturbation.hpp"
#include "trace/perturb/removal.hpp"

namespace swaplab {
namespace {

class SkipStep final : public Perturbation {
 public:
  explicit SkipStep(NoFields) {}
  void apply(EditableTrace& edit, std::size_t index, Random&) const override {
    Removal removal(edit, index);
    removal.restrict_cleanup(Phase::optimizer);
    bool any = false;
    const Dataflow& flow = removal.flow();
    for (std::uint32_t node = 0; node < flow.nodes.size(); ++node) {
      const EditOp& op = edit.op(flow.nodes[node].op);
      if (op.phase == Phase::optimizer && updates(edit, flow, index, node, op)) {
        removal.remove(node);
        any = true;
      }
    }
    if (!any) return;
    edit.open_change("skip_step", index);
    removal.run();
    if (!edit.close_change()) return;
    // The recorder's own mark, where the step would have begun.
    Items& items = edit.iterations[index].items;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i].kind != ItemKind::removed || edit.op(items[i].arg).phase != Phase::optimizer) continue;
      items.insert(items.begin() + static_cast<std::ptrdiff_t>(i),
                   {ItemKind::mark, edit.add_mark({MarkKind::step_skipped, "", -1, Nanos{-1}})});
      break;
    }
  }

 private:
  // Writes a parameter, or touches optimizer state. What makes state for later iterations stays.
  static bool updates(const EditableTrace& edit, const Dataflow& flow, std::size_t index, std::uint32_t node,
                      const EditOp& op) {
    for (const StorageId s : flow.made(edit, node)) {
      if (edit.used_after(s, index)) return false;
    }
    for (const StorageId s : op.written) {
      if (edit.storage_class(s) == StorageClass::parameter) return true;
    }
    for (const auto* ids : {&op.in, &op.out}) {
      for (const StorageId s : *ids) {
        if (edit.storage_class(s) == StorageClass::optimizer_state) return true;
      }
    }
    return false;
  }
};

SWAPLAB_REGISTER_PERTURBATION(SkipStep, NoFields,
                              {"skip_step", "the optimizer step is passed over (loss-scale overflow)"}, {});

}  // namespace
}  // namespace swaplab
