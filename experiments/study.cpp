#include "experiments/study.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "sim/bounds/steady_bound.hpp"
#include "sim/machine_io.hpp"
#include "sim/schedule_io.hpp"
#include "sim/wide_math.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

struct LoadedTrace {
  Trace trace;
  Program program;
};

bool recorded_on_gpu(const Trace& trace) {
  for (const NameId device : trace.storages.device) {
    if (trace.names[device] != "cpu") return true;
  }
  return false;
}

TimeSource choose_times(const StudyRequest& request, const Trace& trace, const std::string& path) {
  const bool gpu = recorded_on_gpu(trace);
  if (!request.times) return gpu && trace.has_device_times() ? TimeSource::trace : TimeSource::model;
  if (*request.times == TimeSource::trace && !gpu && request.warn) {
    request.warn(path + ": its operator times were measured on a CPU; on '" + request.machine.name +
                 "' use --times model for device times");
  }
  return *request.times;
}

StudyBound steady_bound(const Program& program, const RunBounds& bounds, Bytes budget) {
  const RunBound bound = bounds.at(budget);
  return {bound.steady.feasible, bound.steady.total, bound.steady.compute,
          chain_lines(program, bound.steady)};
}

Nanos steady_sum(const Program& program, const RunResult& result) {
  Nanos sum{0};
  for (std::uint32_t i = program.steady_first; i < program.steady_end && i < result.iterations.size(); ++i) {
    sum += result.iterations[i].time();
  }
  return sum;
}

RunOptions options_for(const StudyRequest& request, Bytes budget, Needs needs) {
  RunOptions options;
  options.budget = std::min(budget, kUnlimitedBudget);
  options.allocator = request.allocator;
  options.allocator_config = request.allocator_config;
  options.needs = needs;
  return options;
}

// What `none` would need: its peak in an unlimited run.
void explain_smallest(const StudyRequest& request, const Program& program, const RunResult& unlimited,
                      RunResult& result) {
  if (result.outcome != Outcome::out_of_memory && result.outcome != Outcome::infeasible) return;
  result.outcome = Outcome::infeasible;
  result.smallest_budget =
      request.allocator == AllocatorKind::ideal ? program.peak_bytes : unlimited.allocator.peak_reserved;
  result.explanation += "; without swapping it needs " + std::to_string(result.smallest_budget.value) + " B";
}

}  // namespace

Bytes BudgetSpec::resolve(Bytes peak) const {
  if (denominator == 0) return absolute;
  return Bytes{static_cast<std::int64_t>(static_cast<Wide>(peak.value) * numerator / denominator)};
}

std::vector<BudgetSpec> parse_budgets(const std::string& text) {
  std::vector<BudgetSpec> specs;
  std::size_t from = 0;
  while (from <= text.size()) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    BudgetSpec spec;
    spec.text = text.substr(from, comma - from);
    from = comma + 1;
    const std::string wrong =
        "budget '" + spec.text + "': expected a share of the peak (0.5x), bytes with a unit (16GiB) or inf";
    if (spec.text == "inf") {
      spec.absolute = kUnlimitedBudget;
    } else if (!spec.text.empty() && spec.text.back() == 'x') {
      const std::string number = spec.text.substr(0, spec.text.size() - 1);
      const std::size_t point = std::min(number.find('.'), number.size());
      const std::string digits =
          number.substr(0, point) + (point < number.size() ? number.substr(point + 1) : "");
      if (digits.empty() || digits.size() > 9 ||
          digits.find_first_not_of("0123456789") != std::string::npos) {
        throw Error(ErrorKind::usage, wrong);
      }
      spec.denominator = 1;
      for (std::size_t i = point + 1; i < number.size(); ++i) spec.denominator *= 10;
      spec.numerator = std::stoll(digits);
      if (spec.numerator == 0) throw Error(ErrorKind::usage, wrong + "; zero leaves nothing to run in");
    } else if (!parse_bytes(spec.text, spec.absolute).empty() || spec.absolute <= Bytes{0}) {
      throw Error(ErrorKind::usage, wrong);
    }
    specs.push_back(spec);
  }
  return specs;
}

Study run_study(const StudyRequest& request) {
  Study study;
  std::vector<std::unique_ptr<LoadedTrace>> loaded;
  const std::size_t per_trace = request.budgets.size() * request.policies.size();
  const std::size_t total = request.traces.size() * per_trace;
  if (!request.schedule_path.empty() && total != 1) {
    throw Error(ErrorKind::usage,
                "--schedule needs exactly one trace, one policy and one budget; this asks for " +
                    std::to_string(total) + " runs");
  }
  for (const std::string& path : request.traces) {
    auto one = std::make_unique<LoadedTrace>();
    ReadReport report;
    one->trace = read_trace(path, &report);
    if (request.warn) {
      for (const std::string& warning : report.warnings) request.warn(warning);
    }
    if (request.iterations > 0) one->trace = extend_iterations(one->trace, request.iterations);
    StudyTrace info;
    info.path = path;
    info.times = choose_times(request, one->trace, path);
    one->program = compile_program(one->trace, request.machine, info.times);
    const Program& p = one->program;
    info.peak_bytes = p.peak_bytes;
    info.largest_working_set = p.largest_working_set;
    info.steady_first = p.steady_first;
    info.steady_end = p.steady_end;
    info.operators_per_steady_iteration =
        (p.iterations[p.steady_end - 1].end_op - p.iterations[p.steady_first].first_op) /
        (p.steady_end - p.steady_first);
    info.bound_refusal = SwapPathBound::refusal(p).value_or("");
    study.traces.push_back(info);
    loaded.push_back(std::move(one));
  }

  // Units of work: the unconstrained run and each budget's bound of a trace, then every row.
  const PolicyFactory& none = find_policy("none");
  std::vector<RunResult> unlimited(request.traces.size());
  std::vector<std::optional<StudyBound>> bounds(request.traces.size() * request.budgets.size());
  std::vector<std::unique_ptr<const RunBounds>> tables(request.traces.size());
  const SwapRates rates = best_rates(request.machine);
  study.rows.resize(total);

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

  parallel(request.traces.size(), [&](std::size_t t) {
    const auto policy = none.make({});
    unlimited[t] = run_program(loaded[t]->program, request.machine, *policy,
                               options_for(request, kUnlimitedBudget, Needs::none));
    if (study.traces[t].bound_refusal.empty())
      tables[t] = std::make_unique<const RunBounds>(loaded[t]->program, rates);
  });
  parallel(bounds.size(), [&](std::size_t i) {
    const std::size_t t = i / request.budgets.size();
    if (!tables[t]) return;
    const Program& program = loaded[t]->program;
    bounds[i] = steady_bound(program, *tables[t],
                             request.budgets[i % request.budgets.size()].resolve(program.peak_bytes));
  });
  std::size_t done = 0;
  parallel(total, [&](std::size_t i) {
    const std::size_t t = i / per_trace, b = i % per_trace / request.policies.size();
    const PolicySpec& spec = request.policies[i % request.policies.size()];
    const Program& program = loaded[t]->program;
    StudyRow& row = study.rows[i];
    row.trace = t;
    row.policy = spec.text();
    row.label = std::string(spec.factory->info().name);
    for (std::size_t v = 0; v < spec.values.size(); ++v) {
      row.label += (v == 0 ? ":" : ",") + spec.values[v].first + "=" + spec.values[v].second;
    }
    row.budget_text = request.budgets[b].text;
    row.budget = request.budgets[b].resolve(program.peak_bytes);
    row.bound = bounds[t * request.budgets.size() + b];
    const auto policy = spec.factory->make(spec.values);
    RunOptions options = options_for(request, row.budget, spec.factory->info().needs);
    Schedule schedule;
    if (!request.schedule_path.empty()) options.schedule = &schedule;
    row.result = run_program(program, request.machine, *policy, options);
    if (spec.factory == &none) explain_smallest(request, program, unlimited[t], row.result);
    if (row.result.outcome == Outcome::ok) row.steady_total = steady_sum(program, row.result);
    if (options.schedule != nullptr) {
      schedule.trace_path = request.traces[t];
      schedule.trace_hash = trace_hash(loaded[t]->trace);
      schedule.iterations = request.iterations;
      schedule.times = program.times;
      schedule.machine_json = machine_json(request.machine);
      schedule.policy = row.policy;
      schedule.allocator = request.allocator == AllocatorKind::ideal ? "ideal" : "caching";
      schedule.budget = options.budget;
      write_schedule(schedule, request.schedule_path);
    }
    const std::lock_guard guard(lock);
    ++done;
    if (request.progress) request.progress(done, total);
  });
  for (std::size_t t = 0; t < study.traces.size(); ++t) {
    const auto count = static_cast<std::int64_t>(study.traces[t].steady_end - study.traces[t].steady_first);
    study.traces[t].unconstrained = steady_sum(loaded[t]->program, unlimited[t]) / count;
  }
  return study;
}

}  // namespace swaplab
