// An independent, slow, simple check of a schedule against its trace. Shares no engine code: it
// knows the trace, the cost model, the machine's link tables and the schedule, nothing else.
#pragma once

#include <string>
#include <vector>

#include "sim/schedule.hpp"
#include "trace/model.hpp"

namespace swaplab {

struct CheckFinding {
  std::uint64_t entry;  // index into Schedule::entries; entries.size() for whole-run findings
  std::string message;  // one sentence naming rule, storage or operator, and times
};

struct ScheduleCheck {
  std::vector<CheckFinding> findings;  // empty = accepted; at most 100 are kept
  std::uint64_t finding_count = 0;
  std::uint64_t rules_checked = 0;  // single comparisons made
  Bytes peak_occupied;              // recomputed physical peak
};

// `trace` is the extended trace that the schedule names (trace_hash is compared).
ScheduleCheck check_schedule(const Schedule& schedule, const Trace& trace);

}  // namespace swaplab
