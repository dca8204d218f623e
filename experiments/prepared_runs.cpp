#include "experiments/prepared_runs.hpp"

#include <algorithm>

#include "sim/machine_io.hpp"
#include "sim/wide_math.hpp"
#include "trace/error.hpp"
#include "trace/human.hpp"
#include "trace/import/report.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

bool recorded_on_gpu(const Trace& trace) {
  for (const NameId device : trace.storages.device) {
    if (trace.names[device] != "cpu") return true;
  }
  return false;
}

}  // namespace

Nanos steady_sum(const StudyTrace& trace, const RunResult& result) {
  Nanos sum{0};
  for (std::uint32_t i = trace.steady_first; i < trace.steady_end && i < result.iterations.size(); ++i) {
    sum += result.iterations[i].time();
  }
  return sum;
}

Bytes BudgetSpec::resolve(Bytes peak) const {
  if (denominator == 0) return absolute;
  return Bytes{static_cast<std::int64_t>(static_cast<Wide>(peak.value) * numerator / denominator)};
}

bool BudgetSpec::same_as(const BudgetSpec& other) const {
  if ((denominator == 0) != (other.denominator == 0)) return false;
  return denominator == 0 ? absolute == other.absolute
                          : numerator * other.denominator == other.numerator * denominator;  // each below 1e9
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
    for (const BudgetSpec& other : specs) {
      if (spec.same_as(other))
        throw Error(ErrorKind::usage, "budget '" + spec.text + "' is listed twice" +
                                          (spec.text == other.text ? "" : ": as '" + other.text + "', too"));
    }
    specs.push_back(spec);
  }
  return specs;
}

std::string policy_label(const PolicySpec& spec) {
  std::string label(spec.factory->info().name);
  for (std::size_t v = 0; v < spec.values.size(); ++v) {
    label += (v == 0 ? ":" : ",") + spec.values[v].first + "=" + spec.values[v].second;
  }
  return label;
}

void refuse_without_swapping(const RunSettings& settings, const Trace& trace, const std::string& path) {
  const std::optional<StudyKind> study = stated_study(trace.header.extra_json);
  if (!study) return;
  const bool modelled = settings.times == TimeSource::model;
  const char* missing = *study == StudyKind::times_only ? "times, but no storages"
                        : *study == StudyKind::memory_only && !modelled && !trace.has_device_times()
                            ? "storages, but no times of operators"
                            : nullptr;
  if (missing != nullptr)
    throw Error(ErrorKind::input, path + ": imported from a file with " + missing +
                                      ": there is nothing to swap in time; 'swaplab trace info' and 'trace "
                                      "analyze' say what it holds");
}

TimeSource choose_times(const RunSettings& settings, const Trace& trace, const std::string& path,
                        const std::string& machine, const std::function<void(const std::string&)>& warn) {
  const std::optional<StudyKind> study = stated_study(trace.header.extra_json);
  if (warn && study && *study != StudyKind::full) {
    warn(path + ": imported from a file that allows '" + std::string(study_name(*study)) +
         "' studies ('swaplab trace import' says what is missing): figures of swap policies mean nothing "
         "here");
  }
  const bool gpu = recorded_on_gpu(trace);
  if (!settings.times) return gpu && trace.has_device_times() ? TimeSource::trace : TimeSource::model;
  if (*settings.times == TimeSource::trace && !gpu && warn) {
    warn(path + ": its operator times were measured on a CPU; on '" + machine +
         "' use --times model for device times");
  }
  return *settings.times;
}

StudyTrace describe_trace(std::string path, TimeSource times, Bytes peak_bytes, Bytes largest_working_set,
                          const Program& p, const RunResult& unlimited) {
  StudyTrace info;
  info.path = std::move(path);
  info.times = times;
  info.peak_bytes = peak_bytes;
  info.largest_working_set = largest_working_set;
  info.steady_first = p.steady_first;
  info.steady_end = p.steady_end;
  info.operators_per_steady_iteration =
      (p.iterations[p.steady_end - 1].end_op - p.iterations[p.steady_first].first_op) /
      (p.steady_end - p.steady_first);
  for (const IterationMetrics& it : unlimited.iterations) info.unconstrained_total += it.time();
  info.unconstrained = steady_sum(info, unlimited) / static_cast<std::int64_t>(p.steady_end - p.steady_first);
  return info;
}

RunOptions run_options(const RunSettings& settings, Bytes budget, Needs needs) {
  RunOptions options;
  options.budget = std::min(budget, kUnlimitedBudget);
  options.allocator = settings.allocator;
  options.allocator_config = settings.allocator_config;
  options.stitching = settings.stitching;
  options.needs = needs;
  return options;
}

StudyRow start_row(const PolicySpec& spec, const BudgetSpec& budget, Bytes peak) {
  StudyRow row;
  row.policy = spec.text();
  row.label = policy_label(spec);
  row.budget_text = budget.text;
  row.budget = budget.resolve(peak);
  return row;
}

void finish_row(const PolicySpec& spec, AllocatorKind allocator, const StudyTrace& trace,
                const RunResult& unlimited, StudyRow& row) {
  RunResult& result = row.result;
  const bool no_room = result.outcome == Outcome::out_of_memory || result.outcome == Outcome::infeasible;
  if (spec.factory == &find_policy("none") && no_room) {  // what it would need: its peak in an unlimited run
    result.outcome = Outcome::infeasible;
    // Stitching needs no more than is occupied at once, whatever it reserves while memory lasts.
    result.smallest_budget = allocator == AllocatorKind::ideal     ? trace.peak_bytes
                             : allocator == AllocatorKind::caching ? unlimited.allocator.peak_reserved
                                                                   : unlimited.allocator.peak_allocated;
    result.explanation += "; without swapping it needs " + exact_bytes(result.smallest_budget);
  }
  if (result.outcome == Outcome::ok) row.steady_total = steady_sum(trace, result);
}

PreparedRuns::PreparedRuns(std::string path, std::shared_ptr<const Trace> trace, Machine machine,
                           RunSettings settings, const std::function<void(Program&)>& adjust,
                           const std::function<void(const std::string&)>& warn)
    : trace_(std::move(trace)), machine_(std::move(machine)), settings_(std::move(settings)) {
  refuse_without_swapping(settings_, *trace_, path);
  const TimeSource times = choose_times(settings_, *trace_, path, machine_.name, warn);
  program_ = compile_program(*trace_, machine_, times);
  if (adjust) adjust(program_);
  const auto policy = find_policy("none").make({});
  unlimited_ =
      run_program(program_, machine_, *policy, run_options(settings_, kUnlimitedBudget, Needs::none));
  info_ = describe_trace(std::move(path), times, program_.peak_bytes, program_.largest_working_set, program_,
                         unlimited_);
  if (!settings_.bounds) {
    info_.bound_refusal = "not asked for";
    return;
  }
  bounds_ = std::make_unique<const RunBounds>(program_, best_rates(machine_));
  info_.bound_refusal = bounds_->refusal();
  if (!info_.bound_refusal.empty()) bounds_.reset();
}

std::optional<StudyBound> PreparedRuns::bound(Bytes budget) const {
  if (!bounds_) return std::nullopt;
  CachedBound* cached = nullptr;
  {
    const std::lock_guard guard(lock_);
    std::unique_ptr<CachedBound>& entry = cached_[budget.value];
    if (!entry) entry = std::make_unique<CachedBound>();
    cached = entry.get();
  }
  std::call_once(cached->once, [&] {
    const RunBound bound = bounds_->at(budget);
    cached->bound = {bound.steady.feasible, bound.steady.total, bound.steady.compute,
                     chain_lines(program_, bound.steady)};
  });
  return cached->bound;
}

StudyRow PreparedRuns::run(const PolicySpec& spec, const BudgetSpec& budget, Schedule* schedule) const {
  return run_beside(spec, budget, bound(budget.resolve(program_.peak_bytes)), schedule);
}

StudyRow PreparedRuns::run_beside(const PolicySpec& spec, const BudgetSpec& budget,
                                  std::optional<StudyBound> bound, Schedule* schedule) const {
  StudyRow row = start_row(spec, budget, program_.peak_bytes);
  row.bound = std::move(bound);
  const auto policy = spec.factory->make(spec.values);
  RunOptions options = run_options(settings_, row.budget, spec.factory->info().needs);
  options.schedule = schedule;
  row.result = run_program(program_, machine_, *policy, options);
  finish_row(spec, settings_.allocator, info_, unlimited_, row);
  if (schedule != nullptr) {
    schedule->trace_path = info_.path;
    schedule->trace_hash = trace_hash(*trace_);
    schedule->times = program_.times;
    schedule->machine_json = machine_json(machine_);
    schedule->policy = row.policy;
    schedule->allocator = allocator_name(settings_.allocator);
    schedule->budget = options.budget;
  }
  return row;
}

}  // namespace swaplab
