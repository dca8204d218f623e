#include "experiments/sweep/metrics_table.hpp"

#include <nlohmann/json.hpp>

#include "sim/wide_math.hpp"

namespace swaplab {
namespace {

// (a / b - minus) in parts per million.
std::int64_t ppm_of(std::int64_t a, std::int64_t b, std::int64_t minus) {
  return static_cast<std::int64_t>(static_cast<Wide>(a) * kUnchanged / b) - minus;
}

}  // namespace

std::vector<MetricDescription> result_metric_table() {
  std::vector<MetricDescription> table = metric_table();
  const std::vector<MetricDescription> more{
      {"steady_total_ns", "ns", "sum of the times of the steady iterations", Better::lower},
      {"steady_iterations", "count", "iterations that count as steady", Better::higher},
      {"total_ns", "ns", "sum of the times of all iterations, the first ones included", Better::lower},
      {"lost_ns", "ns", "total_ns beyond that of the same trace without a memory limit", Better::lower},
      {"unconstrained_iter_time_ns", "ns", "steady iteration of the same trace without a memory limit",
       Better::lower},
      {"bound_iter_time_ns", "ns", "no schedule that only swaps has faster steady iterations", Better::lower},
      {"budget_bytes", "B", "device memory that the run could use", Better::lower},
      {"trace_peak_bytes", "B", "peak of live device bytes of the trace", Better::lower},
      {"pinning_time_ns", "ns", "host time to pin the pool, before the first iteration", Better::lower},
  };
  table.insert(table.end(), more.begin(), more.end());
  return table;
}

std::vector<std::string> result_metric_names() {
  std::vector<std::string> names;
  for (const MetricDescription& metric : result_metric_table()) names.push_back(metric.tag);
  return names;
}

std::string metric_table_json() {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const MetricDescription& metric : result_metric_table()) {
    all.push_back({{"tag", metric.tag},
                   {"unit", metric.unit},
                   {"description", metric.description},
                   {"better", metric.better == Better::lower ? "lower" : "higher"}});
  }
  return all.dump(1) + "\n";
}

MetricValues result_metrics(const StudyTrace& trace, const StudyRow& row) {
  MetricValues values;
  const RunResult& r = row.result;
  const bool ok = r.outcome == Outcome::ok;
  const auto steady = static_cast<std::int64_t>(trace.steady_end - trace.steady_first);
  const bool bounded = row.bound && row.bound->feasible;
  if (ok) {
    Nanos busy{0};
    std::array<Nanos, kStallCount> stalls{};
    Bytes out{0}, in{0};
    std::int64_t copies_out = 0, copies_in = 0, passive = 0;
    for (std::uint32_t i = trace.steady_first; i < trace.steady_end; ++i) {
      const IterationMetrics& it = r.iterations.at(i);
      busy += it.compute_busy;
      for (std::size_t s = 0; s < kStallCount; ++s) stalls[s] += it.stalls[s];
      out += it.bytes_out;
      in += it.bytes_in;
      copies_out += it.copies_out;
      copies_in += it.copies_in;
      passive += it.passive_in;
    }
    values.emplace_back("iter_time_ns", row.steady_total.value / steady);
    values.emplace_back("compute_busy_ns", busy.value / steady);
    for (std::size_t s = 0; s < kStallCount; ++s) {
      values.emplace_back("stall_" + std::string(stall_name(static_cast<Stall>(s))) + "_ns",
                          stalls[s].value / steady);
    }
    if (trace.unconstrained > Nanos{0})
      values.emplace_back("slowdown_ppm",
                          ppm_of(row.steady_total.value / steady, trace.unconstrained.value, 0));
    if (bounded && row.bound->steady_total > Nanos{0})
      values.emplace_back("gap_to_bound_ppm",
                          ppm_of(row.steady_total.value, row.bound->steady_total.value, kUnchanged));
    values.emplace_back("swapped_out_bytes", out.value / steady);
    values.emplace_back("swapped_in_bytes", in.value / steady);
    values.emplace_back("copies_out", copies_out / steady);
    values.emplace_back("copies_in", copies_in / steady);
    values.emplace_back("passive_in", passive / steady);
    const AllocatorFigures& a = r.allocator;
    values.emplace_back("peak_allocated_bytes", a.peak_allocated.value);
    values.emplace_back("peak_reserved_bytes", a.peak_reserved.value);
    values.emplace_back("reserved_at_peak_bytes", a.reserved_at_peak.value);
    if (a.reserved_at_peak > Bytes{0})
      values.emplace_back("fragmentation_ppm",
                          kUnchanged - ppm_of(a.peak_allocated.value, a.reserved_at_peak.value, 0));
    values.emplace_back("device_mallocs", a.device_mallocs);
    values.emplace_back("device_frees", a.device_frees);
    values.emplace_back("alloc_retries", a.retries);
    values.emplace_back("alloc_ooms", a.ooms);
    if (a.stitches > 0) {
      values.emplace_back("stitches", a.stitches);
      values.emplace_back("stitched_reuses", a.stitched_reuses);
    }
    values.emplace_back("peak_host_pinned_bytes", r.peak_host_pinned.value);
  }
  if (r.smallest_budget >= Bytes{0}) values.emplace_back("smallest_budget_bytes", r.smallest_budget.value);
  if (ok) {
    values.emplace_back("evictions", static_cast<std::int64_t>(r.evictions));
    values.emplace_back("make_room_calls", static_cast<std::int64_t>(r.make_room_calls));
    values.emplace_back("plan_steps", static_cast<std::int64_t>(r.plan_steps));
    values.emplace_back("plan_steps_skipped", static_cast<std::int64_t>(r.plan_steps_skipped));
    values.emplace_back("steady_total_ns", row.steady_total.value);
    values.emplace_back("steady_iterations", steady);
    Nanos total{0};
    for (const IterationMetrics& it : r.iterations) total += it.time();
    values.emplace_back("total_ns", total.value);
    values.emplace_back("lost_ns", total.value - trace.unconstrained_total.value);
  }
  values.emplace_back("unconstrained_iter_time_ns", trace.unconstrained.value);
  if (bounded) values.emplace_back("bound_iter_time_ns", row.bound->steady_total.value / steady);
  values.emplace_back("budget_bytes", row.budget.value);
  values.emplace_back("trace_peak_bytes", trace.peak_bytes.value);
  if (ok) {
    values.emplace_back("pinning_time_ns", r.pinning_time.value);
    for (const PolicyMetric& metric : r.policy_metrics)
      values.emplace_back("policy." + metric.tag, metric.value);
  }
  return values;
}

}  // namespace swaplab
