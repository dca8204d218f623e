// Pinned blocks by size, reused as sim/host_pool.hpp counts them: exactly the same size, nothing given back.
#pragma once

#include <bit>
#include <unordered_map>
#include <vector>

#include "gpu_validate/accelerator.hpp"

namespace swaplab {

struct HostBlock {
  std::byte* data = nullptr;
  std::int64_t size = 0;  // real bytes
  Ticket last_read = 0;   // latest copy to the device that reads it
};

class HostBlocks {
 public:
  HostBlocks(Accelerator& accelerator, bool round_to_power_of_two)
      : accelerator_(accelerator), rounds_(round_to_power_of_two) {}

  HostBlock take(std::int64_t bytes) {
    const std::int64_t size =
        rounds_ ? static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes))) : bytes;
    std::vector<HostBlock>& free = free_[size];
    if (free.empty()) return {accelerator_.pin(Bytes{size}), size, 0};
    const HostBlock block = free.back();
    free.pop_back();
    return block;
  }
  // Work that still uses it stays in `last_read`: the next owner's copy must wait for it.
  void give(const HostBlock& block) { free_[block.size].push_back(block); }

 private:
  Accelerator& accelerator_;
  const bool rounds_;
  std::unordered_map<std::int64_t, std::vector<HostBlock>> free_;
};

}  // namespace swaplab
