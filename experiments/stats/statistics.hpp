// Statistics of paired comparisons.
//
// A deterministic simulator has no run-to-run variance: repeating a run says nothing. The sampling unit
// is the trace; budgets, machines and seeds of one trace are averaged first (on the logarithm of the
// ratio), so that a trace with many of them counts once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace swaplab {

struct Interval {
  double low, high;
};

// Bootstrap-t interval of a mean (Efron, Tibshirani, "An introduction to the bootstrap", 1993, ch. 12.5):
// resamples studentised by their own standard error. Holds its coverage for small samples better than
// the percentile and BCa intervals (tests/experiments/test_stats.cpp measures it). Deterministic in
// `seed`. With fewer than two values, or values that are all equal: the value itself.
Interval bootstrap_t_mean(std::span<const double> values, double confidence, std::uint32_t resamples,
                          std::uint64_t seed);

struct WilcoxonResult {
  double statistic = 0;     // min(W+, W-), as SciPy's two-sided statistic
  double p = 1;             // two-sided
  std::size_t counted = 0;  // differences that are not zero
  bool exact = false;
};
// Signed-rank test that the differences are symmetric about zero. Zeros are dropped (Wilcoxon's rule).
// Exact when at most 50 differences remain and no two are equal in size, else the normal approximation
// with tie correction and continuity correction. p = 1 when nothing remains.
WilcoxonResult wilcoxon_signed_rank(std::span<const double> differences);

// Holm's step-down adjustment; the result is in the order of the input.
std::vector<double> holm_adjust(std::span<const double> p_values);

// Two-sided Clopper-Pearson interval of a proportion.
Interval clopper_pearson(std::uint64_t successes, std::uint64_t trials, double confidence);

// The q-quantile of sorted values, linear between order statistics (Hyndman and Fan's type 7).
double quantile(std::span<const double> sorted, double q);

}  // namespace swaplab
