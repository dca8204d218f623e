// Runs planned runs on threads of this process. Traces and programs are prepared once and shared.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/prepared_runs.hpp"
#include "experiments/sweep/run_record.hpp"
#include "experiments/sweep/sweep_plan.hpp"

namespace swaplab {

// Indices into plan.runs, all of one group.
using WorkUnit = std::vector<std::size_t>;

struct EngineOptions {
  unsigned jobs = 1;
  std::string schedule_folder;                     // "" = none are kept
  std::function<void(RunRecord record)> finished;  // from any worker, one call at a time
};

// Takes units from `next_unit` (one call at a time) until it has none left. Runs whose trace cannot be
// used end as status "error". With limits in the configuration every run has a process of its own, so
// that nothing it does can harm the sweep. Throws what `finished` or `next_unit` throw.
void run_units(const SweepPlan& plan, const std::function<std::optional<WorkUnit>()>& next_unit,
               const EngineOptions& options);

// Units of the plan without the runs that `done` marks: one per group, in plan order, none longer
// than `longest` runs.
std::vector<WorkUnit> units_of(const SweepPlan& plan, const std::vector<bool>& done, std::size_t longest);

// The program of one run, made ready alone.
std::unique_ptr<const PreparedRuns> prepare_run(const SweepPlan& plan, const PlannedRun& run);

struct RunLimits {
  Nanos time{0};    // wall time; 0: none
  Bytes memory{0};  // host memory beyond what the process already has; 0: none
};
// Makes `work` in a child process and returns its text. On failure `text` is empty and `status` is
// timeout, memory_limit or crashed, with an explanation.
struct LimitedOutcome {
  std::string text, status, explanation;
};
LimitedOutcome run_limited(const RunLimits& limits, const std::function<std::string()>& work);

}  // namespace swaplab
