// The same sweep as a job array on a Slurm cluster.
//
// The folder is on storage that all nodes share. A generation (one submission) lists the runs that are
// left as units, each assigned to one array task, the largest first to the least loaded. A task works
// through its own units and then takes the largest that nobody has claimed from the others. A claim is a
// file made with O_EXCL. Every task appends to a log of its own; the driver merges them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/sweep/sweep_engine.hpp"
#include "experiments/sweep/sweep_session.hpp"

namespace swaplab {

struct SlurmOptions {
  unsigned shards = 0;               // array tasks; 0: one per 8 units, at most 64
  std::vector<std::string> options;  // passed to sbatch as they are: "--partition=batch"
  bool detach = false;               // return after submission; --resume merges later
};

// Submits, waits, merges. Throws Error(usage) without Slurm or while an earlier submission still runs,
// Error(output) when tasks ended without finishing their runs.
SessionResult run_slurm_sweep(const SweepPlan& plan, const SessionOptions& options,
                              const SlurmOptions& slurm);

// One array task.
void run_slurm_task(const std::string& folder, unsigned generation, unsigned task, unsigned jobs);

// ---- for tests

struct ShardedUnit {
  WorkUnit runs;
  unsigned task = 0;
  std::uint64_t size = 0;  // estimated work
};
// Longest processing time first. Sorted by size, largest first.
std::vector<ShardedUnit> assign_units(std::vector<WorkUnit> units, const std::vector<std::uint64_t>& sizes,
                                      unsigned tasks);
// The next unit for `task`: the first of its own that is unclaimed, else the largest unclaimed of the
// others. Claims it in `folder`. Nothing when all are claimed.
std::optional<std::size_t> claim_next(const std::string& folder, const std::vector<ShardedUnit>& units,
                                      unsigned task);

}  // namespace swaplab
