// What wrong bytes mean: whose they are, who read them, and which decisions put them there.
#pragma once

#include "gpu_validate/replay.hpp"

namespace swaplab {

// After RealDevice::finish(); `schedule` holds the entries of the run.
Integrity check_integrity(const Program& program, const Schedule& schedule, const RealDevice& device,
                          Accelerator& accelerator);

}  // namespace swaplab
