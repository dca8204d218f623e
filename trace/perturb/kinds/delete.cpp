// Random missing operators: what used the result uses an input of the same size instead.
#include "trace/perturb/dataflow.hpp"
#include "trace/perturb/perturbation.hpp"

namespace swaplab {
namespace {

struct DeleteParams {
  std::int64_t rate = 10'000;  // ppm
};

class Delete final : public Perturbation {
 public:
  explicit Delete(DeleteParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random& random) const override {
    const auto count = static_cast<std::uint32_t>(Dataflow(edit, index).nodes.size());
    std::vector<std::uint32_t> chosen;
    for (std::uint32_t node = 0; node < count; ++node) {
      if (random.chance(params_.rate)) chosen.push_back(node);
    }
    if (chosen.empty()) return;
    // From the end: the dataflow before a deleted operator stays as it was.
    std::vector<std::pair<StorageId, StorageId>> replaced;
    Dataflow flow(edit, index);
    for (std::size_t i = chosen.size(); i-- > 0;) {
      const std::uint32_t node = chosen[i];
      if (!is_removable(edit, flow, index, node, replaced)) continue;
      edit.open_change("delete", index);
      edit.remove(edit.iterations[index].items[flow.nodes[node].item]);
      edit.close_change();
      for (const auto& [from, to] : replaced) replace_uses(edit, flow, from, to);
    }
  }

 private:
  DeleteParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(Delete, DeleteParams,
                              {"delete", "operators are missing where an input can stand for the result"},
                              {share_field("rate", &DeleteParams::rate, 0, 1'000'000,
                                           "share of the operators that are tried")});

}  // namespace
}  // namespace swaplab
