// Frozen parameters, as in LoRA-style fine-tuning: no gradient is made for them and no optimizer state
// touched, so that activations which only their gradients needed are freed in the forward pass. No adapters
// are added.
#include <algorithm>

#include "trace/perturb/blocks.hpp"
#include "trace/perturb/perturbation.hpp"
#include "trace/perturb/removal.hpp"
#include "trace/perturb/shapes.hpp"

namespace swaplab {
namespace {

struct FrozenParams {
  std::string what = "matrices";
};

// Some operator sees it with two dimensions or more.
bool is_matrix(const EditableTrace& edit, const Dataflow& flow, StorageId s) {
  for (const std::uint32_t node : flow.uses(s).by) {
    const EditOp& op = edit.op(flow.nodes[node].op);
    const SignatureShapes shapes = parse_shapes(edit.signature(op.signature).detail);
    if (!shapes.known || shapes.in.size() != op.in.size()) continue;
    for (std::size_t i = 0; i < op.in.size(); ++i) {
      if (op.in[i] == s) return shapes.in[i].dims.size() >= 2;
    }
  }
  return false;
}

class Frozen final : public Perturbation {
 public:
  explicit Frozen(FrozenParams params) : params_(std::move(params)) {}
  void apply(EditableTrace& edit, std::size_t index, Random&) const override {
    Removal removal(edit, index);
    const Dataflow& flow = removal.flow();
    bool any = false;
    for (const auto& [id, uses] : flow.storages) {
      const StorageId s{id};
      if (edit.storage_class(s) != StorageClass::parameter) continue;
      if (params_.what == "matrices" && !is_matrix(edit, flow, s)) continue;
      removal.freeze(s);
      any = true;
    }
    if (!any) return;
    edit.open_change("frozen", index);
    removal.run();
    edit.close_change();
  }

 private:
  FrozenParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(Frozen, FrozenParams,
                              {"frozen", "parameters get no gradient and no step (LoRA-style base weights)"},
                              {choice_field("what", &FrozenParams::what, {"matrices", "all"},
                                            "matrices: biases and normalisation weights still learn")});

}  // namespace
}  // namespace swaplab
