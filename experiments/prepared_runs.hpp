// One run = one call: a trace made ready for a machine, then any number of policy x budget runs on it.
// `run` and `sweep` share it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "policy/registry.hpp"
#include "sim/bounds/steady_bound.hpp"
#include "sim/machine.hpp"
#include "sim/run.hpp"
#include "trace/model.hpp"

namespace swaplab {

// "0.4x" of the trace's own peak, "16GiB", or "inf".
struct BudgetSpec {
  std::string text;
  std::int64_t numerator = 0, denominator = 0;  // fraction of the peak when denominator > 0
  Bytes absolute{0};
  Bytes resolve(Bytes peak) const;
  bool same_as(const BudgetSpec& other) const;  // the same bytes on every trace
};
// "0.4x,0.6x,16GiB". Throws Error(usage), also where one is listed twice.
std::vector<BudgetSpec> parse_budgets(const std::string& text);

struct StudyTrace {
  std::string path;
  std::uint32_t operators_per_steady_iteration = 0;
  TimeSource times = TimeSource::trace;
  Bytes peak_bytes, largest_working_set;
  std::uint32_t steady_first = 0, steady_end = 0;
  Nanos unconstrained;        // mean steady iteration without a budget
  Nanos unconstrained_total;  // all iterations without a budget
  std::string bound_refusal;
};

struct StudyBound {
  bool feasible = false;
  Nanos steady_total, compute;
  std::vector<std::string> chain;
};

struct StudyRow {
  std::size_t trace = 0;
  std::string policy;  // resolved text
  std::string label;   // as typed
  std::string budget_text;
  Bytes budget;
  RunResult result;
  std::optional<StudyBound> bound;
  Nanos steady_total{0};  // sum over steady iterations; 0 unless ok
};

// "name:k=v,k=v" as typed.
std::string policy_label(const PolicySpec& spec);

struct RunSettings {
  std::optional<TimeSource> times;  // absent: the trace's when recorded on a GPU, else the model's
  AllocatorKind allocator = AllocatorKind::caching;
  AllocatorConfig allocator_config;
  StitchingConfig stitching;
  bool bounds = true;  // false: no bound is computed
};

// Throws Error(input) for an imported trace without storages, or without the times that `settings` mean.
void refuse_without_swapping(const RunSettings& settings, const Trace& trace, const std::string& path);

// Which times `settings` mean for this trace; a warning when they come from another kind of device, and when
// the trace was imported from a file that does not allow swap studies.
TimeSource choose_times(const RunSettings& settings, const Trace& trace, const std::string& path,
                        const std::string& machine, const std::function<void(const std::string&)>& warn);

// The parts of a run that do not depend on how the trace is read. `p`: its iterations.
StudyTrace describe_trace(std::string path, TimeSource times, Bytes peak_bytes, Bytes largest_working_set,
                          const Program& p, const RunResult& unlimited);
// Of the steady iterations, as far as the run came.
Nanos steady_sum(const StudyTrace& trace, const RunResult& result);
RunOptions run_options(const RunSettings& settings, Bytes budget, Needs needs);
StudyRow start_row(const PolicySpec& policy, const BudgetSpec& budget, Bytes peak);
// After row.result: what `none` would need where it had no room, and the steady total.
void finish_row(const PolicySpec& policy, AllocatorKind allocator, const StudyTrace& trace,
                const RunResult& unlimited, StudyRow& row);

// Immutable after construction but for the memory of bounds; runs may be made from many threads.
class PreparedRuns {
 public:
  // Compiles the trace, runs it without a budget and prepares the bound. `adjust` may change the
  // program (operator times) before. Throws as compile_program.
  PreparedRuns(std::string path, std::shared_ptr<const Trace> trace, Machine machine, RunSettings settings,
               const std::function<void(Program&)>& adjust = {},
               const std::function<void(const std::string&)>& warn = {});

  const StudyTrace& info() const { return info_; }
  const Program& program() const { return program_; }
  const Machine& machine() const { return machine_; }
  const Trace& trace() const { return *trace_; }

  // Nothing when bounds are off or impossible. Computed once per budget.
  std::optional<StudyBound> bound(Bytes budget) const;
  // `schedule` (may be null) is filled with the log of the run and all that its header says, except
  // the number of iterations.
  StudyRow run(const PolicySpec& policy, const BudgetSpec& budget, Schedule* schedule = nullptr) const;
  // The same beside a bound computed before; takes no lock.
  StudyRow run_beside(const PolicySpec& policy, const BudgetSpec& budget, std::optional<StudyBound> bound,
                      Schedule* schedule) const;

 private:
  struct CachedBound {
    std::once_flag once;
    StudyBound bound;
  };

  std::shared_ptr<const Trace> trace_;
  Machine machine_;
  RunSettings settings_;
  StudyTrace info_;
  Program program_;
  RunResult unlimited_;
  std::unique_ptr<const RunBounds> bounds_;
  mutable std::mutex lock_;
  mutable std::map<std::int64_t, std::unique_ptr<CachedBound>> cached_;
};

}  // namespace swaplab
