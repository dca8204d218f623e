// foresight: plans every move before the run starts, knowing the whole program.
//
// Victims are chosen where the memory would run short (farthest next use, or a ranking that the search
// finds better), leave right after their last use before the gap, are copied to the host as soon as
// their content is complete, and come back in deadline order as early as the projected memory permits.
// Many such plans are tried on a model of the machine; the fastest in the steady iterations is used.
#include <algorithm>

#include "policy/foresight_follow.hpp"
#include "policy/foresight_search.hpp"
#include "policy/policy.hpp"

namespace swaplab {
namespace {

struct ForesightParams {
  std::int64_t margin = -1;
  std::int64_t effort = 12;
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
    options.allocator = view.allocator_config();
    options.margin = params_.margin;
    found_ = foresight::search_plan(program, view.machine(), placement, options);
    return std::move(found_.plan);
  }

  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    foresight::evict_farthest(shortfall, view, actions);
  }

  std::vector<PolicyMetric> metrics() const override {
    return {
        {"plans_tried", "1", "plans that the planner compared",
         static_cast<std::int64_t>(found_.evaluations)},
        {"planned_steady_time", "ns", "steady iterations' time that the planner expected",
         found_.expected.value},
        {"first_guess_steady_time", "ns", "the same for plain farthest next use on the ideal allocator",
         found_.first_guess.value},
        {"margin_chosen", "1/1000", "share of the budget left unplanned", found_.margin},
        {"layout_repairs", "1", "evictions that only make one place large enough", found_.repairs},
    };
  }

 private:
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
    {integer_parameter("margin", &ForesightParams::margin, -1, 500,
                       "thousandths of the budget left unplanned against fragmentation (caching allocator "
                       "only); -1: tries several"),
     integer_parameter("effort", &ForesightParams::effort, 0, 1000,
                       "millions of accesses that the search may replay; 0: plain farthest next use")});

}  // namespace
}  // namespace swaplab
