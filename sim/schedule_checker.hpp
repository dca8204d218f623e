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

// Rules: operators in order, each once, on their stream, for their device time; copies first-in-
// first-out per direction for the link's time; every access finds the last written version on the
// device; copies move complete versions of live storages; device bytes are taken and given up in turn
// and fit the budget, in program order and physically; the claimed figures follow from the entries.
// `trace` is the extended trace that the schedule names; with another one that is the only finding.
// Throws Error(input) when the schedule's machine text or the trace's cost figures cannot be used.
ScheduleCheck check_schedule(const Schedule& schedule, const Trace& trace);

}  // namespace swaplab
