// The unmodified program: nothing ever leaves the device.
#include "policy/policy.hpp"

namespace swaplab {
namespace {

class None final : public Policy {
 public:
  explicit None(NoParams) {}
  void make_room(Bytes, const View&, Actions&) override {}
};

SWAPLAB_REGISTER_POLICY(None, NoParams,
                        {"none", "Never swaps; fails when the program does not fit", "", Needs::none}, {});

}  // namespace
}  // namespace swaplab
