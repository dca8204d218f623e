// Kernel-time noise: every kernel is a little faster or slower, independently.
#include "trace/perturb/perturbation.hpp"
#include "trace/perturb/times.hpp"

namespace swaplab {
namespace {

struct JitterParams {
  std::int64_t amplitude = 50'000;  // ppm
};

class Jitter final : public Perturbation {
 public:
  explicit Jitter(JitterParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random& random) const override {
    change_kernel_times(edit, index, "jitter", [&] { return random.triangular(params_.amplitude); });
  }

 private:
  JitterParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(Jitter, JitterParams,
                              {"jitter", "each kernel's time varies independently (triangular noise)"},
                              {share_field("amplitude", &JitterParams::amplitude, 0, 1'000'000,
                                           "largest relative change")});

}  // namespace
}  // namespace swaplab
