// A comparison on traces that need not fit in memory.
#pragma once

#include "experiments/study.hpp"

namespace swaplab {

// As run_study, window by window (sim/program_windows.hpp). No bounds: StudyTrace::bound_refusal says so.
// Throws Error(usage) for what would need the whole trace at once, besides what run_study throws.
Study run_windowed_study(const StudyRequest& request);

}  // namespace swaplab
