// Remaining needs of the reduction list: subtract over a range, first maximum in a range, both in
// O(log n), so that a plan of many rounds does not scan the list once per round.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "policy/chameleon/generator.hpp"

namespace swaplab::chameleon {

class NeedTree {
 public:
  explicit NeedTree(const std::vector<NeedEntry>& needs) {
    while (leaves_ < needs.size()) leaves_ *= 2;
    max_.assign(2 * leaves_, kLowest);
    added_.assign(2 * leaves_, 0);
    for (std::size_t i = 0; i < needs.size(); ++i) max_[leaves_ + i] = needs[i].need.value;
    for (std::size_t node = leaves_ - 1; node > 0; --node)
      max_[node] = std::max(max_[2 * node], max_[2 * node + 1]);
  }
  // Adds `amount` to entries [begin, end).
  void add(std::uint32_t begin, std::uint32_t end, std::int64_t amount) {
    if (begin < end) add(1, 0, leaves_, begin, end, amount);
  }
  // First entry of [begin, end) with the largest need, and that need; {end, lowest} when empty.
  struct Maximum {
    std::uint32_t entry;
    std::int64_t need;
  };
  Maximum first_maximum(std::uint32_t begin, std::uint32_t end) const {
    Maximum best{end, kLowest};
    if (begin < end) search(1, 0, leaves_, begin, end, 0, best);
    return best;
  }
  std::int64_t maximum() const { return max_[1]; }
  std::int64_t at(std::uint32_t entry) const {
    std::int64_t value = max_[leaves_ + entry];
    for (std::size_t node = (leaves_ + entry) / 2; node > 0; node /= 2) value += added_[node];
    return value;
  }

 private:
  static constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min() / 4;

  void add(std::size_t node, std::size_t low, std::size_t high, std::size_t begin, std::size_t end,
           std::int64_t amount) {
    if (end <= low || high <= begin) return;
    if (begin <= low && high <= end) {
      max_[node] += amount;
      added_[node] += amount;
      return;
    }
    const std::size_t middle = (low + high) / 2;
    add(2 * node, low, middle, begin, end, amount);
    add(2 * node + 1, middle, high, begin, end, amount);
    max_[node] = std::max(max_[2 * node], max_[2 * node + 1]) + added_[node];
  }
  // `above` is what the ancestors added.
  void search(std::size_t node, std::size_t low, std::size_t high, std::size_t begin, std::size_t end,
              std::int64_t above, Maximum& best) const {
    if (end <= low || high <= begin || max_[node] + above <= best.need) return;
    if (high - low == 1) {
      best = {static_cast<std::uint32_t>(low), max_[node] + above};
      return;
    }
    const std::size_t middle = (low + high) / 2;
    search(2 * node, low, middle, begin, end, above + added_[node], best);
    search(2 * node + 1, middle, high, begin, end, above + added_[node], best);
  }

  std::size_t leaves_ = 1;
  std::vector<std::int64_t> max_, added_;  // max_ of a node includes its own added_, not its ancestors'
};

}  // namespace swaplab::chameleon
