// The one source of randomness: SplitMix64, and integer mappings that are equal everywhere.
#pragma once

#include <cstdint>

namespace swaplab {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  // An independent stream for one application of one perturbation to one iteration: what else is applied
  // elsewhere does not change it.
  Random(std::uint64_t seed, std::uint64_t application, std::uint64_t iteration) : state_(seed) {
    state_ = next() ^ (application * 0xD1B54A32D192ED03u);
    state_ = next() ^ (iteration * 0x8CB92BA72F3D8DD7u);
    next();
  }
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // Uniform in [0, n) for 0 < n < 2^32, up to a bias of n / 2^32.
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(((next() >> 32) * n) >> 32); }
  bool chance(std::int64_t ppm) { return below(1'000'000) < static_cast<std::uint64_t>(ppm); }
  // Triangular in [-amplitude, amplitude]: the sum of two uniform halves, like the core of a timing noise.
  std::int64_t triangular(std::int64_t amplitude) {
    const auto n = static_cast<std::uint32_t>(amplitude + 1);
    return static_cast<std::int64_t>(below(n)) - static_cast<std::int64_t>(below(n));
  }

 private:
  std::uint64_t state_;
};

}  // namespace swaplab
