// What a recorded history of PyTorch's allocator started from, by undoing it from the block map at its end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/import/torch_snapshot.hpp"

namespace swaplab {

// A part of a segment at the start of the history: one allocated block, or one free block.
struct StartRegion {
  std::uint64_t address, bytes;  // bytes: of the block, which may exceed what was requested
  bool live;
};
struct StartSegment {
  std::uint64_t address, bytes, stream;
  bool large;
  std::vector<StartRegion> regions;  // by address, without gaps
};

struct SnapshotStart {
  std::vector<StartSegment> segments;  // by address
  std::uint64_t live_blocks = 0, live_bytes = 0;
  // Live blocks before a free space that they may extend into: PyTorch does not split off 1 MiB or less. The
  // block is then taken for as long as its request, rounded.
  std::uint64_t assumed_extents = 0;
  std::string unknown;  // why the start cannot be told; "" when it is known
};

// Every event is undone, last first: a completed free lets its block live, an allocation removes it, and
// likewise for segments. What is free between the blocks that remain is one free block, as PyTorch merges
// neighbours. A history that begins with an empty allocator gives no segment.
SnapshotStart state_at_start(const TorchSnapshot& snapshot, std::size_t device);

}  // namespace swaplab
