#include "policy/foresight_sweep.hpp"

#include <algorithm>

namespace swaplab::foresight {
namespace {

// shares * (reach / distance)^4, in steps that neither overflow nor lose what counts.
std::int64_t nearness(std::int64_t shares, std::int64_t distance, std::int64_t reach) {
  const std::int64_t ratio = std::min<std::int64_t>((reach << 8) / distance, 64 << 8);
  return ((shares * ratio >> 8) * ratio >> 8) * ratio / 256 * ratio / 256;
}

}  // namespace

std::int64_t near_time(const LayoutRules& rules, Bytes capacity, const Machine& machine) {
  return machine.link(Direction::host_to_device).time(capacity / 128).value * rules.near;
}

std::int64_t sweep_cost(const SweepItem& item, const LayoutRules& rules, Bytes capacity, std::int64_t near) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::int64_t shares = std::max<std::int64_t>(
      (item.clean ? 1 : 2) * item.bytes.value / std::max<std::int64_t>(1, capacity.value >> 24),
      1);                                            // of 2^-24 of the budget
  if (item.distance < 0) return 2 + (shares >> 10);  // a copy for nothing, but none back
  if (rules.states_first) {
    if (item.cls == StorageClass::optimizer_state && item.distance > near) return 0;
    if (item.cls == StorageClass::parameter) return 12 + nearness(shares, item.distance, near);
  }
  const std::int64_t stray = item.planned ? 0 : shares * rules.stray >> 16;
  return 2 + stray + std::min(nearness(shares, item.distance, near), kMost);
}

}  // namespace swaplab::foresight
