// Synthetic eager traces: a training program in terms of PyTorch's operators, run without data.
#pragma once

#include <cstdint>

#include "trace/synth/config.hpp"
#include "trace/synth/sink.hpp"

namespace swaplab::synth {

// What the program holds besides activations, in bytes on this rank, after the first step.
struct ModelState {
  std::int64_t parameters = 0;  // elements
  Bytes parameter_bytes, gradient_bytes, optimizer_bytes;
};

// Runs the program into `sink`. Deterministic: equal configurations give equal calls. Throws Error(input) for
// configurations that check_workload refuses.
void run_workload(const WorkloadConfig& config, OperatorSink& sink);

// The whole trace in memory, header included.
Trace synthesize(const WorkloadConfig& config);

}  // namespace swaplab::synth
