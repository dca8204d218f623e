// Links, and what slows what beside it.
#include <algorithm>
#include <span>

#include "gpu_validate/calibrate/calibrator.hpp"
#include "sim/wide_math.hpp"

namespace swaplab {

void Calibrator::fit_link(Direction direction, bool pinned) {
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
  const std::string sizes = std::to_string(fit.points.size()) + (fit.points.size() == 1 ? " size" : " sizes");
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

void Calibrator::keep_latency(const std::string& path, const TransferTable& before) {
  for (const FigureSource& s : base_.sources) {
    if (s.figure != path + ".latency" && s.figure != path + ".table") continue;
    drop_source(s.figure);
    result_.machine.sources.push_back({path + ".latency", s.status, s.source});
    if (s.figure == path + ".table")
      result_.notes.push_back(path +
                              ": one size was measured, so the base's table gave way to its shortest time (" +
                              std::to_string(before.points().front().time.value) + " ns) and the bandwidth");
  }
}

std::vector<std::pair<const MeasuredSeries*, const MeasuredSeries*>> Calibrator::matched(
    const Found& alone, const Found& beside) {
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

Estimate Calibrator::rate_factor(
    const std::vector<std::pair<const MeasuredSeries*, const MeasuredSeries*>>& pairs,
    std::uint64_t number) const {
  std::vector<std::span<const Nanos>> samples;
  for (const auto& [alone, beside] : pairs) {
    samples.emplace_back(alone->samples);
    samples.emplace_back(beside->samples);
  }
  const auto statistic = [](std::span<const double> medians) {
    double sum = 0;
    for (std::size_t i = 0; i + 1 < medians.size(); i += 2) sum += medians[i + 1] / std::max(1.0, medians[i]);
    return 1e6 * static_cast<double>(medians.size()) / 2 / std::max(1e-6, sum);
  };
  return bootstrap_medians(samples, statistic, options_.curves.confidence, options_.resamples,
                           options_.seed * 1000 + number);
}

Nanos Calibrator::slowed(Nanos alone, Ppm rate) {
  return Nanos{ceil_mul_div(alone.value, kUnchanged, rate)};
}

void Calibrator::fit_duplex() {
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

void Calibrator::fit_kernels_beside_copies() {
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

void Calibrator::fit_peers() {
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

}  // namespace swaplab
