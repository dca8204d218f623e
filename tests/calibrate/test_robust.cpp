#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "gpu_validate/calibrate/robust.hpp"
#include "tests/calibrate/noise.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

std::vector<Nanos> nanos(std::initializer_list<std::int64_t> values) {
  std::vector<Nanos> all;
  for (const std::int64_t v : values) all.push_back(Nanos{v});
  return all;
}

TEST_CASE("medians and deviations by hand") {
  CHECK(median(nanos({5})) == Nanos{5});
  CHECK(median(nanos({9, 1, 5})) == Nanos{5});
  CHECK(median(nanos({1, 2, 4, 1000})) == Nanos{3});
  CHECK(median(nanos({4, 1})) == Nanos{2});
  CHECK(median_absolute_deviation(nanos({1, 1, 2, 2, 4, 6, 9})) == Nanos{1});
  CHECK(median_absolute_deviation(nanos({7, 7, 7, 900})) == Nanos{0});
}

TEST_CASE("order-statistic intervals use the published ranks") {
  // Ranks at 95 %: n = 6: 1 and 6; n = 20: 6 and 15; n = 50: 18 and 33; below 6 none suffices.
  const auto ranks = [](std::int64_t n) {
    std::vector<Nanos> values;
    for (std::int64_t i = n; i >= 1; --i) values.push_back(Nanos{i});
    const NanosInterval i = median_interval(values, 0.95);
    return std::pair{i.low.value, i.high.value};
  };
  CHECK(ranks(1) == std::pair<std::int64_t, std::int64_t>{1, 1});
  CHECK(ranks(5) == std::pair<std::int64_t, std::int64_t>{1, 5});
  CHECK(ranks(6) == std::pair<std::int64_t, std::int64_t>{1, 6});
  CHECK(ranks(20) == std::pair<std::int64_t, std::int64_t>{6, 15});
  CHECK(ranks(50) == std::pair<std::int64_t, std::int64_t>{18, 33});
}

TEST_CASE("a line without noise is found exactly, whatever the outliers") {
  std::vector<std::vector<Nanos>> samples;
  std::vector<SampleGroup> groups;
  for (std::int64_t x = 1000; x <= 100'000'000; x *= 10) {
    const std::int64_t t = 2000 + x / 25;
    samples.push_back(nanos({t, t, t, t, 100 * t, t, t, 7 * t, t}));
  }
  std::int64_t x = 1000;
  for (const auto& s : samples) {
    groups.push_back({x, s});
    x *= 10;
  }
  const LineFit fit = fit_line(groups, 0.95);
  CHECK(fit.intercept.value == doctest::Approx(2000).epsilon(1e-6));
  CHECK(fit.slope.value == doctest::Approx(0.04).epsilon(1e-9));
  CHECK(fit.rejected == 12);
  CHECK(fit.samples == 54);
  CHECK_THROWS_AS(fit_line(std::vector<SampleGroup>{groups[0], groups[0]}, 0.95), Error);
}

TEST_CASE("intervals of a fitted line hold the truth as often as they say, without bias") {
  int intercept_in = 0, slope_in = 0;
  double intercept_bias = 0, slope_bias = 0, intercept_width = 0, slope_width = 0;
  constexpr int kSeeds = 400;
  for (int seed = 0; seed < kSeeds; ++seed) {
    test::Noise noise(static_cast<std::uint64_t>(seed));
    std::vector<std::vector<Nanos>> samples;
    std::vector<std::int64_t> sizes;
    for (std::int64_t x = 1 << 10; x <= 1 << 28; x *= 4) {
      sizes.push_back(x);
      samples.push_back(noise.samples(8000 + static_cast<double>(x) / 12.4, 20, 15'000, 20));
    }
    std::vector<SampleGroup> groups;
    for (std::size_t i = 0; i < sizes.size(); ++i) groups.push_back({sizes[i], samples[i]});
    const LineFit fit = fit_line(groups, 0.95);
    intercept_in += fit.intercept.low <= 8000 && 8000 <= fit.intercept.high ? 1 : 0;
    slope_in += fit.slope.low <= 1 / 12.4 && 1 / 12.4 <= fit.slope.high ? 1 : 0;
    intercept_bias += (fit.intercept.value - 8000) / kSeeds;
    slope_bias += (fit.slope.value - 1 / 12.4) / kSeeds;
    intercept_width += (fit.intercept.high - fit.intercept.low) / 2 / kSeeds;
    slope_width += (fit.slope.high - fit.slope.low) / 2 / kSeeds;
  }
  MESSAGE("95 % intervals over 400 seeds: intercept ", intercept_in, ", slope ", slope_in,
          "; bias over half width ", intercept_bias / intercept_width, ", ", slope_bias / slope_width);
  // 400 draws at 95 %: 380 expected, deviation 4.4.
  CHECK(intercept_in >= 364);
  CHECK(slope_in >= 364);
  CHECK(intercept_in < kSeeds);
  CHECK(slope_in < kSeeds);
  CHECK(std::fabs(intercept_bias) < 0.15 * intercept_width);
  CHECK(std::fabs(slope_bias) < 0.15 * slope_width);
}

TEST_CASE("a ratio of medians is covered by its bootstrap interval; equal seeds give equal intervals") {
  int in = 0;
  constexpr int kSeeds = 300;
  const auto ratio = [](std::span<const double> m) { return 2 / (m[1] / m[0] + m[3] / m[2]); };
  for (int seed = 0; seed < kSeeds; ++seed) {
    test::Noise noise(static_cast<std::uint64_t>(seed) + 1000);
    const auto a = noise.samples(1e6, 20, 10'000, 20), b = noise.samples(1e6 / 0.7, 20, 10'000, 20);
    const auto c = noise.samples(9e6, 20, 10'000, 20), d = noise.samples(9e6 / 0.7, 20, 10'000, 20);
    const Estimate e = bootstrap_medians({a, b, c, d}, ratio, 0.95, 400, static_cast<std::uint64_t>(seed));
    in += e.low <= 0.7 && 0.7 <= e.high ? 1 : 0;
    if (seed == 0) {
      const Estimate again = bootstrap_medians({a, b, c, d}, ratio, 0.95, 400, 0);
      CHECK(again.low == e.low);
      CHECK(again.high == e.high);
      CHECK(bootstrap_medians({a, b, c, d}, ratio, 0.95, 400, 1).low != e.low);
    }
  }
  MESSAGE("95 % bootstrap intervals of a ratio over 300 seeds: ", in);
  CHECK(in >= 270);
  CHECK(in < kSeeds);
}

TEST_CASE("pool adjacent violators") {
  const std::vector<double> values{1, 3, 2, 2, 5, 4}, weights{1, 1, 1, 1, 1, 3};
  const std::vector<double> fitted = isotonic(values, weights);
  const std::vector<double> expected{1, 7.0 / 3, 7.0 / 3, 7.0 / 3, 4.25, 4.25};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(fitted[i] == doctest::Approx(expected[i]));
}

}  // namespace
}  // namespace swaplab
