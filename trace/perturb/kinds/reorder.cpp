// Neighbouring operators change places where neither needs the other.
#include <algorithm>
#include <utility>

#include "trace/perturb/dataflow.hpp"
#include "trace/perturb/perturbation.hpp"

namespace swaplab {
namespace {

struct ReorderParams {
  std::int64_t rate = 10'000;  // ppm
};

bool touches(const EditOp& op, StorageId s) {
  for (const auto* ids : {&op.in, &op.out}) {
    if (std::find(ids->begin(), ids->end(), s) != ids->end()) return true;
  }
  return false;
}

// Nothing that `a` makes or writes is touched by `b`, and neither waits for the device.
bool independent(const EditOp& a, const EditOp& b) {
  if (a.sync != SyncKind::none) return false;
  for (const StorageId s : a.written) {
    if (touches(b, s)) return false;
  }
  for (const StorageId s : a.out) {
    const bool argument = std::find(a.in.begin(), a.in.end(), s) != a.in.end();
    if (!argument && touches(b, s)) return false;
  }
  return true;
}

class Reorder final : public Perturbation {
 public:
  explicit Reorder(ReorderParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random& random) const override {
    Items& items = edit.iterations[index].items;
    std::size_t before = items.size();  // the operator before, unless a mark stands between
    for (std::size_t i = 0; i < items.size(); ++i) {
      const ItemKind kind = items[i].kind;
      // Marks, first sights and resizes have a place in the order of operators.
      if (kind == ItemKind::mark || kind == ItemKind::external || kind == ItemKind::resize ||
          kind == ItemKind::saved) {
        before = items.size();
      }
      if (kind != ItemKind::op) continue;
      const std::size_t previous = std::exchange(before, i);
      if (previous == items.size() || !random.chance(params_.rate)) continue;
      const std::uint32_t a = items[previous].arg, b = items[i].arg;
      if (edit.op(a).stream != edit.op(b).stream || !independent(edit.op(a), edit.op(b)) ||
          !independent(edit.op(b), edit.op(a))) {
        continue;
      }
      edit.open_change("reorder", index);
      std::swap(items[previous].arg, items[i].arg);
      edit.touch(a);
      edit.touch(b);
      edit.close_change();
      before = items.size();  // each operator moves once
    }
  }

 private:
  ReorderParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(Reorder, ReorderParams, {"reorder", "independent neighbours change places"},
                              {share_field("rate", &ReorderParams::rate, 0, 1'000'000,
                                           "share of the neighbours that are tried")});

}  // namespace
}  // namespace swaplab
