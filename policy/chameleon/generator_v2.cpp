// v2 of the public generator: every activation with one forward and one backward stage leaves.
#include <algorithm>
#include <numeric>

#include "policy/chameleon/stages.hpp"

namespace swaplab::chameleon {
namespace {

struct StageUses {
  std::uint32_t stages = 0;                  // FWD and BWD stages that use it
  std::uint32_t last_stage = kNever;         // newest of them
  std::int64_t forward = -1, backward = -1;  // last operator of a FWD stage, first of a BWD stage
};

std::vector<StageUses> collect_stage_uses(const IterationProfile& p, const SwapPlan& plan) {
  std::vector<StageUses> uses(p.storages.size());
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    const bool forward = p.type[op] == StageType::forward;
    if (!forward && p.type[op] != StageType::backward) continue;
    const std::uint32_t stage = plan.stage_of[op];
    for (const std::uint32_t tensor : p.tensors_of(op)) {
      StageUses& u = uses[tensor];
      const bool fresh = u.last_stage != stage;
      if (fresh) ++u.stages;
      u.last_stage = stage;
      if (forward) {
        u.forward = op;
      } else if (fresh && u.backward < 0) {
        u.backward = op;
      }
    }
  }
  return uses;
}

}  // namespace

void generate_v2(const IterationProfile& p, const GeneratorParams& params, SwapPlan& plan) {
  const auto last_stage = static_cast<std::uint32_t>(plan.stages.size() - 1);
  const Bytes bucket = params.swap_bucket;
  const std::vector<StageUses> uses = collect_stage_uses(p, plan);
  std::vector<std::uint32_t> eligible;
  for (std::uint32_t t = 0; t < p.storages.size(); ++t) {
    const StageUses& u = uses[t];
    if (u.stages == 2 && u.forward >= 0 && u.backward >= 0 && p.storages[t].kind != TensorKind::shared &&
        p.storages[t].bytes > params.tensor_size_filter) {
      eligible.push_back(t);
    }
  }
  if (bucket >= Bytes{0}) {
    // Per forward stage the tensors in the order of their swap-out, up to the first that does not fit.
    // Parameters take part, although they do not leave: the public code looks at the type afterwards.
    std::stable_sort(eligible.begin(), eligible.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return uses[a].forward < uses[b].forward; });
    std::vector<Bytes> filled(plan.stages.size());
    std::vector<std::uint8_t> closed(plan.stages.size(), 0);
    std::erase_if(eligible, [&](std::uint32_t t) {
      const std::uint32_t stage = plan.stage_of[static_cast<std::size_t>(uses[t].forward)];
      filled[stage] += p.storages[t].bytes;
      if (filled[stage] > bucket) closed[stage] = 1;
      return closed[stage] != 0;
    });
  }
  const auto add = [&](std::uint32_t t, bool optimizer, std::int64_t out_op, std::int64_t in_op,
                       std::uint32_t out, std::uint32_t use, std::uint32_t in, std::uint32_t free,
                       std::uint32_t in_free) {
    plan.selected.push_back({kNever, t, optimizer, out_op, in_op, 0, false, out, use, in, free, in_free, {}});
  };
  const auto delay = static_cast<std::uint32_t>(params.v2_free_stage_delay);
  for (const std::uint32_t t : eligible) {
    const std::uint32_t out = plan.stage_of[static_cast<std::size_t>(uses[t].forward)];
    const std::uint32_t use = plan.stage_of[static_cast<std::size_t>(uses[t].backward)];
    const std::uint32_t in = use - 1;  // a backward stage is never the first one of these
    if (p.storages[t].kind != TensorKind::other || (in > out ? in - out : out - in) <= 1) continue;
    add(t, false, uses[t].forward, uses[t].backward, out, use, in, std::min(out + delay, last_stage),
        std::min(in + delay, last_stage));
  }
  std::uint32_t first_forward = kNever, optimizer = kNever;
  for (std::uint32_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages[s].type == StageType::forward && first_forward == kNever) first_forward = s;
    if (plan.stages[s].type == StageType::optimizer) optimizer = s;
  }
  if (params.memory_saving && first_forward != kNever && optimizer != kNever) {
    for (std::uint32_t t = 0; t < p.storages.size(); ++t) {
      if (p.storages[t].kind != TensorKind::optimizer) continue;
      add(t, true, -1, -1, first_forward, optimizer, optimizer, first_forward, optimizer);
    }
  }
  const auto out_op = [&](const Selection& s) {
    return s.optimizer ? static_cast<std::int64_t>(plan.stages[first_forward].first_op) : s.out_op;
  };
  std::sort(plan.selected.begin(), plan.selected.end(), [&](const Selection& a, const Selection& b) {
    if (out_op(a) != out_op(b)) return out_op(a) < out_op(b);
    const Bytes x = p.storages[a.tensor].bytes, y = p.storages[b.tensor].bytes;
    return x != y ? x > y : a.tensor < b.tensor;
  });
  plan.emitted.resize(plan.selected.size());
  std::iota(plan.emitted.begin(), plan.emitted.end(), 0U);
}

}  // namespace swaplab::chameleon
