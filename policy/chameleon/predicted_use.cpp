#include "policy/chameleon/predicted_use.hpp"

#include <algorithm>

namespace swaplab::adaptive {

std::int64_t PredictedUse::operators_until(Slot slot, const View& view) const {
  const std::uint32_t object = at.object_of(slot);
  // What was used long ago will not be used soon: forward passes leave in the order in which backward passes
  // want them last.
  if (object == kNever) return window + view.position() - view.last_use(slot);
  const LearnedIteration& it = *at.sequence();
  const auto uses = it.uses_of(object);
  const auto next = std::lower_bound(uses.begin(), uses.end(), at.here());
  if (next != uses.end()) return std::int64_t{*next} - at.here();
  if (!it.persistent(object) || uses.empty()) return kNoUse;
  return std::int64_t{at.left()} + uses.front();
}

std::int64_t PredictedUse::time_until(Slot slot, const View& view) const {
  if (at.object_of(slot) == kNever) {
    const bool recent = at.sequence() == nullptr || view.last_use(slot) >= first_op;
    return recent ? view.machine().host.op_dispatch.value * (1 + operators_until(slot, view)) : -1;
  }
  const std::int64_t distance = operators_until(slot, view);
  if (distance >= kNoUse) return -1;
  const auto count = static_cast<std::int64_t>(clock->size()) - 1;
  const std::int64_t here = at.here(), end = here + distance + 1;
  const auto time = [&](std::int64_t op) { return (*clock)[static_cast<std::size_t>(std::min(op, count))]; };
  return std::max<std::int64_t>(1,
                                (end <= count ? time(end) : clock->back() + time(end - count)) - time(here));
}

}  // namespace swaplab::adaptive
