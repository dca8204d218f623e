// Checks of a whole run, from what the walk over its entries found.
#pragma once

#include "sim/checker/facts.hpp"
#include "sim/checker/findings.hpp"
#include "sim/checker/walk.hpp"
#include "sim/schedule.hpp"

namespace swaplab::checker {

// At no time do the residencies in use need more than the budget. Returns the physical peak.
// A residency is in use from its first kernel or copy to its last; one that holds content from the
// start since time 0, and one that is never released for ever (nobody could take its bytes).
Bytes check_occupancy(const Schedule& schedule, const Facts& facts, const WalkResult& walk,
                      Findings& findings);

// The claimed result against the recomputed one.
void check_result(const Schedule& schedule, const Facts& facts, const WalkResult& walk, Findings& findings);

// A run that claims to be infeasible: nothing ran, and one operator accesses more than the budget.
void check_infeasible(const Schedule& schedule, const Facts& facts, Findings& findings);

}  // namespace swaplab::checker
