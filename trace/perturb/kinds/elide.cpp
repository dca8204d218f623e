// Small operators that the framework leaves out, as PyTorch does when a slice covers everything.
#include "trace/perturb/dataflow.hpp"
#include "trace/perturb/perturbation.hpp"

namespace swaplab {
namespace {

struct ElideParams {
  std::int64_t rate = 100'000;  // ppm
};

class Elide final : public Perturbation {
 public:
  explicit Elide(ElideParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random& random) const override {
    for (Item& item : edit.iterations[index].items) {
      // A view returns the storage that it was given: nothing needs it to run.
      if (item.kind != ItemKind::op || !edit.is_view(edit.op(item.arg).signature)) continue;
      if (edit.op(item.arg).in.empty() || !random.chance(params_.rate)) continue;
      edit.open_change("elide", index);
      edit.remove(item);
      edit.close_change();
    }
  }

 private:
  ElideParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(Elide, ElideParams, {"elide", "views are left out"},
                              {share_field("rate", &ElideParams::rate, 0, 1'000'000, "share of the views")});

}  // namespace
}  // namespace swaplab
