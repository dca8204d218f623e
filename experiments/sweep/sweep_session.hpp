// A whole sweep: folder, resume, execution, merge.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/sweep/results_store.hpp"
#include "experiments/sweep/sweep_plan.hpp"

namespace swaplab {

struct SessionOptions {
  std::string output = "results";  // folder that holds results folders
  unsigned jobs = 1;
  bool resume = false;
  bool retry_failed = false;  // repeat runs that ended as error, timeout, memory_limit or crashed
  bool any_build = false;     // resume what another build of the program began
  std::vector<std::string> arguments, overrides;  // for the manifest
  // Runs that are on disk, of all; called from one thread at a time.
  std::function<void(std::size_t done, std::size_t total)> progress;
};

struct SessionResult {
  std::string folder;
  std::vector<RunRecord> records;
  std::size_t found = 0;  // runs that were finished before
  std::string result_sha256;
};

// Local execution. Throws Error(usage) when the folder has results and `resume` is off.
SessionResult run_local_sweep(const SweepPlan& plan, const SessionOptions& options);

// ---- shared with the Slurm executor

// Makes or opens the folder; the records that count as finished.
std::vector<RunRecord> open_session(const SweepPlan& plan, const SessionOptions& options,
                                    std::string& folder);
// Marks of the plan's runs that are among `records`.
std::vector<bool> done_marks(const SweepPlan& plan, const std::vector<RunRecord>& records);
SessionResult finish_session(const SweepPlan& plan, const std::string& folder, std::size_t found);

}  // namespace swaplab
