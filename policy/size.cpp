// Largest storage on demand: few copies, whatever their use.
#include "policy/policy.hpp"

namespace swaplab {
namespace {

class Size final : public Policy {
 public:
  explicit Size(NoParams) {}
  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    evict_by_score(shortfall, view, actions, [&](Slot s) { return view.size(s).value; });
  }
};

SWAPLAB_REGISTER_POLICY(Size, NoParams,
                        {"size", "On demand, the largest storages leave first; no prefetch", "", Needs::none},
                        {});

}  // namespace
}  // namespace swaplab
