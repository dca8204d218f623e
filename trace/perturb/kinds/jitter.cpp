// Kernel-time noise: every kernel is a little faster or slower, independently.
#include "trace/error.hpp"
#include "trace/perturb/perturbation.hpp"

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
    edit.open_change("jitter", index);
    bool timed = false;
    for (const Item& item : edit.iterations[index].items) {
      if (item.kind != ItemKind::op) continue;
      EditOp& op = edit.op(item.arg);
      if (op.device_time.value < 0 || edit.is_view(op.signature)) continue;
      timed = true;
      const std::int64_t ppm = random.triangular(params_.amplitude);
      // Rounded towards zero, so that a small kernel is not pushed below nothing.
      const std::int64_t change =
          op.device_time.value / 1000 * ppm / 1000 + op.device_time.value % 1000 * ppm / 1'000'000;
      if (change == 0) continue;
      op.device_time.value += change;
      edit.touch(item.arg);
    }
    edit.close_change();
    if (!timed) {
      throw Error(ErrorKind::usage, "jitter: iteration " + std::to_string(edit.iterations[index].number) +
                                        " has no device times to change");
    }
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
