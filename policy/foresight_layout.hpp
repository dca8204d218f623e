// Makes a plan fit the caching allocator, where free bytes may lie in pieces that nobody can use.
//
// The executor's allocator decides in program order and never by time (under ReleaseRule::stream_wait),
// so a walk over the program with the same allocator knows where every block will lie. Where a request
// would find no room, the walk evicts the cheapest storages that lie side by side and whose place is
// large enough, writes them back early, and brings them back before their next use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "policy/foresight_clock.hpp"
#include "policy/foresight_select.hpp"
#include "policy/foresight_sweep.hpp"
#include "sim/allocator/config.hpp"
#include "sim/memory_fork.hpp"

namespace swaplab::foresight {

// Storages in a running allocator.
struct LiveState {
  std::shared_ptr<const MemoryFork> memory;
  Placement placement;                  // those on their way out are on_host
  std::vector<BlockId> block;           // per slot; kNoBlock: not on the device
  std::vector<std::uint32_t> outgoing;  // on their way out, oldest first
  std::optional<LayoutClock> clock;     // of the walk that ended here; none: everything is idle
};
// Where a walk begins that is not at the start of a run. The initial slots' placement is the problem's.
struct LiveStart {
  const LiveState& state;
  std::uint32_t end_op;  // the walk ends before this operator
  // What happens if nothing is planned anew: the steps are taken as they are, a sweep helps where they do
  // not, and nothing comes back but by its step or its use.
  bool as_is = false;
};

struct LayoutResult {
  Plan plan;
  std::uint32_t repairs = 0;     // evictions that the plan did not foresee, or all of a sweep's
  std::uint32_t recoveries = 0;  // requests that made the allocator release its cache
  std::uint32_t failures = 0;    // requests that nothing could serve; the plan is unchanged from there on
  LiveState end;                 // of a walk with a LiveStart, per slot: what is then
  std::int64_t time = 0;         // ns that it takes, about: each place waits for those who had it last
};

// `start` null: at the start of a run, in an empty allocator.
// `capacity`: the device bytes that segments may take.
// `op_end`: about when each operator ends, ns.
LayoutResult fit_to_allocator(const Problem& problem, const Plan& plan, std::span<const std::int64_t> op_end,
                              const LayoutRules& rules, const AllocatorConfig& config, Bytes capacity,
                              const LiveStart* start = nullptr);

}  // namespace swaplab::foresight
