#include "policy/chameleon/victims.hpp"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "policy/chameleon/ahead.hpp"
#include "policy/foresight_places.hpp"
#include "sim/memory_fork.hpp"

namespace swaplab::adaptive {
namespace {

std::int64_t cost_of_leaving(Slot slot, std::int64_t near, const PredictedUse& use, const View& view) {
  if (!view.evictable(slot)) return -1;
  const Bytes bytes{foresight::rounded(view.size(slot), Bytes{512})};
  return foresight::sweep_cost(
      {bytes, view.storage_class(slot), view.host_copy_valid(slot), false, use.time_until(slot, view)},
      kUnplanned, view.budget(), near);
}

// The request that room is short for: what the operator about to be issued creates or reads next.
Bytes request(Bytes shortfall, const View& view) {
  const auto operands = view.operands(view.position());
  for (const Residency wanted : {Residency::absent, Residency::host}) {
    for (const Access& access : operands) {
      if (view.residency(access.slot) == wanted && view.size(access.slot) >= shortfall)
        return view.size(access.slot);
    }
  }
  return shortfall;
}

}  // namespace

void evict_farthest(Bytes shortfall, const PredictedUse& use, const View& view, const Evict& evict) {
  const auto send_away = [&](std::int64_t soonest, Bytes smallest) {
    if (shortfall <= Bytes{0}) return;
    std::vector<std::pair<std::int64_t, Slot>> candidates;
    for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) {
      if (!view.evictable(s) || view.size(s) < smallest) continue;
      const std::int64_t distance = use.operators_until(s, view);
      if (distance >= soonest) candidates.emplace_back(distance, s);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [distance, s] : candidates) {
      if (shortfall <= Bytes{0}) return;
      shortfall -= view.size(s);
      evict(s);
    }
  };
  const Bytes large = shortfall / 64;
  send_away(use.window, large);
  send_away(8, Bytes{4096});
  send_away(0, Bytes{1});
}

bool clear_a_place(Bytes shortfall, const PredictedUse& use, const View& view, const Evict& evict) {
  const std::shared_ptr<MemoryFork> memory = view.fork_memory();
  const auto& allocator = memory->allocator;
  std::unordered_map<std::uint64_t, Slot> by_address;
  for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) {
    if (view.block(s) != kNoBlock) by_address.emplace(allocator.block_address(view.block(s)), s);
  }
  const std::int64_t near = foresight::near_time(kUnplanned, view.budget(), view.machine());
  const foresight::TenantAt tenants = [&](std::uint64_t address) {
    const auto found = by_address.find(address);
    if (found == by_address.end()) return foresight::Tenant{kNever, -1};
    return foresight::Tenant{index(found->second), cost_of_leaving(found->second, near, use, view)};
  };
  const auto bytes = static_cast<std::int64_t>(
      allocator.config().round_size(static_cast<std::uint64_t>(request(shortfall, view).value)));
  const auto segments = allocator.snapshot();
  auto victims =
      foresight::cheapest_place(segments, {bytes, bytes > static_cast<std::int64_t>(kSmallSize), 0}, tenants);
  if (victims.empty()) {
    const std::int64_t missing =
        static_cast<std::int64_t>(memory->device.used()) - view.budget().value +
        static_cast<std::int64_t>(allocator.config().growth(static_cast<std::uint64_t>(bytes)));
    victims = foresight::cheapest_segments(segments, missing, tenants);
  }
  for (const std::uint32_t s : victims) evict(Slot{s});
  return !victims.empty();
}

}  // namespace swaplab::adaptive
