// Belady's rule on demand. Optimal for pages of one size; for storages of unequal size, with copies
// that cost time, it is a heuristic.
#include "policy/policy.hpp"

namespace swaplab {
namespace {

class NextUse final : public Policy {
 public:
  explicit NextUse(NoParams) {}
  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    evict_by_score(shortfall, view, actions,
                   [&](Slot s) { return static_cast<std::int64_t>(view.next_use(s)); });
  }
};

SWAPLAB_REGISTER_POLICY(
    NextUse, NoParams,
    {"next-use",
     "On demand, the storages used farthest in the future leave first (a heuristic: optimal only "
     "for equal sizes)",
     "Belady, IBM Systems Journal 5(2), 1966", Needs::future},
    {});

}  // namespace
}  // namespace swaplab
