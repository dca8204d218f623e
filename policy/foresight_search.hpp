// The planner: tries rules and single decisions against the model and keeps the best plan.
#pragma once

#include <cstdint>

#include "policy/foresight_model.hpp"
#include "sim/machine.hpp"
#include "sim/policy_api.hpp"
#include "sim/program.hpp"

namespace swaplab::foresight {

struct SearchOptions {
  Bytes budget;              // what the plan may use
  Bytes granularity{512};    // sizes count rounded up to it
  std::int64_t effort = 40;  // millions of accesses that the search may replay
};

struct SearchResult {
  Plan plan;
  std::uint32_t hopeless = 0;     // operators for which the plan cannot make enough room
  std::uint64_t evaluations = 0;  // plans that were tried
  Nanos expected, first_guess;    // steady iterations' time by the model: of the plan, of plain next use
};

// Deterministic: the effort is counted in work, not in time.
SearchResult search_plan(const Program& program, const Machine& machine, const Placement& placement,
                         const SearchOptions& options);

}  // namespace swaplab::foresight
