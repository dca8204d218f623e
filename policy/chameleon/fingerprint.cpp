#include "policy/chameleon/fingerprint.hpp"

#include <algorithm>

namespace swaplab::chameleon {

std::vector<std::uint8_t> frequent_operators(std::span<const std::uint32_t> tokens) {
  std::vector<std::uint32_t> counts;
  for (const std::uint32_t t : tokens) {
    if (t >= counts.size()) counts.resize(t + 1, 0);
    ++counts[t];
  }
  std::vector<std::uint32_t> order;
  for (std::uint32_t t = 0; t < counts.size(); ++t) {
    if (counts[t] > 0) order.push_back(t);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return counts[a] > counts[b]; });
  std::vector<std::uint8_t> frequent(counts.size(), 0);
  for (std::size_t i = 0; i < order.size() && i < 64; ++i)
    frequent[order[i]] = static_cast<std::uint8_t>(i + 1);
  return frequent;
}

}  // namespace swaplab::chameleon
