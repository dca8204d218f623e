#include "policy/foresight_follow.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/run.hpp"

namespace swaplab::foresight {
namespace {

// Follows a plan; off it, the farthest next use goes.
class Follow final : public Policy {
 public:
  explicit Follow(const Plan& plan) : plan_(plan) {}
  Plan start(const View&, Actions&) override { return plan_; }
  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    evict_farthest(shortfall, view, actions);
  }

 private:
  const Plan& plan_;
};

}  // namespace

std::optional<Nanos> steady_time(const Program& program, const Machine& machine, const Plan& plan,
                                 Bytes budget, const AllocatorConfig& allocator) {
  Follow follow(plan);
  RunOptions run;
  run.budget = budget;
  run.allocator = AllocatorKind::caching;
  run.allocator_config = allocator;
  run.needs = Needs::future;
  const RunResult result = run_program(program, machine, follow, run);
  if (result.outcome != Outcome::ok) return std::nullopt;
  return result.iterations[program.steady_end - 1].end - result.iterations[program.steady_first].begin;
}

void evict_farthest(Bytes shortfall, const View& view, Actions& actions) {
  const bool in_pieces = view.allocated() + shortfall <= view.budget();
  std::vector<std::pair<std::uint32_t, Slot>> candidates;
  Slot place = kNoSlot;
  for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) {
    if (!view.evictable(s)) continue;
    const std::uint32_t use = view.next_use(s);
    if (in_pieces && view.size(s) >= shortfall && (place == kNoSlot || use > view.next_use(place))) place = s;
    candidates.emplace_back(use, s);
  }
  if (place != kNoSlot) {
    actions.evict(place);
    return;
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  Bytes evicted{0};
  for (const auto& [use, s] : candidates) {
    if (evicted >= shortfall) break;
    evicted += view.size(s);
    actions.evict(s);
  }
}

}  // namespace swaplab::foresight
