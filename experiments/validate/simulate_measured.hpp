// The same runs as measured, simulated on a machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/validate/measured_runs.hpp"
#include "sim/machine.hpp"

namespace swaplab {

struct SimulatedRun {
  RunRecord record;
  std::vector<Nanos> iterations;  // all of them; empty for runs read from a results file
};

// What the machine looks like to a replay with these scales, in simulated bytes and trace times: a copy of n
// bytes moves n / divisor real ones (unless copies were stretched to the profile's time), and calls take
// their real time over the scale.
Machine as_replayed(const Machine& machine, std::int64_t bytes_divisor, Ppm time_scale,
                    bool copies_stretched = false);

// One run per measured run, in order. `machine`: name or file; "" = what each measured run names. Factors
// that a line does not have take the sweep's defaults. A run that cannot be made has status "error".
// Throws Error(input) for a machine that cannot be read.
std::vector<SimulatedRun> simulate_measured(const std::vector<MeasuredRun>& runs, const std::string& machine,
                                            const std::function<void(const std::string&)>& warn);

}  // namespace swaplab
