#include "experiments/windowed_study.hpp"

#include <algorithm>
#include <memory>
#include <mutex>

#include "experiments/parallel.hpp"
#include "sim/program_windows.hpp"
#include "trace/error.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

void require_windowed(const StudyRequest& request) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorKind::usage, "--bounded-memory: " + what);
  };
  if (!request.schedule_path.empty()) refuse("a schedule would hold every operator; leave --schedule out");
  if (request.iterations > 0)
    refuse("--iterations continues a trace in memory; write a longer .swt first ('swaplab trace synth')");
  for (const PolicySpec& spec : request.policies) {
    if (has(spec.factory->info().needs, Needs::future)) {
      refuse("policy '" + std::string(spec.factory->info().name) +
             "' plans with the whole trace in memory; 'swaplab policies list' shows which need the future");
    }
  }
}

// Operators done by all replays together.
class Progress {
 public:
  Progress(const StudyRequest& request, std::uint64_t total) : request_(request), total_(total) {}
  std::function<void(std::uint32_t)> part() {
    return [this, before = std::uint32_t{0}](std::uint32_t now) mutable {
      const std::lock_guard guard(lock_);
      done_ += now - before;
      before = now;
      if (request_.operators) request_.operators(done_, total_);
    };
  }

 private:
  const StudyRequest& request_;
  std::mutex lock_;
  std::uint64_t done_ = 0, total_;
};

struct Opened {
  std::shared_ptr<const MappedTrace> trace;
  std::unique_ptr<const ProgramWindows> windows;
  RunResult unlimited;
};

}  // namespace

Study run_windowed_study(const StudyRequest& request) {
  require_windowed(request);
  const std::size_t per_trace = request.budgets.size() * request.policies.size();
  const RunSettings settings{request.times, request.allocator, request.allocator_config, request.stitching,
                             false};
  std::vector<Opened> opened(request.traces.size());
  std::uint64_t operators = 0;
  for (std::size_t t = 0; t < opened.size(); ++t) {
    opened[t].trace = std::make_shared<const MappedTrace>(map_trace(request.traces[t]));
    operators += opened[t].trace->trace.ops.size() * (per_trace + 2);
  }
  Progress progress(request, operators);
  std::mutex lock;
  Study study;
  study.traces.resize(opened.size());
  for_each_parallel(request.jobs, opened.size(), [&](std::size_t t) {
    refuse_without_swapping(settings, opened[t].trace->trace, request.traces[t]);
    const TimeSource times = choose_times(settings, opened[t].trace->trace, request.traces[t],
                                          request.machine.name, [&](const auto& text) {
                                            const std::lock_guard guard(lock);
                                            if (request.warn) request.warn(text);
                                          });
    opened[t].trace->forget_pages();
    opened[t].windows = std::make_unique<const ProgramWindows>(opened[t].trace, request.machine, times,
                                                               ProgramWindow::kWindowOps, progress.part());
    const auto none = find_policy("none").make({});
    opened[t].unlimited = run_windows(*opened[t].windows, request.machine, *none,
                                      run_options(settings, kUnlimitedBudget, Needs::none), progress.part());
    const ProgramTotals& totals = opened[t].windows->totals();
    study.traces[t] = describe_trace(request.traces[t], times, totals.peak_bytes, totals.largest_working_set,
                                     opened[t].windows->open(request.machine).program(), opened[t].unlimited);
    study.traces[t].bound_refusal = "it needs the whole trace in memory";
  });
  for (const Opened& one : opened) {
    for (const BudgetSpec& budget : request.budgets)
      study.budgets.push_back({budget.text, budget.resolve(one.windows->totals().peak_bytes), {}});
  }
  study.rows.resize(opened.size() * per_trace);
  for_each_parallel(request.jobs, study.rows.size(), [&](std::size_t i) {
    const std::size_t t = i / per_trace, b = i % per_trace / request.policies.size();
    const ProgramWindows& windows = *opened[t].windows;
    const PolicySpec& spec = request.policies[i % request.policies.size()];
    StudyRow row = start_row(spec, request.budgets[b], windows.totals().peak_bytes);
    row.trace = t;
    const auto policy = spec.factory->make(spec.values);
    row.result = run_windows(windows, request.machine, *policy,
                             run_options(settings, row.budget, spec.factory->info().needs), progress.part());
    finish_row(spec, settings.allocator, study.traces[t], opened[t].unlimited, row);
    study.rows[i] = std::move(row);
  });
  return study;
}

}  // namespace swaplab
