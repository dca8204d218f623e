// Seeded measurement noise, in integers: near-normal jitter and a heavy tail of late samples.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "trace/units.hpp"

namespace swaplab::test {

class Noise {
 public:
  explicit Noise(std::uint64_t seed) : random_(seed) {}

  // Sum of twelve uniforms, shifted: mean 0, deviation `ppm` parts per million.
  std::int64_t jitter_ppm(std::int64_t ppm) {
    std::int64_t sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<std::int64_t>(random_() >> 44);  // below 2^20
    return (sum - 6 * ((std::int64_t{1} << 20) - 1)) * ppm / (std::int64_t{1} << 20);
  }

  // `time` with jitter; one sample in `one_in` is late by a Pareto factor (shape 1, 10 % and more).
  Nanos sample(double time, std::int64_t ppm, std::uint64_t one_in) {
    double t = time * (1 + static_cast<double>(jitter_ppm(ppm)) / 1e6);
    if (one_in > 0 && random_() % one_in == 0) {
      const double u = static_cast<double>((random_() >> 40) + 1) / 16777217.0;
      t *= 1 + 0.1 / u;
    }
    return Nanos{static_cast<std::int64_t>(t + 0.5)};
  }

  std::vector<Nanos> samples(double time, std::size_t count, std::int64_t ppm, std::uint64_t one_in) {
    std::vector<Nanos> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(sample(time, ppm, one_in));
    return all;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace swaplab::test
