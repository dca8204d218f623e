// When a copy engine is busy, for the planners' models.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/machine.hpp"

namespace swaplab::foresight {

// One copy engine: when it is busy. Copies of the two directions slow each other down (PCIe duplex).
// The copies were given their times in program order, so a copy that overlaps with earlier ones of the
// other direction is slowed itself, and what those lose is added to their lane's end. An approximation:
// it moves the loss to the next copy of that lane.
class Lane {
 public:
  explicit Lane(Ppm rate_beside_other) : rate_(rate_beside_other) {}
  std::int64_t free_at() const { return free_at_; }

  // Returns the end of a copy that takes `work` ns alone and may start at `start`.
  std::int64_t copy(std::int64_t start, std::int64_t work, Lane& other) {
    start = std::max(start, free_at_);
    const std::int64_t end =
        rate_ == kUnchanged && other.rate_ == kUnchanged ? start + work : shared(start, work, other);
    if (!busy_.empty() && busy_.back().second == start) {
      busy_.back().second = end;
    } else {
      busy_.emplace_back(start, end);
    }
    return free_at_ = end;
  }

 private:
  std::int64_t shared(std::int64_t start, std::int64_t work, Lane& other) const {
    std::size_t i = other.busy_.size();
    while (i > 0 && other.busy_[i - 1].second > start) --i;
    std::int64_t at = start, overlap = 0;
    for (; work > 0 && i < other.busy_.size(); ++i) {
      const auto [begin, end] = other.busy_[i];
      if (begin > at) {
        const std::int64_t alone = std::min(work, begin - at);
        work -= alone;
        at += alone;
        if (work == 0) break;
      }
      const std::int64_t together = std::min(end - at, (work * kUnchanged + rate_ - 1) / rate_);
      work = std::max<std::int64_t>(0, work - together * rate_ / kUnchanged);
      at += together;
      overlap += together;
    }
    if (overlap > 0) other.free_at_ += overlap * (kUnchanged - other.rate_) / kUnchanged;
    return at + work;
  }

  Ppm rate_;
  std::int64_t free_at_ = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> busy_;  // ascending, apart
};

}  // namespace swaplab::foresight
