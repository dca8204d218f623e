// Another batch size: the ragged last batch of an epoch.
#include "trace/perturb/perturbation.hpp"
#include "trace/perturb/rescale.hpp"

namespace swaplab {
namespace {

struct BatchParams {
  std::int64_t to = 1;
};

class BatchSize final : public Perturbation {
 public:
  explicit BatchSize(BatchParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random&) const override {
    Rescale request;
    request.batch = params_.to;
    change_dimensions(edit, index, "batch_size", request);
  }

 private:
  BatchParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(
    BatchSize, BatchParams,
    {"batch_size", "all micro-batches get this many samples; shapes, sizes, FLOP and times follow"},
    {count_field("to", &BatchParams::to, 1, 100'000'000, "samples per micro-batch")});

}  // namespace
}  // namespace swaplab
