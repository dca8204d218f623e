#include "gpu_validate/calibrate/robust.hpp"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <string>

#include "trace/error.hpp"
#include "trace/split_mix.hpp"

namespace swaplab {
namespace {

std::int64_t middle(std::vector<std::int64_t>& values) {
  if (values.empty()) throw Error(ErrorKind::invariant, "median of no values");
  const auto half = static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), values.begin() + half, values.end());
  const std::int64_t upper = values[static_cast<std::size_t>(half)];
  if (values.size() % 2 != 0) return upper;
  const std::int64_t lower = *std::max_element(values.begin(), values.begin() + half);
  return lower + (upper - lower) / 2;
}

}  // namespace

Nanos median(std::span<const Nanos> values) {
  std::vector<std::int64_t> copy;
  copy.reserve(values.size());
  for (const Nanos v : values) copy.push_back(v.value);
  return Nanos{middle(copy)};
}

Nanos median_absolute_deviation(std::span<const Nanos> values) {
  const Nanos center = median(values);
  std::vector<std::int64_t> distances;
  distances.reserve(values.size());
  for (const Nanos v : values) distances.push_back(std::abs((v - center).value));
  return Nanos{middle(distances)};
}

NanosInterval median_interval(std::span<const Nanos> values, double confidence) {
  std::vector<Nanos> sorted(values.begin(), values.end());
  if (sorted.empty()) throw Error(ErrorKind::invariant, "interval of no values");
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  // [x(k), x(n+1-k)] misses the median when fewer than k values lie on one side of it.
  const boost::math::binomial_distribution<double> side(static_cast<double>(n), 0.5);
  std::size_t k = 0;  // largest rank with 2 P(B <= k - 1) <= 1 - confidence
  while (k < n / 2 && 2 * boost::math::cdf(side, static_cast<double>(k)) <= 1 - confidence) ++k;
  return k == 0 ? NanosInterval{sorted.front(), sorted.back()} : NanosInterval{sorted[k - 1], sorted[n - k]};
}

Estimate robust_center(std::span<const Nanos> values, double confidence) {
  const auto start = static_cast<double>(median(values).value);
  const double scale = 1.4826 * static_cast<double>(median_absolute_deviation(values).value);
  if (values.size() < 8 || scale <= 0) {
    const NanosInterval i = median_interval(values, confidence);
    return {start, static_cast<double>(i.low.value), static_cast<double>(i.high.value)};
  }
  constexpr double kBisquare = 4.685;
  const auto part = [&](Nanos v, double center) {
    return (static_cast<double>(v.value) - center) / scale / kBisquare;
  };
  double center = start;
  for (int step = 0; step < 50; ++step) {
    double sum = 0, weights = 0;
    for (const Nanos v : values) {
      const double t = part(v, center);
      if (std::fabs(t) >= 1) continue;
      const double w = (1 - t * t) * (1 - t * t);
      weights += w;
      sum += w * (static_cast<double>(v.value) - start);
    }
    const double next = start + sum / weights;  // half the values are within one deviation: weights > 0
    if (std::fabs(next - center) <= 1e-9 * scale) break;
    center = next;
  }
  double square = 0, slope = 0;
  for (const Nanos v : values) {
    const double t = part(v, center);
    if (std::fabs(t) >= 1) continue;
    const double psi = t * (1 - t * t) * (1 - t * t);
    square += psi * psi;
    slope += (1 - t * t) * (1 - 5 * t * t);
  }
  const auto n = static_cast<double>(values.size());
  const double error = kBisquare * scale * std::sqrt(square * n / (n - 1)) / std::max(slope, 1e-9);
  const double half = error * boost::math::quantile(boost::math::students_t(n - 1), 0.5 + confidence / 2);
  return {center, center - half, center + half};
}

Estimate bootstrap_medians(const std::vector<std::span<const Nanos>>& groups,
                           const std::function<double(std::span<const double>)>& statistic, double confidence,
                           std::uint32_t resamples, std::uint64_t seed) {
  std::vector<double> medians(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) medians[g] = static_cast<double>(median(groups[g]).value);
  Estimate estimate;
  estimate.value = estimate.low = estimate.high = statistic(medians);
  if (resamples == 0) return estimate;
  SplitMix64 random(seed);
  std::vector<double> values(resamples);
  std::vector<std::int64_t> drawn;
  for (double& value : values) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      drawn.resize(groups[g].size());
      for (std::int64_t& d : drawn) d = groups[g][random.below(groups[g].size())].value;
      medians[g] = static_cast<double>(middle(drawn));
    }
    value = statistic(medians);
  }
  std::sort(values.begin(), values.end());
  const double tail = (1 - confidence) / 2;
  const auto at = [&](double q) {
    return values[static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
  };
  estimate.low = std::min(estimate.value, at(tail));
  estimate.high = std::max(estimate.value, at(1 - tail));
  return estimate;
}

std::vector<double> isotonic(std::span<const double> values, std::span<const double> weights) {
  struct Block {
    double mean, weight;
    std::size_t count;
  };
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < values.size(); ++i) {
    blocks.push_back({values[i], weights[i], 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].mean > blocks.back().mean) {
      const Block last = blocks.back();
      blocks.pop_back();
      Block& into = blocks.back();
      const double weight = into.weight + last.weight;
      into = {(into.mean * into.weight + last.mean * last.weight) / weight, weight, into.count + last.count};
    }
  }
  std::vector<double> fitted;
  fitted.reserve(values.size());
  for (const Block& block : blocks) fitted.insert(fitted.end(), block.count, block.mean);
  return fitted;
}

}  // namespace swaplab
