// The timeline of one run: what the streams, copy engines and the host did, and why compute stood still.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/program.hpp"
#include "sim/schedule.hpp"

namespace swaplab {

struct TimelineTrack {
  std::string name;
  std::string unit;  // counters only: "B"; empty for tracks of slices
};

struct TimelineArgument {
  std::string name;
  std::int64_t number = 0;
  std::string text;  // used when not empty
};

// A slice, an instant (end == start and `instant`), or a counter's new value.
struct TimelineEvent {
  enum class Kind : std::uint8_t { slice, instant, counter };
  Kind kind = Kind::slice;
  std::uint32_t track = 0;
  Nanos start{0}, end{0};
  std::int64_t value = 0;  // counters
  std::string name;
  std::vector<TimelineArgument> arguments;
  // Flows are drawn through the events that share an id, in time order; `ends` closes one.
  std::vector<std::uint64_t> flows, flow_ends;
  bool closes_slice = false;  // an instant at the end of a slice of its track, inside it
};

struct Timeline {
  std::string title;
  std::vector<TimelineTrack> tracks;
  std::vector<TimelineEvent> events;  // by start
};

// Tracks: host decisions, one per compute stream, device-to-host copies, host-to-device copies, stalls;
// counters of device bytes (in program order, at host time) and of bytes that arrived on the host and
// back. Flows lead from a decision to its copy to the stall that waited for it. `schedule` must have been
// recorded with keep_timeline.
Timeline make_timeline(const Program& program, const Schedule& schedule, const std::string& title);

// Live device bytes over time as the counter track says, at most `points` values: of each span the largest.
struct ByteCurve {
  std::vector<std::int64_t> time_ns, bytes;
};
ByteCurve device_byte_curve(const Program& program, const Schedule& schedule, std::size_t points);

// Perfetto's native format: a Trace message of TrackEvent packets
// (https://perfetto.dev/docs/reference/trace-packet-proto).
std::string perfetto_trace(const Timeline& timeline);
// Chrome's JSON trace format (times in us with three decimals, exact to the nanosecond).
std::string chrome_trace_json(const Timeline& timeline);

}  // namespace swaplab
