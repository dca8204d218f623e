// The log of everything a run did, in the order in which the host issued it. The independent
// checker re-reads it; nothing in here is derived.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/metrics.hpp"
#include "trace/ids.hpp"
#include "trace/units.hpp"

namespace swaplab {

enum class ScheduleKind : std::uint8_t {
  op,        // index: operator; start/end of its kernel (start == end without kernel)
  copy_out,  // index: storage; D2H from start to end
  copy_in,   // index: storage; H2D from start to end
  acquire,   // index: storage; device bytes taken (start = host time)
  release,   // index: storage; device bytes given up (start = host time)
};

struct ScheduleEntry {
  ScheduleKind kind;
  std::uint16_t stream = 0;  // compute stream of an operator
  std::uint32_t index = 0;   // operator or storage of the (extended) trace
  Bytes bytes{0};            // of copies, acquire and release
  Nanos start{0}, end{0};
};

// A time when no kernel ran, and why. `entry`: the operator that ended it, kNever without one.
struct StallSlice {
  Stall stall;
  Nanos start{0}, end{0};
  std::uint32_t entry = 0;
};

struct Schedule {
  // Header: enough to repeat and to check the run.
  std::string trace_path;
  std::uint64_t trace_hash = 0;  // of the extended trace
  std::uint32_t iterations = 0;  // as passed to extend_iterations; 0 = as recorded
  TimeSource times = TimeSource::trace;
  std::string machine_json;
  std::string policy, allocator;
  Bytes budget;
  // Where storages were at the start. Those on the device hold their bytes from then on; an acquire
  // entry before their first use only repeats that.
  std::vector<StorageId> initial_device, initial_host;
  std::vector<ScheduleEntry> entries;
  // What the run claims; the checker recomputes it.
  RunResult result;
  // For timelines, when asked for; not part of schedule files: host time at which each entry was issued,
  // and the stalls, whose times add up to those of `result`.
  bool keep_timeline = false;
  std::vector<Nanos> issued;
  std::vector<StallSlice> stalls;
};

}  // namespace swaplab
