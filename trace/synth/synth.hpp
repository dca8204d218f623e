// Synthetic eager traces: a training program in terms of PyTorch's operators, run without data.
#pragma once

#include <string>

#include "trace/synth/config.hpp"
#include "trace/synth/sink.hpp"

namespace swaplab::synth {

// Runs the program into `sink`. Deterministic: equal configurations give equal calls. Throws Error(input) for
// configurations that check_workload refuses.
void run_workload(const WorkloadConfig& config, OperatorSink& sink);

// The whole trace in memory, header included.
Trace synthesize(const WorkloadConfig& config);

// The same written to `path` (.swt) while it is generated, in bounded memory however long the program is:
// columns grow in temporary files beside `path`. Throws Error(output).
void synthesize_to_swt(const WorkloadConfig& config, const std::string& path);

}  // namespace swaplab::synth
