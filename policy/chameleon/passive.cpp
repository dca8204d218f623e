#include "policy/chameleon/passive.hpp"

#include "policy/policy.hpp"

namespace swaplab::chameleon {
namespace {

Slot choose(Bytes shortfall, bool gradients, const View& view) {
  Slot enough = kNoSlot, largest = kNoSlot;
  for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) {
    if (view.size(s) == Bytes{0} || !view.evictable(s) ||
        (!gradients && view.storage_class(s) == StorageClass::gradient))
      continue;
    const Bytes bytes = view.size(s);
    if (bytes >= shortfall && (enough == kNoSlot || bytes < view.size(enough))) enough = s;
    if (largest == kNoSlot || bytes > view.size(largest)) largest = s;
  }
  return enough != kNoSlot ? enough : largest;
}

struct PassiveParams {
  std::string victims = "any", synchronous = "on";
};

// Nothing but this: the floor that every planning policy has to beat.
class PassiveSwap final : public Policy {
 public:
  explicit PassiveSwap(PassiveParams params) : params_(std::move(params)) {}
  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    const Victims victims = params_.victims == "any" ? Victims::any : Victims::published;
    const Slot out = swap_out_passively(shortfall, victims, view, actions);
    if (out != kNoSlot && params_.synchronous == "on") actions.wait_for_copies_out();
  }

 private:
  PassiveParams params_;
};

SWAPLAB_REGISTER_POLICY(
    PassiveSwap, PassiveParams,
    {.name = "passive-swap",
     .summary = "Chameleon's answer to a failed allocation and nothing else: smallest block that "
                "is enough, else the largest",
     .citation = "arXiv 2509.11076",
     .needs = Needs::none},
    {choice_parameter<PassiveParams>("victims", &PassiveParams::victims, {"any", "public"},
                                     "public: never gradients"),
     choice_parameter<PassiveParams>("synchronous", &PassiveParams::synchronous, {"on", "off"},
                                     "the host waits for each swap-out")});

}  // namespace

Slot swap_out_passively(Bytes shortfall, Victims victims, const View& view, Actions& actions) {
  if (victims == Victims::none) return kNoSlot;
  Slot victim = choose(shortfall, false, view);
  if (victim == kNoSlot && victims == Victims::any) victim = choose(shortfall, true, view);
  if (victim != kNoSlot) actions.evict(victim);
  return victim;
}

}  // namespace swaplab::chameleon
