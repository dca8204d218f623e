// The exact optimum of tiny programs by exhaustive search, to test bounds and planners against.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/bounds/swap_path.hpp"
#include "sim/program.hpp"

namespace swaplab {

// Shortest possible time of the window [first_op, end_op) over all swap-only schedules with whole-buffer
// copies: Dijkstra over every state that any order of copies, drops and operators can reach, in integer time.
//
// Rules of the model, deliberately the most generous ones that the bound covers:
// - Compute streams, each in program order, and one copy engine per direction; a copy of b bytes takes
//   ceil(b / rate), is never broken off, and holds the device bytes from the start of a copy in, until the
//   end of a copy out. While both run, each goes on at its share of the rates' (SwapRates), as do operators
//   beside copies; what ends would lie between two nanoseconds ends at the later one. A copy out may overlap
//   reads of its storage, not its write.
// - An operator starts when all storages it accesses are on the device (what it creates takes its bytes then)
//   and no copy out of something that it writes is running; with several streams, also when the last writers
//   of what it accesses have ended and the readers of what it writes have (a real schedule could spare these
//   the wait by having the content twice, on its way out and in).
// - A copy on the host is valid until the next write and kept for ever. A storage is gone after its last
// access.
// - An access that does not read (kRead absent) needs no earlier content; nor does the first access of a
//   storage that is not initial, whatever its flags.
// - At the window's beginning the last operator before it has just ended: what it wrote is on the device
//   only, what it read is on the device with a copy on the host, everything else that must still exist has a
//   copy on the host and is on the device or not, as suits best. At the run's beginning the same holds for
//   the initial storages. Device bytes are within the budget at all times.
// - With several streams a window is part of a run from the run's beginning: from the instant at which all
// kernels
//   before it have ended, whatever else has run by then, to the end of its last kernel. The same where the
//   host counts (SwapRates::host); it does what HostClock says, as early as synchronizations and the launch
//   queue let it.
//
// nullopt when no schedule exists. Throws Error(usage) for more than 12 storages in use, more than 250
// operators, more than 3 streams (2 where the host counts), a launch latency, rates < 1 or a bad window.
std::optional<Nanos> brute_force_swap_time(const Program& program, std::uint32_t first_op,
                                           std::uint32_t end_op, Bytes budget, SwapRates rates);

}  // namespace swaplab
