// From what lanes did, and when, to busy time and stalls: the same classes and the same rule for measured
// runs as sim/virtual_device.hpp applies while it simulates (the first thing that held a kernel up takes the
// idle time until it was there, the next one what it held up beyond that).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/virtual_device.hpp"

namespace swaplab {

// Something that a lane was given, in order.
struct LaneEvent {
  bool is_wait = false;
  std::uint16_t on = 0;         // waits: lane of the ticket
  Ticket ticket = 0;            // waits: to be complete; work: its own
  std::uint32_t log = kNever;   // entry of the schedule
  std::uint32_t op = kNever;    // operator, of kernels
  std::uint32_t slot = kNever;  // storage, of copies
  Nanos issued;                 // when the host gave it
  Nanos begin, end;             // of work
};

// A time that the host spent for a reason other than issuing.
struct HostTime {
  Nanos begin, end;
  Stall reason;
};

struct LaneHistory {
  std::uint16_t compute_streams = 1;
  std::vector<std::vector<LaneEvent>> lanes;  // compute streams, to the host, to the device
  std::vector<HostTime> host;                 // ascending
  Nanos start{0};                             // nothing before it counts
  std::vector<std::vector<Ticket>> markers;   // per iteration: the last ticket of each compute stream
};

// Cumulative figures at the end of each iteration, in integer ns, counted from `start`: time = busy + stalls
// exactly. `stalls` (may be null) gets every stall. Throws Error(invariant) when a wait names work that is
// not there.
std::vector<VirtualDevice::Snapshot> account_lanes(const LaneHistory& history,
                                                   std::vector<StallSlice>* stalls);

}  // namespace swaplab
