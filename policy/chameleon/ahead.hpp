// Plans from a running state: what the predicted operators will need, and where the bytes are now.
//
// A plan that was made from a state that the run is not in goes wrong at its first difference, and with the
// caching allocator the places of blocks are part of the state. So `adaptive` plans again when an iteration
// begins, or turns out to be another one: from the residency of every live storage and a copy of the
// allocator, over the rest of the running sequence and the one that should follow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/chameleon/ahead_program.hpp"
#include "policy/chameleon/learned.hpp"
#include "policy/chameleon/tuning.hpp"
#include "policy/foresight_layout.hpp"
#include "sim/policy_api.hpp"

namespace swaplab::adaptive {

// How a victim is chosen where no plan helps; a part of what plan_ahead() expects until its plan is ready.
inline constexpr foresight::LayoutRules kUnplanned{
    .sweep = true, .states_first = true, .near = 2, .stray = 0, .reserve = 0};

struct AheadPlan {
  std::vector<AheadStep> steps;  // ascending lap, op; from the hold on
  Tuning tuning;                 // of the plan chosen
  std::uint64_t work = 0;        // operators and accesses that the planner replayed
  Nanos expected{0};             // of the laps planned
};

struct AheadOptions {
  Bytes budget;
  std::int64_t trials = 1;  // plans compared
  std::uint64_t round = 0;  // which variations are tried
  bool first = false;       // of its sequence: three ways that are far apart are compared
  // Operators that are left as they are: a plan in force, or the time until the new one can be ready.
  std::uint32_t hold = 0;
  bool in_force = false;  // the former; where only bytes count, plans begin at once otherwise
};

// Plans the laps but the last, which only tells what is used next. `slot_of`: by object of the first lap, the
// storage that plays it, kNoSlot when not known. `leaving`: storages on their way out, oldest first. `held`:
// steps of the plan in force, of the first lap.
AheadPlan plan_ahead(std::span<const Lap> laps, std::span<const Slot> slot_of, std::span<const Slot> leaving,
                     std::span<const Step> held, const Tuning& tuning, const AheadOptions& options,
                     const View& view);

}  // namespace swaplab::adaptive
