// What it costs that a storage leaves, where nothing but the allocator's places decides who must.
#pragma once

#include <compare>
#include <cstdint>

#include "sim/machine.hpp"
#include "trace/model.hpp"
#include "trace/units.hpp"

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

}  // namespace swaplab::foresight
