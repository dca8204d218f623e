// Repeating one run of a results folder with its log kept.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "experiments/prepared_runs.hpp"
#include "experiments/sweep/sweep_plan.hpp"
#include "sim/schedule.hpp"

namespace swaplab {

struct Rerun {
  std::unique_ptr<const PreparedRuns> prepared;
  StudyRow row;
  Schedule schedule;  // recorded for a timeline
  std::string title;  // trace, policy and budget
};

// The plan of a results folder. Throws Error(input) when its inputs have changed since.
SweepPlan plan_from(const std::string& folder);
// Throws Error(usage) for a run that the folder does not have, and as plan_from.
Rerun rerun_from(const std::string& folder, std::size_t index);

}  // namespace swaplab
