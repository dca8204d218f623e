#include "experiments/stats/statistics.hpp"

#include <algorithm>
#include <boost/math/distributions/beta.hpp>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "experiments/sweep/uncertainty.hpp"

namespace swaplab {
namespace {

constexpr std::size_t kMostExact = 50;

struct Moments {
  double mean, error;  // standard error of the mean
};

Moments moments(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {mean, values.size() < 2 ? 0.0 : std::sqrt(squares / (n - 1) / n)};
}

// Two-sided p of the smaller rank sum among `n` untied ranks: counts subsets of {1..n} by their sum.
double exact_p(std::size_t n, double statistic) {
  const std::size_t most = n * (n + 1) / 2;
  std::vector<double> ways(most + 1, 0.0);  // exact in a double: at most 2^50
  ways[0] = 1;
  for (std::size_t rank = 1; rank <= n; ++rank) {
    for (std::size_t sum = most; sum >= rank; --sum) ways[sum] += ways[sum - rank];
  }
  double below = 0;
  for (std::size_t sum = 0; static_cast<double>(sum) <= statistic && sum <= most; ++sum) below += ways[sum];
  return std::min(1.0, 2 * below / std::pow(2.0, static_cast<double>(n)));
}

}  // namespace

double quantile(std::span<const double> sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = place - std::floor(place);
  if (share == 0 || sorted[below] == sorted[above]) return sorted[below];
  return sorted[below] + share * (sorted[above] - sorted[below]);
}

Interval bootstrap_t_mean(std::span<const double> values, double confidence, std::uint32_t resamples,
                          std::uint64_t seed) {
  if (values.empty()) return {0, 0};
  const Moments sample = moments(values);
  // Differences of the last bit are no variance.
  if (values.size() < 2 || sample.error <= 1e-14 * std::max(1.0, std::fabs(sample.mean)))
    return {sample.mean, sample.mean};
  SplitMix64 random(seed_of(seed, "bootstrap", values.size()));
  std::vector<double> t(resamples), drawn(values.size());
  for (double& one : t) {
    for (double& v : drawn) v = values[random.below(values.size())];
    const Moments m = moments(drawn);
    const double difference = m.mean - sample.mean;
    // A resample without variance says "infinitely far": it widens the interval.
    one = m.error > 1e-14 * std::max(1.0, std::fabs(m.mean)) ? difference / m.error
          : difference == 0                                  ? 0.0
                                                             : std::copysign(1e9, difference);
  }
  std::sort(t.begin(), t.end());
  const double tail = (1 - confidence) / 2;
  return {sample.mean - quantile(t, 1 - tail) * sample.error, sample.mean - quantile(t, tail) * sample.error};
}

WilcoxonResult wilcoxon_signed_rank(std::span<const double> differences) {
  std::vector<double> left;
  for (const double d : differences) {
    if (d != 0) left.push_back(d);
  }
  WilcoxonResult result;
  result.counted = left.size();
  if (left.empty()) return result;
  std::sort(left.begin(), left.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); });
  double plus = 0, minus = 0, tie_term = 0;
  bool ties = false;
  for (std::size_t i = 0; i < left.size();) {
    std::size_t end = i;
    while (end < left.size() && std::fabs(left[end]) == std::fabs(left[i])) ++end;
    const double rank = (static_cast<double>(i + 1) + static_cast<double>(end)) / 2;
    const auto tied = static_cast<double>(end - i);
    ties |= end - i > 1;
    tie_term += tied * tied * tied - tied;
    for (; i < end; ++i) (left[i] > 0 ? plus : minus) += rank;
  }
  result.statistic = std::min(plus, minus);
  const auto n = static_cast<double>(left.size());
  result.exact = left.size() <= kMostExact && !ties;
  if (result.exact) {
    result.p = exact_p(left.size(), result.statistic);
    return result;
  }
  const double mean = n * (n + 1) / 4;
  const double variance = (n * (n + 1) * (2 * n + 1) - tie_term / 2) / 24;
  const double z = std::max(0.0, std::fabs(result.statistic - mean) - 0.5) / std::sqrt(variance);
  result.p = std::min(1.0, 2 * boost::math::cdf(boost::math::complement(boost::math::normal(), z)));
  return result;
}

std::vector<double> holm_adjust(std::span<const double> p_values) {
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double running = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    running = std::max(running, std::min(1.0, p_values[order[i]] * static_cast<double>(order.size() - i)));
    adjusted[order[i]] = running;
  }
  return adjusted;
}

Interval clopper_pearson(std::uint64_t successes, std::uint64_t trials, double confidence) {
  using boost::math::beta_distribution;
  const auto k = static_cast<double>(successes), n = static_cast<double>(trials);
  const double tail = (1 - confidence) / 2;
  Interval interval{0, 1};
  if (trials == 0) return interval;
  if (successes > 0) interval.low = boost::math::quantile(beta_distribution<double>(k, n - k + 1), tail);
  if (successes < trials)
    interval.high =
        boost::math::quantile(boost::math::complement(beta_distribution<double>(k + 1, n - k), tail));
  return interval;
}

}  // namespace swaplab
