// Makes a plan fit the caching allocator, where free bytes may lie in pieces that nobody can use.
//
// The executor's allocator decides in program order and never by time (under ReleaseRule::stream_wait),
// so a walk over the program with the same allocator knows where every block will lie. Where a request
// would find no room, the walk evicts the cheapest storages that lie side by side and whose place is
// large enough, writes them back early, and brings them back before their next use.
#pragma once

#include <cstdint>
#include <span>

#include "policy/foresight_select.hpp"
#include "sim/allocator/config.hpp"

namespace swaplab::foresight {

struct LayoutResult {
  Plan plan;
  std::uint32_t repairs = 0;     // evictions that the plan did not foresee
  std::uint32_t recoveries = 0;  // requests that made the allocator release its cache
  std::uint32_t failures = 0;    // requests that nothing could serve; the plan is unchanged from there on
};

// `capacity`: the device bytes that segments may take.
// `op_end`: about when each operator ends, ns.
LayoutResult fit_to_allocator(const Problem& problem, const Plan& plan, std::span<const std::int64_t> op_end,
                              const AllocatorConfig& config, Bytes capacity);

}  // namespace swaplab::foresight
