#include "experiments/study.hpp"

#include <memory>
#include <mutex>

#include "experiments/parallel.hpp"
#include "experiments/windowed_study.hpp"
#include "sim/schedule_io.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace swaplab {

Study run_study(const StudyRequest& request) {
  if (request.bounded_memory) return run_windowed_study(request);
  Study study;
  const std::size_t per_trace = request.budgets.size() * request.policies.size();
  const std::size_t total = request.traces.size() * per_trace;
  if (!request.schedule_path.empty() && total != 1) {
    throw Error(ErrorKind::usage,
                "--schedule needs exactly one trace, one policy and one budget; this asks for " +
                    std::to_string(total) + " runs");
  }
  std::vector<std::shared_ptr<const Trace>> traces;
  for (const std::string& path : request.traces) {
    ReadReport report;
    Trace trace = read_trace(path, &report);
    if (request.warn) {
      for (const std::string& warning : report.warnings) request.warn(warning);
    }
    if (request.iterations > 0) trace = extend_iterations(trace, request.iterations);
    traces.push_back(std::make_shared<const Trace>(std::move(trace)));
  }

  std::mutex lock;
  const auto parallel = [&](std::size_t count, const std::function<void(std::size_t)>& work) {
    for_each_parallel(request.jobs, count, work);
  };

  // Units of work: each trace on the machine, each budget's bound of a trace, then every row.
  std::vector<std::unique_ptr<const PreparedRuns>> prepared(traces.size());
  const auto warn = [&](const std::string& text) {
    const std::lock_guard guard(lock);
    if (request.warn) request.warn(text);
  };
  parallel(traces.size(), [&](std::size_t t) {
    prepared[t] = std::make_unique<const PreparedRuns>(
        request.traces[t], traces[t], request.machine,
        RunSettings{request.times, request.allocator, request.allocator_config, request.stitching, true},
        nullptr, warn);
  });
  for (const auto& one : prepared) study.traces.push_back(one->info());
  study.budgets.resize(traces.size() * request.budgets.size());
  parallel(study.budgets.size(), [&](std::size_t i) {
    const PreparedRuns& one = *prepared[i / request.budgets.size()];
    const BudgetSpec& budget = request.budgets[i % request.budgets.size()];
    const Bytes bytes = budget.resolve(one.info().peak_bytes);
    study.budgets[i] = {budget.text, bytes, one.bound(bytes)};
  });
  study.rows.resize(total);
  std::size_t done = 0;
  parallel(total, [&](std::size_t i) {
    const std::size_t t = i / per_trace, b = i % per_trace / request.policies.size();
    Schedule schedule;
    const bool scheduled = !request.schedule_path.empty();
    StudyRow row = prepared[t]->run(request.policies[i % request.policies.size()], request.budgets[b],
                                    scheduled ? &schedule : nullptr);
    row.trace = t;
    study.rows[i] = std::move(row);
    if (scheduled) {
      schedule.iterations = request.iterations;
      write_schedule(schedule, request.schedule_path);
    }
    const std::lock_guard guard(lock);
    ++done;
    if (request.progress) request.progress(done, total);
  });
  return study;
}

}  // namespace swaplab
