// Makes a plan fit the caching allocator, where free bytes may lie in pieces that nobody can use.
//
// The executor's allocator decides in program order and never by time (under ReleaseRule::stream_wait),
// so a walk over the program with the same allocator knows where every block will lie. Where a request
// would find no room, the walk evicts the cheapest storages that lie side by side and whose place is
// large enough, writes them back early, and brings them back before their next use.
#pragma once

#include <compare>
#include <cstdint>
#include <span>

#include "policy/foresight_select.hpp"
#include "sim/allocator/config.hpp"

namespace swaplab::foresight {

struct LayoutRules {
  // Off: the plan is followed, and repaired where it does not fit. On: nothing leaves before a request finds
  // no place; then a sweep through the memory clears one, and the plan only says which storages are welcome
  // to leave. Costs little more than the bytes that must move, where large places are needed.
  bool sweep = false;
  // Optimizer states leave first and parameters last. A state is written once a step, before the last states
  // are back for it, so its copy out runs beside copies in; a parameter is written last.
  bool states_first = false;
  // How much more a storage costs in a sweep when its next use is `near` times a 128th of the budget's copy
  // time away, growing with the fourth power of the nearness; and when the plan would keep it. 0: nothing.
  std::int64_t near = 2, stray = 1;
  // Thousandths of the budget that copies back leave free, so that requests until their use still fit.
  std::int64_t reserve = 40;
  auto operator<=>(const LayoutRules&) const = default;
};

struct LayoutResult {
  Plan plan;
  std::uint32_t repairs = 0;     // evictions that the plan did not foresee, or all of a sweep's
  std::uint32_t recoveries = 0;  // requests that made the allocator release its cache
  std::uint32_t failures = 0;    // requests that nothing could serve; the plan is unchanged from there on
};

// `capacity`: the device bytes that segments may take.
// `op_end`: about when each operator ends, ns.
LayoutResult fit_to_allocator(const Problem& problem, const Plan& plan, std::span<const std::int64_t> op_end,
                              const LayoutRules& rules, const AllocatorConfig& config, Bytes capacity);

}  // namespace swaplab::foresight
