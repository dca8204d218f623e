// Makes a plan fit the caching allocator, where free bytes may lie in pieces that nobody can use.
//
// The executor's allocator decides in program order and never by time (under ReleaseRule::stream_wait),
// so a walk over the program with the same allocator knows where every block will lie. Where a request
// would find no room, the walk evicts the cheapest storages that lie side by side and whose place is
// large enough, writes them back early, and brings them back before their next use.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "policy/foresight_lane.hpp"
#include "policy/foresight_select.hpp"
#include "sim/allocator/config.hpp"
#include "sim/memory_fork.hpp"

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

// When the lanes and the latest use and copies of each slot end, ns.
struct LayoutClock {
  explicit LayoutClock(const Interference& interference = {})
      : out_lane(interference.d2h_during_h2d), in_lane(interference.h2d_during_d2h) {}
  struct SlotTimes {
    std::int64_t used = 0, written = 0, copied_in = 0, copied_out = 0;
  };
  std::int64_t host = 0;
  std::vector<std::int64_t> streams;
  Lane out_lane, in_lane;
  std::vector<SlotTimes> slots;
};

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

// A storage that may leave in a sweep.
struct SweepItem {
  Bytes bytes;
  StorageClass cls;
  bool clean;             // leaving takes no copy
  bool planned;           // a plan would let it leave here
  std::int64_t distance;  // ns until its next use; < 0: there is none
};
// What it costs that it leaves. Nearly the same for everything that is not needed soon, so that one sweep
// goes on where the last one ended: which of them leaves matters less than that large places stay whole.
// `near`: ns before its next use that a storage counts as near.
std::int64_t sweep_cost(const SweepItem& item, const LayoutRules& rules, Bytes capacity, std::int64_t near);
// `near` for these rules.
std::int64_t near_time(const LayoutRules& rules, Bytes capacity, const Machine& machine);

// `start` null: at the start of a run, in an empty allocator.
// `capacity`: the device bytes that segments may take.
// `op_end`: about when each operator ends, ns.
LayoutResult fit_to_allocator(const Problem& problem, const Plan& plan, std::span<const std::int64_t> op_end,
                              const LayoutRules& rules, const AllocatorConfig& config, Bytes capacity,
                              const LiveStart* start = nullptr);

}  // namespace swaplab::foresight
