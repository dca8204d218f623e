// SplitMix64: a counter made random, the same on every machine and compiler. Steele, Lea, Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014.
#pragma once

#include <cstdint>

namespace swaplab {

class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  // In [0, bound), without bias beyond 2^-64 (multiply-shift).
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Unsigned = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Unsigned>(next()) * bound) >> 64);
  }

 private:
  std::uint64_t state_;
};

}  // namespace swaplab
