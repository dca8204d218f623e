#include "gpu_validate/calibrate/curve_fit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr double kNanosPerSecond = 1e9;
constexpr double kFastest = 4e18;       // bytes/s; keeps rates inside 64 bits
constexpr double kMostNoise = 10;       // times the tolerance
constexpr std::int64_t kTailSpan = 16;  // sizes down to a sixteenth of the largest tell the final rate

Nanos whole(double ns) {
  return Nanos{static_cast<std::int64_t>(std::llround(std::max(1.0, ns)))};
}

double rate_of(double ns_per_byte) {
  return ns_per_byte <= 0 ? kFastest : std::clamp(kNanosPerSecond / ns_per_byte, 1.0, kFastest);
}

Estimate rate_of(const Estimate& ns_per_byte) {
  return {rate_of(ns_per_byte.value), rate_of(ns_per_byte.high), rate_of(ns_per_byte.low)};
}

class Fitter {
 public:
  Fitter(const std::vector<const MeasuredSeries*>& series, const CurveOptions& options, Nanos base_latency)
      : options_(options), base_latency_(base_latency) {
    if (series.empty()) throw Error(ErrorKind::input, "a curve needs measurements at one size at least");
    for (const MeasuredSeries* one : series) {
      groups_.push_back({one->x, one->samples});
      // Nothing takes no time; a clock may say so.
      const Nanos time = std::max(median(one->samples), Nanos{1});
      fit_.points.push_back(
          {Bytes{one->x}, time, median_interval(one->samples, options.confidence), one->samples.size()});
      fit_.samples += one->samples.size();
    }
  }

  CurveFit run() {
    if (groups_.size() == 1) {
      from_one_size();
      return std::move(fit_);
    }
    const LineFit line = fit_line(groups_, options_.confidence);
    const bool usable = line.slope.value > 0 && line.intercept.high >= 0;
    if (options_.form == CurveForm::line && !usable)
      throw Error(ErrorKind::input, "no line with a latency and a bandwidth fits these times; use a table");
    if (options_.form == CurveForm::line ||
        (options_.form == CurveForm::automatic && usable && line_is_close(line))) {
      from_line(line);
    } else {
      from_corners();
    }
    return std::move(fit_);
  }

 private:
  double x(std::size_t i) const { return static_cast<double>(fit_.points[i].bytes.value); }
  double y(std::size_t i) const { return static_cast<double>(fit_.points[i].time.value); }
  // How far the model may be above and below a point, in ns. Noise excuses only so much: a point that
  // scatters wildly still has a median.
  double allowed(std::size_t i, Nanos noise) const {
    const double most = kMostNoise * options_.tolerance * y(i);
    return std::max({options_.tolerance * y(i), std::min(static_cast<double>(noise.value), most), 0.5});
  }
  double above(std::size_t i) const { return allowed(i, fit_.points[i].interval.high - fit_.points[i].time); }
  double below(std::size_t i) const { return allowed(i, fit_.points[i].time - fit_.points[i].interval.low); }
  bool is_near(std::size_t i, double model, double height) const {
    return model <= height + above(i) && model >= height - below(i);
  }

  void from_one_size() {
    const double t = y(0);
    auto latency = static_cast<double>(base_latency_.value);
    if (latency >= t) latency = 0;
    const NanosInterval& i = fit_.points[0].interval;
    const auto rate = [&](Nanos time) {
      return rate_of(std::max(1.0, static_cast<double>(time.value) - latency) / x(0));
    };
    fit_.line = true;
    fit_.latency = {latency, latency, latency};
    fit_.bandwidth = {rate(fit_.points[0].time), rate(i.high), rate(i.low)};
    make_line_table();
  }

  bool line_is_close(const LineFit& line) const {
    const double intercept = std::max(0.0, line.intercept.value);
    for (std::size_t i = 0; i < fit_.points.size(); ++i)
      if (!is_near(i, intercept + line.slope.value * x(i), y(i))) return false;
    return true;
  }

  void from_line(const LineFit& line) {
    fit_.line = true;
    fit_.rejected = line.rejected;
    fit_.latency = line.intercept;
    for (double* ns : {&fit_.latency.value, &fit_.latency.low, &fit_.latency.high}) *ns = std::max(0.0, *ns);
    fit_.bandwidth = rate_of(line.slope);
    make_line_table();
  }

  void make_line_table() {
    std::vector<TransferPoint> points;
    const Nanos latency{static_cast<std::int64_t>(std::llround(fit_.latency.value))};
    if (latency > Nanos{0}) points.push_back({Bytes{0}, latency});
    fit_.table = TransferTable(std::move(points), std::llround(fit_.bandwidth.value));
  }

  // Fewest corners: shortest path over the points, where (i, j) is an edge when the chord from i to j
  // passes every point between them closely enough. The slopes that do form an interval which shrinks
  // as j advances, so all edges are found in quadratic time.
  std::vector<std::size_t> corners(const std::vector<double>& heights) const {
    const std::size_t n = heights.size();
    std::vector<std::size_t> length(n, std::numeric_limits<std::size_t>::max()), before(n, 0);
    length[0] = 0;
    for (std::size_t i = 0; i + 1 < n; ++i) {
      double low = -std::numeric_limits<double>::infinity(), high = -low;
      for (std::size_t j = i + 1; j < n && low <= high; ++j) {
        const double run = x(j) - x(i), rise = heights[j] - heights[i];
        if (low <= rise / run && rise / run <= high && length[i] + 1 < length[j]) {
          length[j] = length[i] + 1;
          before[j] = i;
        }
        low = std::max(low, (rise - below(j)) / run);
        high = std::min(high, (rise + above(j)) / run);
      }
    }
    std::vector<std::size_t> path{n - 1};
    while (path.back() != 0) path.push_back(before[path.back()]);
    std::reverse(path.begin(), path.end());
    return path;
  }

  void from_corners() {
    const std::size_t n = fit_.points.size();
    std::vector<double> xs(n), ys(n), weights(n);
    for (std::size_t i = 0; i < n; ++i) {
      xs[i] = x(i);
      ys[i] = y(i);
      // In relative error, with more samples counting for more.
      weights[i] = static_cast<double>(fit_.points[i].samples) / (ys[i] * ys[i]);
    }
    const std::vector<double> heights = isotonic(ys, weights);
    const std::vector<std::size_t> knots = corners(heights);
    std::vector<double> through;
    through.reserve(knots.size());
    for (const std::size_t k : knots) through.push_back(heights[k]);
    // All points, not only the corners, should decide the heights, where that keeps every point close.
    const std::vector<double> equal(knots.size(), 1.0);
    const std::vector<double> fitted = isotonic(fit_polyline(xs, heights, knots), equal);
    const std::vector<double>& chosen = is_close(xs, heights, knots, fitted) ? fitted : through;
    std::vector<TransferPoint> points;
    for (std::size_t k = 0; k < knots.size(); ++k)
      points.push_back({fit_.points[knots[k]].bytes, whole(chosen[k])});
    estimate_tail(points);
    fit_.table = TransferTable(std::move(points), std::llround(fit_.bandwidth.value));
  }

  bool is_close(const std::vector<double>& xs, const std::vector<double>& heights,
                const std::vector<std::size_t>& knots, const std::vector<double>& at_knots) const {
    for (std::size_t k = 0; k + 1 < knots.size(); ++k) {
      if (at_knots[k] < 1) return false;
      for (std::size_t i = knots[k]; i <= knots[k + 1]; ++i) {
        const double share = (xs[i] - xs[knots[k]]) / (xs[knots[k + 1]] - xs[knots[k]]);
        const double model = at_knots[k] + share * (at_knots[k + 1] - at_knots[k]);
        if (!is_near(i, model, heights[i])) return false;
      }
    }
    return true;
  }

  // The rate beyond the largest size: slope over the largest sizes, unless that is out of all proportion
  // (a step among noisy sizes).
  void estimate_tail(const std::vector<TransferPoint>& points) {
    std::size_t first = groups_.size() - 1;
    while (first > 0 && (groups_[first - 1].x * kTailSpan >= groups_.back().x || first + 3 > groups_.size()))
      --first;
    const std::span<const SampleGroup> tail(groups_.data() + first, groups_.size() - first);
    const double run = x(groups_.size() - 1);
    const auto rise = static_cast<double>((points.back().time - points.front().time).value);
    const double mean = rate_of(std::max(1.0, rise) / run);
    const LineFit line = fit_line(tail, options_.confidence);
    const Estimate slope = rate_of(line.slope);
    fit_.rejected = line.rejected;
    fit_.bandwidth = slope.value > 2 * mean || slope.value < mean / 2 ? Estimate{mean, mean, mean} : slope;
  }

  CurveOptions options_;
  Nanos base_latency_;
  std::vector<SampleGroup> groups_;
  CurveFit fit_;
};

}  // namespace

std::string_view curve_form_name(CurveForm form) {
  constexpr std::string_view names[] = {"auto", "line", "table"};
  return names[static_cast<std::size_t>(form)];
}

double CurveFit::error_at(const CurvePoint& point) const {
  const auto model = static_cast<double>(table.time(point.bytes).value);
  return model / static_cast<double>(point.time.value) - 1;
}

double CurveFit::largest_error() const {
  double largest = 0;
  for (const CurvePoint& point : points) largest = std::max(largest, std::fabs(error_at(point)));
  return largest;
}

std::optional<double> CurveFit::mean_error(Bytes from, Bytes below) const {
  double sum = 0;
  std::size_t count = 0;
  for (const CurvePoint& point : points) {
    if (point.bytes < from || point.bytes >= below) continue;
    sum += std::fabs(error_at(point));
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

CurveFit fit_curve(const std::vector<const MeasuredSeries*>& series, const CurveOptions& options,
                   Nanos base_latency) {
  return Fitter(series, options, base_latency).run();
}

}  // namespace swaplab
