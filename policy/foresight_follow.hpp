// Plans on the executor: what they really take, and what happens where they do not help.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/allocator/config.hpp"
#include "sim/machine.hpp"
#include "sim/policy_api.hpp"
#include "sim/program.hpp"

namespace swaplab::foresight {

// Steady iterations' time under `plan` with the caching allocator; nothing when the run does not end well.
std::optional<Nanos> steady_time(const Program& program, const Machine& machine, const Plan& plan,
                                 Bytes budget, const AllocatorConfig& allocator);

// Evicts at least `shortfall` bytes where the plan does not help: farthest next use first, but where
// there are bytes enough and only in pieces, one storage whose place is large enough.
void evict_farthest(Bytes shortfall, const View& view, Actions& actions);

}  // namespace swaplab::foresight
