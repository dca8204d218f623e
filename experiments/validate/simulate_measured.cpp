#include "experiments/validate/simulate_measured.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "experiments/prepared_runs.hpp"
#include "experiments/sweep/metrics_table.hpp"
#include "experiments/sweep/trace_source.hpp"
#include "policy/policy.hpp"
#include "sim/machine_io.hpp"
#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

std::string factor_or(const RunRecord& record, const char* name, const char* fallback) {
  const std::string& value = record.factor(name);
  return value.empty() ? fallback : value;
}

RunSettings settings_of(const RunRecord& record) {
  RunSettings settings;
  const std::string times = factor_or(record, "times", "auto");
  if (times != "auto") settings.times = times == "trace" ? TimeSource::trace : TimeSource::model;
  settings.allocator =
      factor_or(record, "allocator", "caching") == "ideal" ? AllocatorKind::ideal : AllocatorKind::caching;
  const std::string conf = factor_or(record, "alloc_conf", "default");
  if (conf != "default" && !conf.empty()) settings.allocator_config = parse_alloc_conf(conf);
  settings.bounds = false;
  return settings;
}

std::uint32_t iteration_count(const std::string& text, const std::string& where) {
  std::int64_t n = 0;
  if (!parse_integer(text, 1, 100'000, n).empty())
    throw Error(ErrorKind::input,
                where + ": factors.iterations: expected 1 to 100000 or 'recorded', found '" + text + "'");
  return static_cast<std::uint32_t>(n);
}

TransferTable replayed(const TransferTable& table, std::int64_t divisor, Ppm scale) {
  std::vector<TransferPoint> points;
  points.reserve(table.points().size());
  for (const TransferPoint& p : table.points())
    points.push_back({Bytes{ceil_mul_div(p.bytes.value, divisor, 1)},
                      Nanos{ceil_mul_div(p.time.value, kUnchanged, scale)}});
  return {std::move(points),
          std::max<std::int64_t>(1, ceil_mul_div(table.bytes_per_second(), divisor * scale, kUnchanged))};
}

}  // namespace

Machine as_replayed(const Machine& machine, std::int64_t bytes_divisor, Ppm time_scale,
                    bool copies_stretched) {
  if (bytes_divisor == 1 && time_scale == kUnchanged) return machine;
  Machine m = machine;
  for (auto* tables : {&m.pinned, &m.pageable}) {
    if (copies_stretched) break;
    for (TransferTable& table : *tables) table = replayed(table, bytes_divisor, time_scale);
  }
  HostCosts& h = m.host;
  // Operators' own host time is the trace's, not the harness's.
  for (Nanos* cost : {&h.launch_latency, &h.copy_submit, &h.event_record, &h.event_wait, &h.event_query,
                      &h.sync_resume, &h.alloc_cached, &h.free_cached, &h.device_malloc, &h.device_free,
                      &h.map_page, &h.unmap_page, &h.reserve_range})
    cost->value = ceil_mul_div(cost->value, kUnchanged, time_scale);
  for (Nanos* cost : {&h.device_malloc_per_gib, &m.host_memory.pin_per_gib})
    cost->value = ceil_mul_div(cost->value, kUnchanged, time_scale * bytes_divisor);
  return m;
}

std::vector<SimulatedRun> simulate_measured(const std::vector<MeasuredRun>& runs, const std::string& machine,
                                            const std::function<void(const std::string&)>& warn) {
  std::map<std::string, Machine> machines;
  for (const MeasuredRun& run : runs) {
    const std::string name = machine.empty() ? run.record.factor("machine") : machine;
    if (name.empty())
      throw Error(ErrorKind::input, run.where + ": names no machine; say which with --machine");
    if (!machines.contains(name)) machines.emplace(name, load_machine(name));
  }
  // What is prepared for one run serves all runs that differ in policy and budget only.
  std::map<std::string, std::unique_ptr<const PreparedRuns>> prepared;
  std::map<std::string, std::string> failures;
  std::vector<SimulatedRun> simulated;
  simulated.reserve(runs.size());
  for (const MeasuredRun& run : runs) {
    const RunRecord& r = run.record;
    const std::string name = machine.empty() ? r.factor("machine") : machine;
    std::string key = name + "\n" + std::to_string(run.bytes_divisor) + "\n" +
                      std::to_string(run.time_scale) + (run.copies_stretched ? "\nstretched" : "\n");
    for (const char* factor : {"trace", "iterations", "times", "allocator", "alloc_conf", "seed"})
      key += "\n" + r.factor(factor);
    SimulatedRun out;
    out.record.index = r.index;
    out.record.key = r.key;
    out.record.factors = r.factors;
    for (auto& [factor, value] : out.record.factors)
      if (factor == "machine") value = name;
    out.record.policy = r.policy;
    try {
      if (!prepared.contains(key) && !failures.contains(key)) {
        const std::string iterations = factor_or(r, "iterations", "recorded");
        const std::uint32_t count = iterations == "recorded" ? 0 : iteration_count(iterations, run.where);
        const std::string trace = r.factor("trace");
        prepared[key] = std::make_unique<const PreparedRuns>(
            trace, open_trace_source(trace, count, std::stoull(factor_or(r, "seed", "1"))),
            as_replayed(machines.at(name), run.bytes_divisor, run.time_scale, run.copies_stretched),
            settings_of(r), std::function<void(Program&)>{}, warn);
      }
      if (failures.contains(key)) throw Error(ErrorKind::input, failures.at(key));
      const PreparedRuns& ready = *prepared.at(key);
      const StudyRow row =
          ready.run(parse_policies(r.factor("policy")).at(0), parse_budgets(r.factor("budget")).at(0));
      out.record.status = outcome_name(row.result.outcome);
      out.record.explanation = row.result.explanation;
      out.record.policy = row.policy;
      out.record.metrics = result_metrics(ready.info(), row);
      for (const IterationMetrics& iteration : row.result.iterations)
        out.iterations.push_back(iteration.time());
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::invariant) throw;
      if (!prepared.contains(key)) failures.emplace(key, error.what());
      out.record.status = "error";
      out.record.explanation = error.what();
    }
    simulated.push_back(std::move(out));
  }
  return simulated;
}

}  // namespace swaplab
