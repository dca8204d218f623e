// Costs of calls and rates of the device.
#include <algorithm>
#include <span>

#include "gpu_validate/calibrate/calibrator.hpp"
#include "sim/wide_math.hpp"

namespace swaplab {

void Calibrator::constant(const std::string& quantity, const std::string& path, std::int64_t from_x,
                          std::int64_t to_x) {
  Found found = find(quantity);
  if (!found) return;
  const SeriesList all = found.series;
  SeriesList near;
  for (const MeasuredSeries* one : all)
    if (one->unit != XUnit::bytes || (one->x >= from_x && one->x <= to_x)) near.push_back(one);
  if (near.empty()) near = all;
  const std::vector<Nanos> samples = pooled(near);
  const Estimate center = robust_center(samples, options_.curves.confidence);
  scalar(found, path, quantity, center, samples.size(), "centre at " + sizes_text(near.size()));
  const Nanos value{rounded(center.value)};
  for (const MeasuredSeries* one : all) residual(*one, value);
}

void Calibrator::fit_host_costs() {
  constant("launch_latency", "host.launch_latency");
  constant("host_copy_submit", "host.copy_submit");
  constant("host_event_record", "host.event_record");
  constant("host_event_wait", "host.event_wait");
  constant("host_event_query", "host.event_query");
  constant("host_synchronize", "host.sync_resume");
  constant("kernel_empty", "compute.kernel_floor");
  if (options_.dispatch_is_launch) constant("host_launch", "host.op_dispatch");
}

Estimate Calibrator::times(const Estimate& e, double factor) {
  return {e.value * factor, e.low * factor, e.high * factor};
}

bool Calibrator::several(const Found& found) {
  return found.series.size() > 1 && found.series.front()->x != found.series.back()->x;
}

void Calibrator::fit_allocation() {
  if (const Found found = find("host_malloc"); found && several(found)) {
    const LineFit line = fit_line(groups(found.series), options_.curves.confidence);
    const std::string detail = "line through " + sizes_text(found.series.size());
    scalar(found, "host.device_malloc", "host_malloc", line.intercept, line.samples, detail);
    scalar(found, "host.device_malloc_per_gib", "host_malloc", times(line.slope, kGiB), line.samples, detail);
    const HostCosts& h = result_.machine.host;
    for (const MeasuredSeries* one : found.series)
      residual(*one, h.device_malloc + Nanos{ceil_mul_div(h.device_malloc_per_gib.value, one->x, kGiB)});
  } else if (found) {
    constant("host_malloc", "host.device_malloc");
  }
  constant("host_free", "host.device_free");
  // The allocator maps handles of 2 MiB and 20 MiB.
  constant("vmm_map", "host.map_page", 2 * kMiB, 32 * kMiB);
  constant("vmm_unmap", "host.unmap_page", 2 * kMiB, 32 * kMiB);
  constant("vmm_reserve", "host.reserve_range");
  if (const Found found = find("pin"); found) {
    Estimate per_byte;
    if (several(found)) {
      per_byte = fit_line(groups(found.series), options_.curves.confidence).slope;
    } else {
      const MeasuredSeries& one = *found.series.front();
      const auto x = static_cast<double>(one.x);
      const NanosInterval i = median_interval(one.samples, options_.curves.confidence);
      per_byte = {static_cast<double>(median(one.samples).value) / x, static_cast<double>(i.low.value) / x,
                  static_cast<double>(i.high.value) / x};
    }
    scalar(found, "host_memory.pin_per_gib", "pin", times(per_byte, kGiB), count(found.series),
           several(found) ? "slope over " + sizes_text(found.series.size()) : "one size");
    for (const MeasuredSeries* one : found.series)
      residual(*one, Nanos{ceil_mul_div(result_.machine.host_memory.pin_per_gib.value, one->x, kGiB)});
  }
}

Estimate Calibrator::rate_per_second(const Found& found) const {
  Estimate ns;
  if (several(found)) {
    // Small work runs from caches or leaves units idle: the largest sizes (down to a sixteenth) decide.
    const std::vector<SampleGroup> all = groups(found.series);
    std::size_t first = all.size() - 1;
    while (first > 0 && (all[first - 1].x * 16 >= all.back().x || first + 3 > all.size())) --first;
    const std::span<const SampleGroup> large(all.data() + first, all.size() - first);
    const LineFit line = fit_line(large, options_.curves.confidence);
    if (line.slope.value > 0 && line.slope.low > 0) ns = line.slope;
  }
  if (ns.value <= 0) {  // one size, or times that do not grow with it: the largest decides
    const MeasuredSeries& one = *found.series.back();
    const NanosInterval i = median_interval(one.samples, options_.curves.confidence);
    const auto x = static_cast<double>(one.x);
    const auto per_x = [&](Nanos t) { return std::max(1.0, static_cast<double>(t.value)) / x; };
    ns = {per_x(median(one.samples)), per_x(i.low), per_x(i.high)};
  }
  return {1e9 / ns.value, 1e9 / ns.high, 1e9 / ns.low};
}

void Calibrator::share(const Found& found, const std::string& quantity, OpClass cls, bool compute,
                       const Estimate& rate, std::int64_t& peak, const std::string& peak_path) {
  Efficiency& efficiency = result_.machine.efficiency[static_cast<std::size_t>(cls)];
  Ppm& field = compute ? efficiency.compute : efficiency.memory;
  const std::string path = "efficiency." + std::string(op_class_name(cls));
  if (rate.value > static_cast<double>(peak)) {
    result_.notes.push_back(quantity + ": reaches more than the base's " + peak_path +
                            ", which was raised to it");
    scalar(found, peak_path, quantity, rate, count(found.series), "rate reached, above the base's peak");
  }
  const double per_ppm = static_cast<double>(peak) / 1e6;
  FittedFigure f;
  f.path = path;
  f.unit = "ppm";
  f.base = field;
  const auto ppm = [&](double value) {
    return std::clamp<std::int64_t>(rounded(value / per_ppm), 1, kUnchanged);
  };
  f.value = ppm(rate.value);
  f.low = ppm(rate.low);
  f.high = ppm(rate.high);
  f.samples = count(found.series);
  f.quantity = quantity;
  field = f.value;
  std::string other;
  for (const FigureSource& s : base_.sources)
    if (s.figure == path) other = s.status + ": " + s.source;
  figure(found, std::move(f),
         std::string(compute ? "compute" : "memory") + " share of " + peak_path + " (" + quantity +
             "); the " + (compute ? "memory" : "compute") + " share is the base's (" + other + ")");
  result_.figures.back().path += compute ? ".compute" : ".memory";
}

void Calibrator::fit_rates() {
  Machine& m = result_.machine;
  const std::pair<const char*, std::int64_t*> types[] = {{"bf16", &m.flop_rates.bf16},
                                                         {"fp16", &m.flop_rates.fp16},
                                                         {"tf32", &m.flop_rates.tf32},
                                                         {"fp32", &m.flop_rates.fp32},
                                                         {"fp64", &m.flop_rates.fp64}};
  bool done = false;
  for (const auto& [type, peak] : types) {
    const std::string quantity = std::string("gemm_") + type;
    const Found found = find(quantity);
    if (!found) continue;
    const Estimate rate = rate_per_second(found);
    // One share for all number formats: the first of these that was measured decides.
    if (!done) share(found, quantity, OpClass::matmul, true, rate, *peak, std::string("compute.") + type);
    done = true;
    const Ppm share = m.efficiency[static_cast<std::size_t>(OpClass::matmul)].compute;
    const double model = static_cast<double>(*peak) * static_cast<double>(share) / 1e6;
    for (const MeasuredSeries* one : found.series)
      residual(*one, std::max(m.kernel_floor, Nanos{rounded(static_cast<double>(one->x) / model * 1e9)}));
  }
  const bool has_stream = static_cast<bool>(find("stream_copy"));
  const std::string quantity = has_stream ? "stream_copy" : "copy_d2d";
  const Found found = find(quantity);
  if (!found) return;
  const double moved = has_stream ? 1 : 2;  // a copy within the device reads and writes
  share(found, quantity, OpClass::copy, false, times(rate_per_second(found), moved), m.hbm_bytes_per_second,
        "hbm.bandwidth");
  const Ppm share = m.efficiency[static_cast<std::size_t>(OpClass::copy)].memory;
  const double model = static_cast<double>(m.hbm_bytes_per_second) * static_cast<double>(share) / 1e6;
  for (const MeasuredSeries* one : found.series)
    residual(*one,
             std::max(m.kernel_floor, Nanos{rounded(static_cast<double>(one->x) * moved / model * 1e9)}));
}

}  // namespace swaplab
