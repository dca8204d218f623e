// A comparison: traces x policies x budgets on one machine, with the bound beside each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "policy/registry.hpp"
#include "sim/bounds/swap_path.hpp"
#include "sim/machine.hpp"
#include "sim/run.hpp"

namespace swaplab {

// "0.4x" of the trace's own peak, "16GiB", or "inf".
struct BudgetSpec {
  std::string text;
  std::int64_t numerator = 0, denominator = 0;  // fraction of the peak when denominator > 0
  Bytes absolute{0};
  Bytes resolve(Bytes peak) const;
};
// "0.4x,0.6x,16GiB". Throws Error(usage).
std::vector<BudgetSpec> parse_budgets(const std::string& text);

struct StudyRequest {
  std::vector<std::string> traces;
  std::vector<PolicySpec> policies;
  std::vector<BudgetSpec> budgets;
  Machine machine;
  std::optional<TimeSource> times;  // absent: the trace's when recorded on a GPU, else the model's
  std::uint32_t iterations = 0;     // 0: as recorded
  AllocatorKind allocator = AllocatorKind::caching;
  AllocatorConfig allocator_config;
  unsigned jobs = 1;
  std::string schedule_path;                                          // "" = none; needs exactly one run
  std::function<void(std::size_t done, std::size_t total)> progress;  // called under a lock
  std::function<void(const std::string&)> warn;
};

struct StudyTrace {
  std::string path;
  std::uint32_t operators_per_steady_iteration = 0;
  TimeSource times = TimeSource::trace;
  Bytes peak_bytes, largest_working_set;
  std::uint32_t steady_first = 0, steady_end = 0;
  Nanos unconstrained;  // mean steady iteration without a budget
  std::string bound_refusal;
};

struct StudyBound {
  bool feasible = false;
  Nanos steady_total, compute;
  std::vector<std::string> chain;
};

struct StudyRow {
  std::size_t trace;
  std::string policy;  // resolved text
  std::string label;   // as typed
  std::string budget_text;
  Bytes budget;
  RunResult result;
  std::optional<StudyBound> bound;
  Nanos steady_total{0};  // sum over steady iterations; 0 unless ok
};

struct Study {
  std::vector<StudyTrace> traces;
  std::vector<StudyRow> rows;  // trace-major, then budget, then policy, as requested
};

// Rows do not depend on `jobs`. Throws Error(usage, input, output, invariant).
Study run_study(const StudyRequest& request);

}  // namespace swaplab
