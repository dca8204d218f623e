// One trace x policy x budget, replayed several times, and its line of a results file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/prepared_runs.hpp"
#include "experiments/sweep/run_record.hpp"
#include "gpu_validate/replay.hpp"

namespace swaplab {

struct MeasuredCell {
  StudyTrace trace;   // of which steady iterations and peak are filled in
  std::string label;  // policy as typed
  Factors factors;
  std::string key;
  std::string policy_resolved;
  bool is_none = false;
  Bytes budget;
  std::int64_t bytes_divisor = 1;
  Ppm time_scale = kUnchanged;
  std::string memory;
  bool copies_stretched = false;  // copies took at least the profile's time x time_scale
  RunResult simulated;
  Nanos simulated_total{0};  // of the steady iterations

  struct Repeat {
    RunResult result;
    Integrity integrity;
    std::string difference;  // from the simulator's decisions; "" when there is none
    Bytes device_peak{0};
  };
  std::vector<Repeat> repeats;

  // The repeat whose steady iterations took the median time; for an even number the faster of the two. The
  // first one when none is ok.
  const Repeat& median() const;
};

// A line as `swaplab sweep` writes it (schema swaplab/result@1, times of the median repeat), and:
//   "measured": true, "device": {kind, name, driver, runtime}, "bytes_divisor", "time_scale_ppm", "memory",
//   "iterations_ns": [[every iteration of a repeat] ...], "steady_iterations": [first, end),
//   "simulated_steady_total_ns", "decisions_differ": "" or the first difference,
//   "integrity": {operands, swap_ins, words, wrong_words, findings: [...]} over all repeats.
std::string measured_line(const MeasuredCell& cell, std::size_t index, const AcceleratorInfo& device);

}  // namespace swaplab
