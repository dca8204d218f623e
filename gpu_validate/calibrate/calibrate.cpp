#include "gpu_validate/calibrate/calibrate.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "sim/machine_figures.hpp"
#include "sim/machine_io.hpp"
#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::int64_t rounded(double value) {
  return std::llround(std::clamp(value, 0.0, 4e18));
}

std::string base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

using SeriesList = std::vector<const MeasuredSeries*>;

// Series of one quantity, all from one input.
struct Found {
  const Measurements* input = nullptr;
  SeriesList series;
  explicit operator bool() const { return input != nullptr; }
};

class Calibrator {
 public:
  Calibrator(const std::vector<Measurements>& inputs, const Machine& base, const CalibrationOptions& options)
      : inputs_(inputs), base_(base), options_(options) {
    result_.machine = base;
  }

  Calibration run() {
    for (const bool pinned : {true, false})
      for (const Direction direction : {Direction::device_to_host, Direction::host_to_device})
        fit_link(direction, pinned);
    fit_duplex();
    fit_kernels_beside_copies();
    fit_host_costs();
    fit_allocation();
    fit_rates();
    fit_peers();
    list_unused();
    finish();
    return std::move(result_);
  }

 private:
  // ---- inputs

  Found find(const std::string& quantity) {
    Found found;
    for (const bool published : {false, true}) {
      for (const Measurements& input : inputs_) {
        if (found || input.published.empty() == published) continue;
        SeriesList series = input.of(quantity);
        if (!series.empty()) found = {&input, std::move(series)};
      }
    }
    if (found) {
      used_.insert(quantity);
      used_inputs_.insert(found.input);
    }
    return found;
  }

  static std::size_t count(const SeriesList& series) {
    std::size_t samples = 0;
    for (const MeasuredSeries* one : series) samples += one->samples.size();
    return samples;
  }

  static std::vector<SampleGroup> groups(const SeriesList& series) {
    std::vector<SampleGroup> all;
    for (const MeasuredSeries* one : series) all.push_back({one->x, one->samples});
    return all;
  }

  static std::vector<Nanos> pooled(const SeriesList& series) {
    std::vector<Nanos> all;
    for (const MeasuredSeries* one : series) all.insert(all.end(), one->samples.begin(), one->samples.end());
    return all;
  }

  // ---- results

  static const char* status_of(const Measurements& input) {
    return input.published.empty() ? "measured" : "published";
  }

  static std::string describe(const Measurements& input, const std::string& detail) {
    if (!input.published.empty()) return input.published + ": " + detail;
    const MeasuredDevice& d = input.device;
    return "measured " + d.date + " on " + d.name + ", driver " + d.driver + ", " + d.runtime + " (" +
           base_name(input.file) + "): " + detail;
  }

  void set_source(const std::string& path, const std::string& status, const std::string& source) {
    fitted_paths_.insert(path);
    for (FigureSource& s : result_.machine.sources) {
      if (s.figure != path) continue;
      s.status = status;
      s.source = source;
      return;
    }
    result_.machine.sources.push_back({path, status, source});
  }

  void drop_source(const std::string& path) {
    std::erase_if(result_.machine.sources, [&](const FigureSource& s) { return s.figure == path; });
  }

  static std::string interval_text(const FittedFigure& f, double confidence) {
    return std::to_string(std::llround(confidence * 100)) + " % interval " + std::to_string(f.low) + " to " +
           std::to_string(f.high) + " " + f.unit + ", " + std::to_string(f.samples) +
           (f.samples == 1 ? " sample" : " samples");
  }

  // Records a figure; `write` puts the value into the machine.
  void figure(const Found& from, FittedFigure f, const std::string& detail) {
    f.status = status_of(*from.input);
    f.low = std::min(f.low, f.value);
    f.high = std::max(f.high, f.value);
    set_source(f.path, f.status,
               describe(*from.input, detail + "; " + interval_text(f, options_.curves.confidence)));
    result_.figures.push_back(std::move(f));
  }

  // A scalar of the table of figures.
  void scalar(const Found& from, const std::string& path, const std::string& quantity, const Estimate& value,
              std::size_t samples, const std::string& detail) {
    const MachineFigure* found = nullptr;
    for (const MachineFigure& f : machine_figures())
      if (std::string(f.section) + "." + std::string(f.key) == path) found = &f;
    if (found == nullptr) throw Error(ErrorKind::invariant, "the profile has no figure " + path);
    std::int64_t& field = found->field(result_.machine);
    FittedFigure f;
    f.path = path;
    f.unit = base_unit_suffix(found->dimension);
    f.base = field;
    f.value = rounded(value.value);
    f.low = rounded(value.low);
    f.high = rounded(value.high);
    if (found->range != Range::non_negative) f.value = std::max<std::int64_t>(1, f.value);
    if (found->range == Range::fraction && f.value > kUnchanged) {
      result_.notes.push_back(path + ": measured at " + std::to_string(f.value) + " ppm, set to 100 %");
      f.value = kUnchanged;
    }
    f.samples = samples;
    f.quantity = quantity;
    field = f.value;
    figure(from, std::move(f), detail);
  }

  void residual(const MeasuredSeries& series, Nanos model) {
    Residual r;
    r.quantity = series.quantity;
    r.x = series.x;
    r.unit = series.unit;
    r.measured = std::max(median(series.samples), Nanos{1});
    const NanosInterval i = median_interval(series.samples, options_.curves.confidence);
    r.low = i.low;
    r.high = i.high;
    r.model = model;
    r.samples = series.samples.size();
    result_.residuals.push_back(std::move(r));
  }

  // ---- links

  void fit_link(Direction direction, bool pinned) {
    const std::string d = direction == Direction::device_to_host ? "d2h" : "h2d";
    const std::string quantity = "copy_" + d + (pinned ? "_pinned" : "_pageable");
    const Found found = find(quantity);
    if (!found) return;
    auto& tables = pinned ? result_.machine.pinned : result_.machine.pageable;
    TransferTable& table = tables[static_cast<std::size_t>(direction)];
    const TransferTable before = table;
    const Nanos latency = before.points().empty() ? Nanos{0} : before.points().front().time;
    const std::string path = (pinned ? "links." : "pageable_links.") + d;
    CurveFit fit = fit_curve(found.series, options_.curves, latency);
    table = fit.table;
    const std::string sizes =
        std::to_string(fit.points.size()) + (fit.points.size() == 1 ? " size" : " sizes");
    FittedFigure rate{path + ".bandwidth",
                      "bytes_per_s",
                      before.bytes_per_second(),
                      table.bytes_per_second(),
                      rounded(fit.bandwidth.low),
                      rounded(fit.bandwidth.high),
                      fit.samples,
                      quantity,
                      ""};
    figure(found, std::move(rate), (fit.line ? "line through " : "slope of the largest of ") + sizes);
    if (!fit.line) {
      drop_source(path + ".latency");
      set_source(
          path + ".table", status_of(*found.input),
          describe(*found.input, std::to_string(fit.table.points().size()) + " points kept of " + sizes));
    } else if (fit.points.size() > 1) {
      drop_source(path + ".table");
      FittedFigure f{path + ".latency",
                     "ns",
                     latency.value,
                     rounded(fit.latency.value),
                     rounded(fit.latency.low),
                     rounded(fit.latency.high),
                     fit.samples,
                     quantity,
                     ""};
      figure(found, std::move(f), "line through " + sizes);
    } else {
      keep_latency(path, before);
    }
    for (const MeasuredSeries* one : found.series) residual(*one, fit.table.time(Bytes{one->x}));
    result_.curves.push_back({quantity, path, std::move(fit)});
  }

  // One size tells no latency: the base's shortest copy stays.
  void keep_latency(const std::string& path, const TransferTable& before) {
    for (const FigureSource& s : base_.sources) {
      if (s.figure != path + ".latency" && s.figure != path + ".table") continue;
      drop_source(s.figure);
      result_.machine.sources.push_back({path + ".latency", s.status, s.source});
      if (s.figure == path + ".table")
        result_.notes.push_back(
            path + ": one size was measured, so the base's table gave way to its shortest time (" +
            std::to_string(before.points().front().time.value) + " ns) and the bandwidth");
    }
  }

  // ---- rates beside other work

  // Pairs of the same x; of sizes only those that count (large copies, long kernels) when there are such.
  static std::vector<std::pair<const MeasuredSeries*, const MeasuredSeries*>> matched(const Found& alone,
                                                                                      const Found& beside) {
    std::vector<std::pair<const MeasuredSeries*, const MeasuredSeries*>> all, large;
    for (const MeasuredSeries* b : beside.series) {
      for (const MeasuredSeries* a : alone.series) {
        if (a->x != b->x || a->unit != b->unit || median(a->samples) <= Nanos{0}) continue;
        all.emplace_back(a, b);
        const bool counts = a->unit == XUnit::bytes ? a->x >= kMiB : median(a->samples) >= Nanos{20'000};
        if (counts) large.emplace_back(a, b);
      }
    }
    return large.empty() ? all : large;
  }

  // 1 / mean of (time beside / time alone), in ppm: the rate factor with the mean slow-down.
  Estimate rate_factor(const std::vector<std::pair<const MeasuredSeries*, const MeasuredSeries*>>& pairs,
                       std::uint64_t number) const {
    std::vector<std::span<const Nanos>> samples;
    for (const auto& [alone, beside] : pairs) {
      samples.emplace_back(alone->samples);
      samples.emplace_back(beside->samples);
    }
    const auto statistic = [](std::span<const double> medians) {
      double sum = 0;
      for (std::size_t i = 0; i + 1 < medians.size(); i += 2)
        sum += medians[i + 1] / std::max(1.0, medians[i]);
      return 1e6 * static_cast<double>(medians.size()) / 2 / std::max(1e-6, sum);
    };
    return bootstrap_medians(samples, statistic, options_.curves.confidence, options_.resamples,
                             options_.seed * 1000 + number);
  }

  static Nanos slowed(Nanos alone, Ppm rate) { return Nanos{ceil_mul_div(alone.value, kUnchanged, rate)}; }

  void fit_duplex() {
    for (const std::string d : {"d2h", "h2d"}) {
      const std::string quantity = "copy_" + d + "_duplex";
      const Found beside = find(quantity), alone = find("copy_" + d + "_pinned");
      if (!beside || !alone) continue;
      const auto pairs = matched(alone, beside);
      if (pairs.empty()) {
        result_.notes.push_back(quantity + ": no size was measured alone, too; not used");
        continue;
      }
      std::size_t samples = 0;
      for (const auto& pair : pairs) samples += pair.second->samples.size();
      const std::string path = d == "d2h" ? "interference.d2h_during_h2d" : "interference.h2d_during_d2h";
      scalar(beside, path, quantity, rate_factor(pairs, d == "d2h" ? 1 : 2), samples,
             "time alone over time beside the other direction at " + sizes_text(pairs.size()));
      const Interference& i = result_.machine.interference;
      const Direction direction = d == "d2h" ? Direction::device_to_host : Direction::host_to_device;
      for (const MeasuredSeries* one : beside.series)
        residual(*one, slowed(result_.machine.link(direction).time(Bytes{one->x}),
                              d == "d2h" ? i.d2h_during_h2d : i.h2d_during_d2h));
    }
  }

  static std::string sizes_text(std::size_t count) {
    return std::to_string(count) + (count == 1 ? " size" : " sizes");
  }

  // The profile has one factor per direction: the mean slow-down over the kernel classes measured.
  void fit_kernels_beside_copies() {
    for (const std::string d : {"d2h", "h2d"}) {
      std::vector<std::pair<const MeasuredSeries*, const MeasuredSeries*>> pairs;
      Found input;
      std::string quantities;
      std::size_t samples = 0;
      for (const std::string kernel : {"compute", "memory"}) {
        const std::string quantity = "kernel_" + kernel + "_beside_" + d;
        const Found beside = find(quantity);
        if (!beside) continue;
        const Found alone = find("kernel_" + kernel);
        if (!alone) continue;
        const auto some = matched(alone, beside);
        pairs.insert(pairs.end(), some.begin(), some.end());
        for (const auto& pair : some) samples += pair.second->samples.size();
        input = beside;
        quantities += (quantities.empty() ? "" : ", ") + quantity;
      }
      if (pairs.empty()) continue;
      scalar(input, "interference.kernel_during_" + d, quantities, rate_factor(pairs, d == "d2h" ? 3 : 4),
             samples, "mean slow-down over " + quantities);
    }
    const Interference& i = result_.machine.interference;
    for (const std::string kernel : {"compute", "memory"}) {
      for (const std::string beside : {"d2h", "h2d", "both"}) {
        const Found measured = find("kernel_" + kernel + "_beside_" + beside);
        if (!measured) continue;
        const Found alone = find("kernel_" + kernel);
        const Ppm rate = beside == "both"  ? std::min(i.kernel_during_d2h, i.kernel_during_h2d)
                         : beside == "d2h" ? i.kernel_during_d2h
                                           : i.kernel_during_h2d;
        for (const MeasuredSeries* b : measured.series)
          for (const MeasuredSeries* a : alone.series)
            if (a->x == b->x) residual(*b, slowed(median(a->samples), rate));
      }
    }
  }

  // ---- costs

  // The centre of all samples of a cost that has no size in the profile.
  void constant(const std::string& quantity, const std::string& path, std::int64_t from_x = 0,
                std::int64_t to_x = std::int64_t{1} << 62) {
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

  void fit_host_costs() {
    constant("launch_latency", "host.launch_latency");
    constant("host_copy_submit", "host.copy_submit");
    constant("host_event_record", "host.event_record");
    constant("host_event_wait", "host.event_wait");
    constant("host_event_query", "host.event_query");
    constant("host_synchronize", "host.sync_resume");
    constant("kernel_empty", "compute.kernel_floor");
    if (options_.dispatch_is_launch) constant("host_launch", "host.op_dispatch");
  }

  static Estimate times(const Estimate& e, double factor) {
    return {e.value * factor, e.low * factor, e.high * factor};
  }
  static bool several(const Found& found) {
    return found.series.size() > 1 && found.series.front()->x != found.series.back()->x;
  }

  void fit_allocation() {
    if (const Found found = find("host_malloc"); found && several(found)) {
      const LineFit line = fit_line(groups(found.series), options_.curves.confidence);
      const std::string detail = "line through " + sizes_text(found.series.size());
      scalar(found, "host.device_malloc", "host_malloc", line.intercept, line.samples, detail);
      scalar(found, "host.device_malloc_per_gib", "host_malloc", times(line.slope, kGiB), line.samples,
             detail);
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

  // ---- device rates

  // x per second, of the slope over x where there are several.
  Estimate rate_per_second(const Found& found) const {
    Estimate ns;
    if (several(found)) {
      const LineFit line = fit_line(groups(found.series), options_.curves.confidence);
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

  // Sets a class's share of a peak rate. A rate above the peak raises the peak instead.
  void share(const Found& found, const std::string& quantity, OpClass cls, bool compute, const Estimate& rate,
             std::int64_t& peak, const std::string& peak_path) {
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

  void fit_rates() {
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

  // ---- what has no place in the profile yet

  void fit_peers() {
    std::set<std::string> names;
    for (const Measurements& input : inputs_)
      for (const MeasuredSeries& one : input.series)
        if (one.quantity.starts_with("copy_p2p_") || one.quantity.starts_with("allreduce_"))
          names.insert(one.quantity);
    for (const std::string& quantity : names) {
      const Found found = find(quantity);
      CurveFit fit = fit_curve(found.series, options_.curves, Nanos{0});
      for (const MeasuredSeries* one : found.series) residual(*one, fit.table.time(Bytes{one->x}));
      result_.curves.push_back({quantity, "", std::move(fit)});
    }
  }

  void list_unused() {
    std::map<std::string, std::string> reasons;
    for (const std::string d : {"h2d", "d2h"})
      for (const std::string kernel : {"compute", "memory"})
        reasons["copy_" + d + "_beside_" + kernel] =
            "the profile slows kernels beside copies, not copies beside kernels";
    reasons["host_launch"] =
        "an eager framework's dispatch is more than a launch; --op-dispatch launch uses it";
    reasons["host_malloc_async"] = reasons["host_free_async"] =
        "the simulated allocators reserve device memory with malloc or mapping";
    reasons["copy_d2d"] = "stream_copy was measured, too";
    std::set<std::string> seen;
    for (const Measurements& input : inputs_) {
      for (const MeasuredSeries& one : input.series) {
        if (used_.contains(one.quantity) || !seen.insert(one.quantity).second) continue;
        const auto reason = reasons.find(one.quantity);
        result_.unused.push_back(
            {one.quantity, reason == reasons.end() ? "nothing measured to compare it with" : reason->second});
      }
    }
  }

  void finish() {
    Machine& m = result_.machine;
    m.name = options_.name.empty() ? base_.name + "-calibrated" : options_.name;
    std::string from;
    for (const Measurements& input : inputs_) {
      if (!used_inputs_.contains(&input)) continue;
      from += (from.empty() ? "" : "; ") +
              (input.published.empty() ? input.device.name + ", " + input.device.date : input.published);
    }
    m.summary = base_.summary + "; calibrated: " + from;
    for (const FigureSource& s : base_.sources) {
      const bool kept = !fitted_paths_.contains(s.figure) &&
                        std::any_of(m.sources.begin(), m.sources.end(),
                                    [&](const FigureSource& now) { return now.figure == s.figure; });
      if (kept) result_.kept.push_back(s);
    }
    // Canonical order of the sources, and proof that the file will be accepted.
    m = parse_machine(machine_json(m), "the calibrated machine");
  }

  const std::vector<Measurements>& inputs_;
  const Machine& base_;
  CalibrationOptions options_;
  Calibration result_;
  std::set<std::string> used_;  // quantities
  std::set<const Measurements*> used_inputs_;
  std::set<std::string> fitted_paths_;  // figures
};

}  // namespace

Calibration calibrate(const std::vector<Measurements>& inputs, const Machine& base,
                      const CalibrationOptions& options) {
  std::size_t series = 0;
  for (const Measurements& input : inputs) series += input.series.size();
  if (series == 0) throw Error(ErrorKind::input, "nothing was measured: no input holds a series");
  return Calibrator(inputs, base, options).run();
}

}  // namespace swaplab
