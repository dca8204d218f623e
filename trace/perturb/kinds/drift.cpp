// Slow change of all kernel times over the run: clocks that drop as the device warms up.
#include <algorithm>

#include "trace/perturb/perturbation.hpp"
#include "trace/perturb/times.hpp"

namespace swaplab {
namespace {

struct DriftParams {
  std::int64_t per_iteration = 10'000;  // ppm of the recorded time
};

class Drift final : public Perturbation {
 public:
  explicit Drift(DriftParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random&) const override {
    // The first recorded iteration keeps its times.
    const std::int64_t steps = edit.iterations[index].number - edit.iterations.front().number;
    const std::int64_t ppm = std::clamp<std::int64_t>(params_.per_iteration * steps, -900'000, 9'000'000);
    change_kernel_times(edit, index, "drift", [ppm] { return ppm; });
  }

 private:
  DriftParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(
    Drift, DriftParams, {"drift", "kernel times grow by a constant share per iteration"},
    {share_field("per_iteration", &DriftParams::per_iteration, -100'000, 100'000,
                 "relative change per iteration since the first, of the recorded time")});

}  // namespace
}  // namespace swaplab
