// How many bytes a plan leaves free at each operator, were places no matter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/foresight_select.hpp"

namespace swaplab::foresight {

// Per operator, bytes of `capacity` that nothing occupies while it runs; negative where the plan does not
// fit.
std::vector<std::int64_t> projected_room(const Problem& problem, std::span<const PlanStep> steps,
                                         Bytes capacity);

}  // namespace swaplab::foresight
