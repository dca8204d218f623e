// Room under the budget at every operator: range updates, range minima and searches for what binds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace swaplab::foresight {

class Room {
 public:
  explicit Room(std::span<const std::int64_t> values) {
    while (leaves_ < values.size()) leaves_ *= 2;
    low_.assign(2 * leaves_, kInfinite);
    add_.assign(2 * leaves_, 0);
    std::copy(values.begin(), values.end(), low_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (std::size_t n = leaves_; n-- > 1;) low_[n] = std::min(low_[2 * n], low_[2 * n + 1]);
  }

  // Adds `change` to [first, last).
  void add(std::uint32_t first, std::uint32_t last, std::int64_t change) {
    if (first < last) add(1, 0, leaves_, first, last, change);
  }
  // Smallest value in [first, last); huge when empty.
  std::int64_t minimum(std::uint32_t first, std::uint32_t last) const {
    return first < last ? minimum(1, 0, leaves_, first, last) : kInfinite;
  }
  // One past the last position in [first, last) whose value is below `bytes`; `first` when there is none.
  std::uint32_t after_last_below(std::uint32_t first, std::uint32_t last, std::int64_t bytes) const {
    if (first >= last) return first;
    const std::int64_t found = last_below(1, 0, leaves_, first, last, bytes);
    return found < 0 ? first : static_cast<std::uint32_t>(found) + 1;
  }

 private:
  static constexpr std::int64_t kInfinite = std::int64_t{1} << 62;

  void add(std::size_t node, std::size_t begin, std::size_t end, std::size_t first, std::size_t last,
           std::int64_t change) {
    if (first <= begin && end <= last) {
      low_[node] += change;
      add_[node] += change;
      return;
    }
    const std::size_t middle = (begin + end) / 2;
    if (first < middle) add(2 * node, begin, middle, first, last, change);
    if (last > middle) add(2 * node + 1, middle, end, first, last, change);
    low_[node] = std::min(low_[2 * node], low_[2 * node + 1]) + add_[node];
  }
  std::int64_t minimum(std::size_t node, std::size_t begin, std::size_t end, std::size_t first,
                       std::size_t last) const {
    if (first <= begin && end <= last) return low_[node];
    const std::size_t middle = (begin + end) / 2;
    std::int64_t low = kInfinite;
    if (first < middle) low = minimum(2 * node, begin, middle, first, last);
    if (last > middle) low = std::min(low, minimum(2 * node + 1, middle, end, first, last));
    return low + add_[node];
  }
  std::int64_t last_below(std::size_t node, std::size_t begin, std::size_t end, std::size_t first,
                          std::size_t last, std::int64_t bytes) const {
    if (low_[node] >= bytes) return -1;
    if (end - begin == 1) return static_cast<std::int64_t>(begin);
    const std::size_t middle = (begin + end) / 2;
    const std::int64_t rest = bytes - add_[node];
    if (last > middle) {
      const std::int64_t right = last_below(2 * node + 1, middle, end, first, last, rest);
      if (right >= 0) return right;
    }
    return first < middle ? last_below(2 * node, begin, middle, first, last, rest) : -1;
  }

  std::size_t leaves_ = 1;
  std::vector<std::int64_t> low_, add_;
};

}  // namespace swaplab::foresight
