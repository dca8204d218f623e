// Another sequence length: a shorter or longer batch.
#include "trace/perturb/perturbation.hpp"
#include "trace/perturb/rescale.hpp"

namespace swaplab {
namespace {

struct SequenceParams {
  std::int64_t to = 64;
};

class SequenceLength final : public Perturbation {
 public:
  explicit SequenceLength(SequenceParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random&) const override {
    Rescale request;
    request.sequence = params_.to;
    change_dimensions(edit, index, "sequence_length", request);
  }

 private:
  SequenceParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(
    SequenceLength, SequenceParams,
    {"sequence_length",
     "all micro-batches get sequences of this length; shapes, sizes, FLOP and times follow"},
    {count_field("to", &SequenceParams::to, 1, 100'000'000, "tokens per sequence")});

}  // namespace
}  // namespace swaplab
