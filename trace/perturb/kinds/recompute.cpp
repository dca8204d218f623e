// Activation recomputation is switched on: a layer's activations are freed in the forward pass and made
// again, from the layer's input, before its backward pass needs them (phase R).
#include <algorithm>
#include <map>

#include "trace/perturb/blocks.hpp"
#include "trace/perturb/perturbation.hpp"

namespace swaplab {
namespace {

struct RecomputeParams {
  std::int64_t every = 1;
};

class Recompute final : public Perturbation {
 public:
  explicit Recompute(RecomputeParams params) : params_(params) {}
  void apply(EditableTrace& edit, std::size_t index, Random&) const override {
    const Dataflow flow(edit, index);
    const Items items = edit.iterations[index].items;
    std::map<std::uint32_t, Items> before;  // item -> what is inserted there
    edit.open_change("recompute", index);
    for (const Block& block : find_blocks(edit, flow)) {
      if (block.number % params_.every == 0) recompute(edit, flow, items, block, before);
    }
    if (!edit.close_change()) return;
    Items result;
    for (std::uint32_t i = 0; i < items.size(); ++i) {
      if (const auto found = before.find(i); found != before.end())
        result.insert(result.end(), found->second.begin(), found->second.end());
      result.push_back(items[i]);
    }
    edit.iterations[index].items = std::move(result);
  }

 private:
  static bool in_backward(const EditableTrace& edit, const Dataflow& flow, std::uint32_t node) {
    return edit.op(flow.nodes[node].op).phase == Phase::backward;
  }

  static void recompute(EditableTrace& edit, const Dataflow& flow, const Items& items, const Block& block,
                        std::map<std::uint32_t, Items>& before) {
    std::vector<StorageId> again;
    std::uint32_t first_use = kNever;
    for (const StorageId s : block.made) {
      const auto& by = flow.uses(s).by;
      const bool kept = std::any_of(by.begin(), by.end(), [&](std::uint32_t user) {
        return user >= block.end && !in_backward(edit, flow, user);
      });
      const auto use = std::find_if(by.begin(), by.end(),
                                    [&](std::uint32_t user) { return in_backward(edit, flow, user); });
      if (kept || use == by.end() || !flow.uses(s).freed) continue;
      again.push_back(s);
      first_use = std::min(first_use, *use);
    }
    if (again.empty()) return;
    // What the layer writes in place of what it did not make itself would be written twice.
    Items span;
    for (std::uint32_t i = flow.nodes[block.first].item; i < flow.nodes[block.end - 1].item + 1; ++i) {
      const ItemKind kind = items[i].kind;
      if (kind == ItemKind::op || kind == ItemKind::external || kind == ItemKind::free)
        span.push_back(items[i]);
    }
    EditableTrace::StorageMap map;
    Items copy;
    edit.copy_range(span, 0, span.size(), map, copy);
    for (const Item& item : copy) {
      if (item.kind == ItemKind::op) edit.op(item.arg).phase = Phase::recompute;
    }
    Items& at = before[flow.nodes[first_use].item];
    at.insert(at.end(), copy.begin(), copy.end());
    for (const StorageId s : again) {
      for (const std::uint32_t node : flow.uses(s).by) {
        if (!in_backward(edit, flow, node)) continue;
        EditOp& op = edit.op(flow.nodes[node].op);
        for (auto* ids : {&op.in, &op.out, &op.written})
          std::replace(ids->begin(), ids->end(), s, map.at(swaplab::index(s)));
      }
      edit.release(s);
    }
  }

  RecomputeParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(
    Recompute, RecomputeParams,
    {"recompute", "layers drop their activations and make them again in the backward pass"},
    {count_field("every", &RecomputeParams::every, 1, 1'000'000, "of the layers each n-th, from the first")});

}  // namespace
}  // namespace swaplab
