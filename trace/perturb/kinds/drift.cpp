// Slow change of all kernel times over the run: clocks that drop as the device warms up.
#include <algorithm>

#include "trace/error.hpp"
#include "trace/perturb/perturbation.hpp"

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
    edit.open_change("drift", index);
    bool timed = false;
    for (const Item& item : edit.iterations[index].items) {
      if (item.kind != ItemKind::op) continue;
      EditOp& op = edit.op(item.arg);
      if (op.device_time.value < 0 || edit.is_view(op.signature)) continue;
      timed = true;
      const std::int64_t change =
          op.device_time.value / 1000 * ppm / 1000 + op.device_time.value % 1000 * ppm / 1'000'000;
      if (change == 0) continue;
      op.device_time.value += change;
      edit.touch(item.arg);
    }
    edit.close_change();
    if (!timed) {
      throw Error(ErrorKind::usage, "drift: iteration " + std::to_string(edit.iterations[index].number) +
                                        " has no device times to change");
    }
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
