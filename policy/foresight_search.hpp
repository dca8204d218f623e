// The planner: tries rules and single decisions against the model and keeps the best plan.
#pragma once

#include <cstdint>

#include "policy/foresight_model.hpp"
#include "sim/allocator/config.hpp"
#include "sim/machine.hpp"
#include "sim/policy_api.hpp"
#include "sim/program.hpp"

namespace swaplab::foresight {

struct SearchOptions {
  Bytes budget;  // of the device
  // Null: bytes only count (ideal allocator). Else plans are made to fit this allocator.
  const AllocatorConfig* allocator = nullptr;
  std::int64_t margin = -1;  // thousandths of the budget left unplanned with it; -1: what turns out best
  std::int64_t effort = 40;  // millions of accesses that the search may replay
};

struct SearchResult {
  Plan plan;
  std::uint32_t hopeless = 0;     // operators for which the plan cannot make enough room
  std::uint64_t evaluations = 0;  // plans that were tried
  Nanos expected, first_guess;    // steady iterations' time by the model: of the plan, of plain next use
  std::int64_t margin = 0;        // thousandths, as chosen
  std::uint32_t repairs = 0;      // requests that needed evictions to make one place large enough
};

// Deterministic: the effort is counted in work, not in time.
SearchResult search_plan(const Program& program, const Machine& machine, const Placement& placement,
                         const SearchOptions& options);

}  // namespace swaplab::foresight
