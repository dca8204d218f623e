// Stochastic depth: a training step passes over some of the layers.
#include <algorithm>
#include <set>

#include "trace/perturb/blocks.hpp"
#include "trace/perturb/perturbation.hpp"

namespace swaplab {
namespace {

struct LayerDropParams {
  std::int64_t rate = 200'000;  // ppm
  std::int64_t block = -1;
};

class LayerDrop final : public Perturbation {
 public:
  explicit LayerDrop(LayerDropParams params) : params_(params) {}
  void apply(EditableTrace& edit, std::size_t index, Random& random) const override {
    std::set<std::int64_t> numbers;
    for (const Block& block : find_blocks(edit, Dataflow(edit, index))) numbers.insert(block.number);
    std::vector<std::int64_t> chosen;
    for (const std::int64_t number : numbers) {
      const bool drawn = random.chance(params_.rate);
      if (params_.block < 0 ? drawn : number == params_.block) chosen.push_back(number);
    }
    if (chosen.empty()) return;
    edit.open_change("layer_drop", index);
    drop_blocks(edit, index, chosen);
    edit.close_change();
  }

 private:
  LayerDropParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(
    LayerDrop, LayerDropParams, {"layer_drop", "some layers are passed over, forward and backward"},
    {share_field("rate", &LayerDropParams::rate, 0, 1'000'000, "probability of each layer"),
     count_field("block", &LayerDropParams::block, -1, 1'000'000, "this layer instead; -1: by the rate")});

}  // namespace
}  // namespace swaplab
