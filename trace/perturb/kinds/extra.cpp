// Small operators more than recorded: an alias of what the next operator reads.
#include "trace/perturb/dataflow.hpp"
#include "trace/perturb/perturbation.hpp"

namespace swaplab {
namespace {

struct ExtraParams {
  std::int64_t rate = 100'000;  // ppm
};

class Extra final : public Perturbation {
 public:
  explicit Extra(ExtraParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random& random) const override {
    EditSignature alias;
    alias.name = "aten.alias.default";
    alias.flop = 0;
    alias.read = alias.written = Bytes{0};
    alias.view = true;
    Items& items = edit.iterations[index].items;
    Items result;
    result.reserve(items.size());
    for (const Item& item : items) {
      if (item.kind == ItemKind::op && !edit.op(item.arg).in.empty() && random.chance(params_.rate)) {
        edit.open_change("extra", index);
        const EditOp& next = edit.op(item.arg);
        EditOp op;
        op.signature = edit.add_signature(alias);
        op.phase = next.phase;
        op.stream = next.stream;
        op.in = {next.in[0]};
        op.out = op.in;
        op.device_time = next.device_time.value >= 0 ? Nanos{0} : Nanos{-1};
        op.host_time = next.host_time;
        op.host_gap = next.host_gap;
        result.push_back({ItemKind::op, edit.add_op(std::move(op))});
        edit.close_change();
      }
      result.push_back(item);
    }
    items = std::move(result);
  }

 private:
  ExtraParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(Extra, ExtraParams, {"extra", "aliases that the recording does not have"},
                              {share_field("rate", &ExtraParams::rate, 0, 1'000'000,
                                           "share of the operators that get one before them")});

}  // namespace
}  // namespace swaplab
