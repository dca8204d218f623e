// A comparison: traces x policies x budgets on one machine, with the bound beside each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/prepared_runs.hpp"

namespace swaplab {

struct StudyRequest {
  std::vector<std::string> traces;
  std::vector<PolicySpec> policies;
  std::vector<BudgetSpec> budgets;
  Machine machine;
  std::optional<TimeSource> times;  // absent: the trace's when recorded on a GPU, else the model's
  std::uint32_t iterations = 0;     // 0: as recorded
  AllocatorKind allocator = AllocatorKind::caching;
  AllocatorConfig allocator_config;
  StitchingConfig stitching;
  unsigned jobs = 1;
  bool bounded_memory =
      false;                  // replay .swt files window by window: no bound, no policy that needs the future
  std::string schedule_path;  // "" = none; needs exactly one run
  std::function<void(std::size_t done, std::size_t total)> progress;  // called under a lock
  std::function<void(std::uint64_t done, std::uint64_t total)>
      operators;  // the same of operators, bounded_memory
  std::function<void(const std::string&)> warn;
};

struct StudyBudget {
  std::string text;
  Bytes budget;
  std::optional<StudyBound> bound;  // absent where the bound does not apply (StudyTrace::bound_refusal)
};

struct Study {
  std::vector<StudyTrace> traces;
  std::vector<StudyBudget> budgets;  // trace-major, as requested
  std::vector<StudyRow> rows;        // trace-major, then budget, then policy, as requested
};

// Rows do not depend on `jobs`. No policy at all is fine: the bounds are there. Throws Error(usage, input,
// output, invariant).
Study run_study(const StudyRequest& request);

}  // namespace swaplab
