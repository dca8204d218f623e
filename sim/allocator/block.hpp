// Blocks of the caching allocator: 64 bytes each, in one table, linked by 32-bit ids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace swaplab {

// Handle of an allocated block; valid from alloc to free.
enum class BlockId : std::uint32_t {};
inline constexpr BlockId kNoBlock{std::numeric_limits<std::uint32_t>::max()};

// Who may still be using a piece of memory: the last ticket of the compute stream and of the
// device-to-host stream that touched it. The allocator carries it along and never looks at it;
// a copy into the memory must wait for both. Not part of PyTorch.
struct ReuseTag {
  std::uint64_t compute = 0, d2h = 0;

  void join(const ReuseTag& other) {
    compute = std::max(compute, other.compute);
    d2h = std::max(d2h, other.d2h);
  }
  bool operator==(const ReuseTag&) const = default;
};

namespace allocator_detail {

inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// unmapped: address range without memory. pending: freed, waits for events.
enum class BlockState : std::uint8_t { vacant, unmapped, free, allocated, pending };

struct Block {
  std::uint64_t address = 0, size = 0;  // bytes
  std::uint64_t requested = 0;          // bytes before rounding
  std::uint64_t stream_uses = 0;        // bit per stream of record_stream
  ReuseTag tag;
  std::uint32_t prev = kNone, next = kNone;  // neighbours in the segment, address order
  std::uint32_t range = kNone;               // expandable segment, or none
  std::uint8_t pool = 0;                     // 2 * stream + (large ? 1 : 0)
  BlockState state = BlockState::vacant;
  std::uint8_t events = 0;  // events still to come before a pending block is free

  bool is_split() const { return (prev & next) != kNone; }
  bool is_large() const { return (pool & 1) != 0; }
  std::uint32_t stream() const { return pool >> 1; }
};
static_assert(sizeof(Block) == 64);

// Grows on demand and reuses ids last-in first-out; references do not survive create().
class BlockTable {
 public:
  Block& operator[](std::uint32_t id) { return blocks_[id]; }
  const Block& operator[](std::uint32_t id) const { return blocks_[id]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(blocks_.size()); }

  std::uint32_t create(std::uint64_t address, std::uint64_t size, std::uint8_t pool, BlockState state) {
    std::uint32_t id = free_head_;
    if (id == kNone) [[unlikely]] {
      id = static_cast<std::uint32_t>(blocks_.size());
      blocks_.emplace_back();
    } else {
      free_head_ = blocks_[id].next;
    }
    Block& block = blocks_[id];
    block = Block{};
    block.address = address;
    block.size = size;
    block.pool = pool;
    block.state = state;
    return id;
  }
  void destroy(std::uint32_t id) {
    blocks_[id].state = BlockState::vacant;
    blocks_[id].next = free_head_;
    free_head_ = id;
  }

 private:
  std::vector<Block> blocks_;
  std::uint32_t free_head_ = kNone;
};

}  // namespace allocator_detail
}  // namespace swaplab
