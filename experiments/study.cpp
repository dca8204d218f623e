#include "experiments/study.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "sim/schedule_io.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace swaplab {

Study run_study(const StudyRequest& request) {
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
  std::exception_ptr failure;
  const auto parallel = [&](std::size_t count, const std::function<void(std::size_t)>& work) {
    std::atomic<std::size_t> next{0};
    const auto worker = [&] {
      for (std::size_t i = next++; i < count; i = next++) {
        try {
          work(i);
        } catch (...) {
          const std::lock_guard guard(lock);
          if (!failure) failure = std::current_exception();
          next = count;
        }
      }
    };
    std::vector<std::thread> threads;
    for (unsigned j = 1; j < std::min<std::size_t>(request.jobs, count); ++j) threads.emplace_back(worker);
    worker();
    for (std::thread& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
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
