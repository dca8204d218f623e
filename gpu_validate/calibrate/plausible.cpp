#include "gpu_validate/calibrate/plausible.hpp"

#include <algorithm>

namespace swaplab {
namespace {

// Fastest progress of a series in x per ns, as a number and in words; 0: its time says nothing about x.
struct Limit {
  std::int64_t per_ns = 0;
  const char* unit = "";
};
Limit limit_of(const MeasuredSeries& series) {
  const std::string_view q = series.quantity;
  if (series.unit == XUnit::flop) return {kFastestMath, "GFLOP/s"};
  if (q == "copy_d2d" || q == "stream_copy") return {kFastestMemory, "GB/s"};
  if (q.starts_with("copy_") || q.starts_with("allreduce_") || q == "pin") return {kFastestLink, "GB/s"};
  return {};
}

}  // namespace

Nanos least_time(const MeasuredSeries& series) {
  const Limit limit = limit_of(series);
  if (limit.per_ns == 0) return Nanos{1};
  return Nanos{std::max<std::int64_t>(1, (series.x + limit.per_ns - 1) / limit.per_ns)};
}

std::string ExcludedSamples::text() const {
  std::string text = file + ":" + (line > 0 ? std::to_string(line) + ":" : "") + " " + quantity;
  if (unit != XUnit::call) text += " at " + std::to_string(x) + " " + std::string(x_unit_name(unit));
  text += ": " + std::to_string(excluded) + " of " + std::to_string(of) + " samples ";
  text += whole_series ? "impossible, the series is excluded" : "excluded";
  return text + ": expected " + expected;
}

Measurements plausible(const Measurements& measurements, std::vector<ExcludedSamples>& excluded) {
  Measurements left = measurements;
  left.series.clear();
  for (const MeasuredSeries& one : measurements.series) {
    const Nanos least = least_time(one);
    const Limit limit = limit_of(one);
    MeasuredSeries kept = one;
    std::erase_if(kept.samples, [&](Nanos t) { return t < least || t > kLongestSample; });
    const std::size_t out = one.samples.size() - kept.samples.size();
    if (out == 0) {
      left.series.push_back(std::move(kept));
      continue;
    }
    ExcludedSamples e{
        measurements.file,         one.line, one.quantity, one.x, one.unit, out, one.samples.size(),
        kept.samples.size() < out, ""};
    const auto [smallest, largest] = std::minmax_element(one.samples.begin(), one.samples.end());
    if (*smallest < least) {
      e.expected = "at least " + std::to_string(least.value) + " ns";
      if (limit.per_ns != 0) e.expected += " (" + std::to_string(limit.per_ns) + " " + limit.unit + ")";
      e.expected += ", found " + std::to_string(smallest->value) + " ns";
    } else {
      e.expected = "at most an hour, found " + std::to_string(largest->value) + " ns";
    }
    if (!e.whole_series) left.series.push_back(std::move(kept));
    excluded.push_back(std::move(e));
  }
  return left;
}

}  // namespace swaplab
