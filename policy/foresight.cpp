// foresight: plans every move before the run starts, knowing the whole program.
//
// Victims are chosen where the memory would run short (farthest next use, or a ranking that the search
// finds better), leave right after their last use before the gap, are copied to the host as soon as
// their content is complete, and come back in deadline order as early as the projected memory permits.
// Many such plans are tried on a model of the machine; the fastest in the steady iterations is used.
#include <algorithm>

#include "policy/foresight_search.hpp"
#include "policy/policy.hpp"

namespace swaplab {
namespace {

struct ForesightParams {
  std::int64_t margin = 50;
  std::int64_t effort = 6;
};

class Foresight final : public Policy {
 public:
  explicit Foresight(const ForesightParams& params) : params_(params) {}

  Plan start(const View& view, Actions&) override {
    const Program& program = view.program();
    foresight::Placement placement;
    placement.on_host.resize(program.slot_count(), 0);
    for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
      if (program.initial[s] != 0 && view.residency(Slot{s}) == Residency::host) placement.on_host[s] = 1;
    }
    foresight::SearchOptions options;
    options.effort = params_.effort;
    options.budget = view.budget();
    options.granularity = Bytes{1};
    if (view.memory_fragments()) {
      options.budget = Bytes{view.budget().value / 1000 * (1000 - params_.margin)};
      options.granularity = Bytes{512};
    }
    // A plan that cannot hold one operator's own storages helps nobody.
    options.budget = std::max(options.budget, std::min(view.budget(), program.largest_working_set));
    found_ = foresight::search_plan(program, view.machine(), placement, options);
    return std::move(found_.plan);
  }

  // Off the plan: fragmentation, or an operator that needs nearly everything. Farthest next use; where
  // there are bytes enough but in pieces, one storage whose place is large enough.
  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    const bool in_pieces = view.allocated() + shortfall <= view.budget();
    if (in_pieces && evict_one_of(shortfall, view, actions)) return;
    evict_by_score(shortfall, view, actions,
                   [&](Slot s) { return static_cast<std::int64_t>(view.next_use(s)); });
  }

  std::vector<PolicyMetric> metrics() const override {
    return {
        {"plans_tried", "1", "plans that the planner compared",
         static_cast<std::int64_t>(found_.evaluations)},
        {"planned_steady_time", "ns", "steady iterations' time that the planner expected",
         found_.expected.value},
        {"first_guess_steady_time", "ns", "the same for plain farthest next use", found_.first_guess.value},
    };
  }

 private:
  static bool evict_one_of(Bytes bytes, const View& view, Actions& actions) {
    Slot best = kNoSlot;
    for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) {
      if (!view.evictable(s) || view.size(s) < bytes) continue;
      if (best == kNoSlot || view.next_use(s) > view.next_use(best)) best = s;
    }
    if (best != kNoSlot) actions.evict(best);
    return best != kNoSlot;
  }

  ForesightParams params_;
  foresight::SearchResult found_;
};

SWAPLAB_REGISTER_POLICY(
    Foresight, ForesightParams,
    {.name = "foresight",
     .summary = "planner that knows the future: victims where memory is short, early write-back, swap-in by "
                "deadline",
     .citation = "",
     .needs = Needs::future | Needs::op_times | Needs::link_model},
    {integer_parameter(
         "margin", &ForesightParams::margin, 0, 500,
         "thousandths of the budget left unplanned against fragmentation (caching allocator only)"),
     integer_parameter("effort", &ForesightParams::effort, 0, 1000,
                       "millions of accesses that the search may replay; 0: plain farthest next use")});

}  // namespace
}  // namespace swaplab
