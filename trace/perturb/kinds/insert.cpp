// Random extra work: an operator runs a second time on the same inputs and its result is thrown away.
#include <algorithm>

#include "trace/perturb/dataflow.hpp"
#include "trace/perturb/perturbation.hpp"

namespace swaplab {
namespace {

struct InsertParams {
  std::int64_t rate = 10'000;  // ppm
};

class Insert final : public Perturbation {
 public:
  explicit Insert(InsertParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random& random) const override {
    const Dataflow flow(edit, index);
    Items& items = edit.iterations[index].items;
    Items result;
    result.reserve(items.size());
    std::uint32_t node = 0;
    for (const Item& item : items) {
      result.push_back(item);
      if (item.kind != ItemKind::op) continue;
      const std::uint32_t at = node++;
      if (!random.chance(params_.rate) || !is_pure(edit, flow, at)) continue;
      edit.open_change("insert", index);
      EditOp copy = edit.op(item.arg);
      for (const StorageId s : flow.made(edit, at)) {
        std::replace(copy.out.begin(), copy.out.end(), s, edit.add_storage(s, edit.bytes(s), false));
      }
      result.push_back({ItemKind::op, edit.add_op(std::move(copy))});
      edit.close_change();
    }
    items = std::move(result);
  }

 private:
  InsertParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(
    Insert, InsertParams, {"insert", "operators run twice on the same inputs; the second result is dropped"},
    {share_field("rate", &InsertParams::rate, 0, 1'000'000, "share of the operators")});

}  // namespace
}  // namespace swaplab
