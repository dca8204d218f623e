// Replays as tables on standard output.
#pragma once

#include "gpu_validate/accelerator.hpp"
#include "gpu_validate/program/replay_request.hpp"
#include "gpu_validate/program/replay_run.hpp"

namespace swaplab {

// One table for each trace, and below it what was wrong, differed or failed.
void print_replays(const ReplayRun& run, const ReplayRequest& request, const AcceleratorInfo& device);

}  // namespace swaplab
