#include "policy/chameleon/sequence.hpp"

#include <algorithm>

#include "sim/wide_math.hpp"

namespace swaplab::chameleon {

bool lengths_differ(std::size_t reference, std::size_t now, Ppm share) {
  const std::size_t difference = reference > now ? reference - now : now - reference;
  if (difference == 0) return share == 0;
  return static_cast<Wide>(difference) * kUnchanged >= static_cast<Wide>(reference) * share;
}

bool cosine_below(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, Similarity kind,
                  Ppm threshold) {
  std::vector<std::uint64_t> x(a.begin(), a.end()), y(b.begin(), b.end());
  if (kind == Similarity::counts) {
    const auto count = [](std::span<const std::uint32_t> tokens) {
      std::vector<std::uint64_t> counts;
      for (const std::uint32_t t : tokens) {
        if (t >= counts.size()) counts.resize(t + 1, 0);
        ++counts[t];
      }
      return counts;
    };
    x = count(a);
    y = count(b);
  }
  const std::size_t n = std::max(x.size(), y.size());
  x.resize(n, 0);
  y.resize(n, 0);
  std::uint64_t dot = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < n; ++i) {
    dot += x[i] * y[i];
    xx += x[i] * x[i];
    yy += y[i] * y[i];
  }
  if (xx == 0 || yy == 0) return xx != yy && threshold > 0;
  // A common factor changes nothing; it keeps the products within 128 bits.
  while (std::max({dot, xx, yy}) > 10'000'000'000'000ULL) dot >>= 1, xx >>= 1, yy >>= 1;
  // dot^2 / (xx yy) < (threshold / 10^6)^2
  return static_cast<Wide>(dot) * static_cast<Wide>(dot) * kUnchanged * kUnchanged <
         static_cast<Wide>(threshold) * threshold * static_cast<Wide>(xx) * static_cast<Wide>(yy);
}

bool sequences_differ(std::span<const std::uint32_t> reference, std::span<const std::uint32_t> now,
                      const DetectorParams& params) {
  if (params.detector == Detector::off) return false;
  if (lengths_differ(reference.size(), now.size(), params.length_ppm)) return true;
  return params.detector == Detector::length_and_cosine &&
         cosine_below(reference, now, params.similarity, params.cosine_ppm);
}

}  // namespace swaplab::chameleon
