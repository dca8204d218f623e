// Early exit: the head reads the result of an earlier layer, the layers behind it do not run.
#include "trace/perturb/blocks.hpp"
#include "trace/perturb/perturbation.hpp"

namespace swaplab {
namespace {

struct EarlyExitParams {
  std::int64_t layers = 1;
};

class EarlyExit final : public Perturbation {
 public:
  explicit EarlyExit(EarlyExitParams params) : params_(params) {}
  void apply(EditableTrace& edit, std::size_t index, Random&) const override {
    std::vector<std::int64_t> chosen;
    for (const Block& block : find_blocks(edit, Dataflow(edit, index))) {
      if (block.number >= params_.layers) chosen.push_back(block.number);
    }
    if (chosen.empty()) return;
    edit.open_change("early_exit", index);
    drop_blocks(edit, index, chosen);
    edit.close_change();
  }

 private:
  EarlyExitParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(EarlyExit, EarlyExitParams,
                              {"early_exit", "only the first layers run, and the head"},
                              {count_field("layers", &EarlyExitParams::layers, 0, 1'000'000,
                                           "layers that run")});

}  // namespace
}  // namespace swaplab
