#include "experiments/sweep/sweep_engine.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "experiments/prepared_runs.hpp"
#include "experiments/sweep/machine_override.hpp"
#include "experiments/sweep/trace_source.hpp"
#include "sim/machine_io.hpp"
#include "sim/schedule_io.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Clock = std::chrono::steady_clock;

std::uint32_t iterations_of(const PlannedRun& run) {
  const std::string& text = run.factor("iterations");
  return text == "recorded" ? 0 : static_cast<std::uint32_t>(std::stoul(text));
}

// Recently used traces, each loaded once however many workers ask for it.
class TraceShelf {
 public:
  std::shared_ptr<const Trace> get(const PlannedRun& run) {
    const std::string& source = run.factor("trace");
    const std::string& seed = run.factor("seed");
    std::string key = source + "\n" + run.factor("iterations");
    if (trace_source_uses_seed(source)) key += "\n" + seed;
    std::shared_ptr<Entry> entry;
    {
      const std::lock_guard guard(lock_);
      const auto at =
          std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e->key == key; });
      if (at != entries_.end()) {
        entry = *at;
        entries_.erase(at);
      } else {
        entry = std::make_shared<Entry>();
        entry->key = key;
      }
      entries_.push_front(entry);
      if (entries_.size() > kKept) entries_.pop_back();
    }
    std::call_once(entry->once,
                   [&] { entry->trace = open_trace_source(source, iterations_of(run), std::stoull(seed)); });
    return entry->trace;
  }

 private:
  static constexpr std::size_t kKept = 4;
  struct Entry {
    std::string key;
    std::once_flag once;
    std::shared_ptr<const Trace> trace;
  };
  std::mutex lock_;
  std::list<std::shared_ptr<Entry>> entries_;
};

RunSettings settings_of(const PlannedRun& run, bool bounds) {
  RunSettings settings;
  if (run.factor("times") != "auto")
    settings.times = run.factor("times") == "trace" ? TimeSource::trace : TimeSource::model;
  settings.allocator = parse_allocator(run.factor("allocator"));
  const std::string& conf = run.factor("alloc_conf");
  if (conf.starts_with("stitching:")) {
    settings.stitching = parse_stitching_conf(conf.substr(conf.find(':') + 1));
  } else if (conf != "default") {
    settings.allocator_config = parse_alloc_conf(conf);
  }
  settings.bounds = bounds;
  return settings;
}

std::unique_ptr<const PreparedRuns> prepare(const SweepPlan& plan, const PlannedRun& run, TraceShelf& shelf) {
  const Uncertainty& uncertainty = plan.config.uncertainty;
  const std::string& sample = run.factor("sample");
  Machine machine = load_machine(run.factor("machine"));
  for (const auto& [name, value] : run.factors) {
    if (name.starts_with("machine.")) override_figure(machine, name.substr(8), value);
  }
  apply_sample(uncertainty, sample, machine);
  return std::make_unique<const PreparedRuns>(
      run.factor("trace"), shelf.get(run), std::move(machine), settings_of(run, plan.config.bounds),
      [&](Program& program) { apply_sample(uncertainty, sample, program); });
}

// A unit being worked on. Its tasks are the bounds of its budgets, then its runs.
struct OpenUnit {
  WorkUnit runs;
  std::vector<std::size_t> bound_runs;  // one run per distinct budget
  std::size_t next = 0;                 // task
  bool ready = false;
  std::unique_ptr<const PreparedRuns> prepared;
  std::string failure;  // why it could not be prepared
  std::size_t task_count() const { return bound_runs.size() + runs.size(); }
};

class Engine {
 public:
  Engine(const SweepPlan& plan, const std::function<std::optional<WorkUnit>()>& next_unit,
         const EngineOptions& options)
      : plan_(plan), next_unit_(next_unit), options_(options) {
    limits_ = {plan.config.time_limit, plan.config.memory_limit};
  }

  void run() {
    std::vector<std::thread> threads;
    for (unsigned j = 1; j < options_.jobs; ++j) threads.emplace_back([this] { worker(); });
    worker();
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Task {
    std::shared_ptr<OpenUnit> unit;
    std::size_t number;
  };

  void worker() {
    try {
      while (const std::optional<Task> task = take_task()) work(*task->unit, task->number);
    } catch (...) {
      const std::lock_guard guard(lock_);
      if (!failure_) failure_ = std::current_exception();
      wake_.notify_all();
    }
  }

  // Nothing when everything is taken or a worker has failed.
  std::optional<Task> take_task() {
    std::unique_lock guard(lock_);
    while (!failure_) {
      for (const auto& unit : open_) {
        if (!unit->ready || unit->next == unit->task_count()) continue;
        Task task{unit, unit->next++};
        if (unit->next == unit->task_count()) {
          open_.remove(task.unit);
          wake_.notify_all();
        }
        return task;
      }
      if (!exhausted_) {
        if (auto runs = next_unit_()) {
          open_next(std::move(*runs), guard);
          continue;
        }
        exhausted_ = true;
      }
      if (open_.empty()) return std::nullopt;
      wake_.wait(guard);
    }
    return std::nullopt;
  }

  // Prepares a unit, unlocked; the other workers go on with those that are ready.
  void open_next(WorkUnit runs, std::unique_lock<std::mutex>& guard) {
    auto unit = std::make_shared<OpenUnit>();
    unit->runs = std::move(runs);
    open_.push_back(unit);
    guard.unlock();
    try {
      unit->prepared = prepare(plan_, plan_.runs[unit->runs[0]], shelf_);
      if (plan_.config.bounds) {
        for (const std::size_t r : unit->runs) {
          const std::string& budget = plan_.runs[r].factor("budget");
          if (std::none_of(unit->bound_runs.begin(), unit->bound_runs.end(),
                           [&](std::size_t other) { return plan_.runs[other].factor("budget") == budget; }))
            unit->bound_runs.push_back(r);
        }
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::invariant) throw;
      unit->failure = error.what();
    }
    guard.lock();
    unit->ready = true;
    wake_.notify_all();
  }

  void work(const OpenUnit& unit, std::size_t task) {
    if (task < unit.bound_runs.size()) {
      if (unit.prepared) {
        const BudgetSpec budget = parse_budgets(plan_.runs[unit.bound_runs[task]].factor("budget"))[0];
        unit.prepared->bound(budget.resolve(unit.prepared->info().peak_bytes));
      }
      return;
    }
    const PlannedRun& run = plan_.runs[unit.runs[task - unit.bound_runs.size()]];
    const auto begin = Clock::now();
    RunRecord record;
    try {
      if (!unit.failure.empty()) throw Error(ErrorKind::input, unit.failure);
      record = one_run(*unit.prepared, run);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::invariant || error.kind() == ErrorKind::output) throw;
      record = blank(run);
      record.status = "error";
      record.explanation = error.what();
    }
    record.wall_time =
        Nanos{std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count()};
    const std::lock_guard guard(finish_lock_);
    options_.finished(std::move(record));
  }

  RunRecord blank(const PlannedRun& run) const {
    RunRecord record;
    record.index = run.index;
    record.key = run.key;
    record.factors = run.factors;
    record.policy = parse_policies(run.factor("policy"))[0].text();
    return record;
  }

  RunRecord one_run(const PreparedRuns& prepared, const PlannedRun& run) const {
    const PolicySpec policy = parse_policies(run.factor("policy"))[0];
    const BudgetSpec budget = parse_budgets(run.factor("budget"))[0];
    // Before a child process is made: it must not wait for a lock that another thread held.
    const std::optional<StudyBound> bound = prepared.bound(budget.resolve(prepared.info().peak_bytes));
    const auto simulate = [&] {
      Schedule schedule;
      const bool scheduled = !options_.schedule_folder.empty();
      const StudyRow row = prepared.run_beside(policy, budget, bound, scheduled ? &schedule : nullptr);
      RunRecord record = blank(run);
      record.status = std::string(outcome_name(row.result.outcome));
      record.explanation = row.result.explanation;
      record.metrics = result_metrics(prepared.info(), row);
      if (scheduled) {
        schedule.iterations = iterations_of(run);
        write_schedule(schedule, options_.schedule_folder + "/" + run.key + ".jsonl.zst");
      }
      return record;
    };
    if (limits_.time <= Nanos{0} && limits_.memory <= Bytes{0}) return simulate();
    const LimitedOutcome outcome = run_limited(limits_, [&] { return record_line(simulate(), false); });
    if (outcome.status.empty()) return parse_record(outcome.text, "run " + run.key);
    RunRecord record = blank(run);
    record.status = outcome.status;
    record.explanation = outcome.explanation;
    return record;
  }

  const SweepPlan& plan_;
  const std::function<std::optional<WorkUnit>()>& next_unit_;
  const EngineOptions& options_;
  RunLimits limits_;
  TraceShelf shelf_;
  std::mutex lock_, finish_lock_;
  std::condition_variable wake_;
  std::list<std::shared_ptr<OpenUnit>> open_;
  bool exhausted_ = false;
  std::exception_ptr failure_;
};

}  // namespace

void run_units(const SweepPlan& plan, const std::function<std::optional<WorkUnit>()>& next_unit,
               const EngineOptions& options) {
  Engine(plan, next_unit, options).run();
}

std::unique_ptr<const PreparedRuns> prepare_run(const SweepPlan& plan, const PlannedRun& run) {
  TraceShelf shelf;
  return prepare(plan, run, shelf);
}

std::vector<WorkUnit> units_of(const SweepPlan& plan, const std::vector<bool>& done, std::size_t longest) {
  std::vector<WorkUnit> units;
  for (std::size_t g = 0; g + 1 < plan.group_begin.size(); ++g) {
    WorkUnit unit;
    for (std::size_t r = plan.group_begin[g]; r < plan.group_begin[g + 1]; ++r) {
      if (done[r]) continue;
      unit.push_back(r);
      if (unit.size() == longest) {
        units.push_back(std::move(unit));
        unit.clear();
      }
    }
    if (!unit.empty()) units.push_back(std::move(unit));
  }
  return units;
}

}  // namespace swaplab
