#include "policy/chameleon/follower.hpp"

#include <algorithm>
#include <utility>

namespace swaplab::adaptive {
namespace {

bool away(Residency residency) {
  return residency == Residency::host || residency == Residency::outgoing;
}

}  // namespace

void Follower::clear() {
  steps_.clear();
  fresh_.clear();
  late_.clear();
  next_ = 0;
  ahead_ = 0;
  in_force_ = offered_ = false;
}

void Follower::offer(std::vector<Step> steps, std::uint32_t from, Nanos ready) {
  fresh_ = std::move(steps);
  from_ = from;
  ready_ = ready;
  offered_ = true;
}

void Follower::bridge(std::vector<Step> steps, Nanos ready) {
  offer(std::move(steps), 0, ready);
  in_force_ = true;
}

void Follower::take_over(std::uint32_t here, bool places, const View& view, Actions& actions) {
  if (!offered_ || here < from_) return;
  if (!places && view.host_now() < ready_) return;
  if (view.host_now() < ready_) actions.spend_host_time(ready_ - view.host_now());
  steps_ = std::move(fresh_);
  fresh_.clear();
  offered_ = false;
  in_force_ = true;
  next_ = 0;
  late_.clear();
}

void Follower::run(const Alignment& at, const PredictedUse& use, const View& view, Actions& actions) {
  const std::uint32_t here = at.here();
  for (; next_ < steps_.size() && steps_[next_].op <= here; ++next_) {
    const Step& step = steps_[next_];
    if (step.object == kNever && !step.storage.alive(view)) continue;
    const Slot slot = step.object == kNever ? step.storage.slot : at.slots()[step.object];
    if (slot == kNoSlot) continue;
    const Residency residency = view.residency(slot);
    switch (step.action) {
      case PlanAction::evict:
        // Passed over while out of step: only if it is not wanted soon.
        if (on_device(residency) && view.evictable(slot) &&
            (step.op == here || use.operators_until(slot, view) > window_))
          evict(slot, view, actions);
        break;
      case PlanAction::copy_out:
        if (on_device(residency)) actions.copy_out(slot);
        break;
      case PlanAction::prefetch:
        if (away(residency) && !actions.prefetch(slot)) late_.push_back(slot);
        break;
    }
  }
  std::erase_if(late_, [&](Slot slot) { return !away(view.residency(slot)) || actions.prefetch(slot); });
}

void Follower::look_ahead(const Alignment& at, const View& view, Actions& actions) {
  const LearnedIteration& it = *at.sequence();
  ahead_ = std::max(ahead_, at.next());
  const auto end = std::min<std::uint32_t>(it.op_count(), at.next() + window_);
  for (; ahead_ < end; ++ahead_) {
    for (const Operand& operand : it.operands_of(ahead_)) {
      const Slot slot = at.slots()[operand.object];
      if (slot == kNoSlot || view.residency(slot) != Residency::host) continue;
      if (!actions.prefetch(slot)) return;  // again before the next operator
    }
  }
}

void Follower::evict(Slot slot, const View& view, Actions& actions) {
  actions.evict(slot);
  leaving_.push_back(remember(slot, view));
}

std::vector<Slot> Follower::leaving(const View& view) {
  std::erase_if(leaving_, [&](const Remembered& r) {
    return !r.alive(view) || view.residency(r.slot) != Residency::outgoing;
  });
  std::vector<Slot> slots;
  for (const Remembered& r : leaving_) slots.push_back(r.slot);
  return slots;
}

}  // namespace swaplab::adaptive
