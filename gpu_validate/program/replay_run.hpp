// The replays that a request asks for: every trace x budget x policy, each several times, interleaved.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu_validate/hardware.hpp"
#include "gpu_validate/program/measured_cell.hpp"
#include "gpu_validate/program/replay_request.hpp"

namespace swaplab {

class ReplayRun {
 public:
  // Reads and compiles the traces; warnings go to standard error. All three must outlive it. Throws
  // Error(usage, input).
  ReplayRun(const ReplayRequest& request, Hardware& hardware, const std::atomic<bool>& interrupted);

  // False when it was interrupted; the results file then holds what was finished. Throws as replay_program.
  bool run();

  // Cells that were replayed at least once, in the order asked for, as lines of a results file.
  std::vector<std::string> lines() const;
  const std::vector<MeasuredCell>& cells() const { return cells_; }

 private:
  struct PreparedTrace {
    Program program;
    StudyTrace info;
  };

  void prepare(const std::string& path);
  void add_cell(std::size_t trace, const BudgetSpec& budget, const PolicySpec& policy,
                const std::string& input);
  void simulate(std::size_t i, Schedule& schedule);
  void replay_cell(std::size_t i);
  void save() const;

  const ReplayRequest& request_;
  Hardware& hardware_;
  const std::atomic<bool>& interrupted_;
  std::vector<std::unique_ptr<PreparedTrace>> traces_;
  std::vector<MeasuredCell> cells_;
  std::vector<std::pair<std::size_t, const PolicySpec*>> of_;  // trace and policy of each cell
};

}  // namespace swaplab
