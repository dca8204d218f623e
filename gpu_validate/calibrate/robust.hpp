// Statistics that a few wild samples do not move: medians, their intervals, lines fitted to many of them.
// Everything is deterministic; random resampling takes a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trace/units.hpp"

namespace swaplab {

// Middle value; between two of them the lower half of the way (rounded down to a nanosecond). Not empty.
Nanos median(std::span<const Nanos> values);
// Median absolute deviation from the median; 1.4826 times it estimates a normal deviation.
Nanos median_absolute_deviation(std::span<const Nanos> values);

struct NanosInterval {
  Nanos low, high;
};
// Interval of the median from order statistics: the narrowest symmetric pair whose coverage under
// Binomial(n, 1/2) is at least `confidence`, whatever the distribution (David, Nagaraja, "Order
// statistics", 3rd ed. 2003, 7.1). With too few values for that (fewer than 6 at 95 %): least to greatest.
NanosInterval median_interval(std::span<const Nanos> values, double confidence);

struct Estimate {
  double value = 0, low = 0, high = 0;
};
// Centre of one group in ns. From 8 samples on: Tukey's bisquare M-estimate around the median (Huber,
// Ronchetti 2009, ch. 3), which samples that are late by chance do not pull upwards as they pull the median;
// interval by its asymptotic variance and Student's t. With fewer samples, or when half of them are equal
// (the clock's resolution): the median and its interval.
Estimate robust_center(std::span<const Nanos> values, double confidence);

// A statistic of the medians of several groups of samples. The interval is the percentile bootstrap:
// every group is resampled with replacement (Efron, Tibshirani 1993, ch. 13).
Estimate bootstrap_medians(const std::vector<std::span<const Nanos>>& groups,
                           const std::function<double(std::span<const double> medians)>& statistic,
                           double confidence, std::uint32_t resamples, std::uint64_t seed);

// Samples taken at one x.
struct SampleGroup {
  std::int64_t x = 0;
  std::span<const Nanos> samples;
};

// time = intercept + slope * x.
struct LineFit {
  Estimate intercept;  // ns
  Estimate slope;      // ns per unit of x
  std::size_t samples = 0;
  std::size_t rejected = 0;  // samples with no weight left in the end
};
// Weighted by each group's spread (of its own and its neighbours' samples; groups in order of x). Huber's
// weights find the line, Tukey's bisquare from there leaves one-sided outliers (a descheduled host, a busy
// link) without influence: an MM-type estimate (Yohai, Annals of Statistics 15, 1987) by iteratively
// reweighted least squares. Intervals: sandwich variance of the M-estimate (Huber, Ronchetti, "Robust
// statistics", 2nd ed. 2009, 7.6), Student's t. Needs at least two different x; throws Error(input)
// otherwise.
LineFit fit_line(std::span<const SampleGroup> groups, double confidence);

// Heights of a polyline with corners at xs[knots[k]] (increasing, the first and last x among them) nearest
// to (xs, ys) in least squares of the relative error.
std::vector<double> fit_polyline(std::span<const double> xs, std::span<const double> ys,
                                 std::span<const std::size_t> knots);

// The non-decreasing sequence nearest to `values` in weighted least squares (pool adjacent violators).
std::vector<double> isotonic(std::span<const double> values, std::span<const double> weights);

}  // namespace swaplab
