// Pinned host memory, as PyTorch's CachingHostAllocator keeps it: sizes rounded to a power of two,
// a block is reused only for exactly its size, nothing is ever given back to the system.
#pragma once

#include <bit>
#include <cstdint>
#include <unordered_map>

#include "sim/machine.hpp"

namespace swaplab {

class HostPool {
 public:
  explicit HostPool(const HostMemory& description) : description_(description) {}

  // Takes a block for `bytes`; `pinned` gets the bytes that had to be pinned anew (0 when reused).
  // False when the host's capacity does not allow it.
  bool take(Bytes bytes, Bytes& newly_pinned) {
    const std::int64_t size = rounded(bytes);
    std::uint32_t& free = free_[size];
    newly_pinned = Bytes{0};
    if (free > 0) {
      --free;
      return true;
    }
    if (pinned_ + Bytes{size} > description_.capacity) return false;
    pinned_ += Bytes{size};
    newly_pinned = Bytes{size};
    return true;
  }
  void give(Bytes bytes) { ++free_[rounded(bytes)]; }
  Bytes pinned() const { return pinned_; }

 private:
  std::int64_t rounded(Bytes bytes) const {
    if (!description_.round_to_power_of_two) return bytes.value;
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes.value)));
  }
  HostMemory description_;
  Bytes pinned_{0};
  std::unordered_map<std::int64_t, std::uint32_t> free_;  // by rounded size
};

}  // namespace swaplab
