// How far the caching allocator agrees with a recorded history of PyTorch's own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/import/torch_snapshot.hpp"

namespace swaplab {

struct SnapshotTruth {
  std::int64_t device = 0;
  std::uint64_t allocations = 0;      // replayed requests
  std::uint64_t segments = 0;         // segment_alloc events of the history
  std::uint64_t segments_agree = 0;   // same place in the order and same size
  std::uint64_t segments_extra = 0;   // made by the replay, not in the history
  std::uint64_t placed = 0;           // allocations whose segment the history has made
  std::uint64_t placed_agree = 0;     // same segment and offset: the same address
  std::uint64_t unmatched_frees = 0;  // of blocks from before the history
  // What the replay starts from, rebuilt from the block map at the dump; 0 for a complete history.
  std::uint64_t start_segments = 0, start_blocks = 0, start_bytes = 0;
  std::string first_difference;      // "" when all agree
  std::vector<std::string> reasons;  // why some of it cannot or does not agree
  bool complete = false;             // the history starts with an empty allocator
  bool rebuilt = false;              // it does not, but what it starts from is known

  bool agrees() const {
    return (complete || rebuilt) && segments_agree == segments && segments_extra == 0 &&
           placed_agree == allocations;
  }
};

// Replays the requests of every device that has any, with the settings that the snapshot states.
// Blocks are freed where the history completes their free. A history that starts late is replayed from the
// segments and blocks that it started with, where the file tells them (snapshot_start.hpp). Throws
// Error(usage) for settings that the allocator does not know.
std::vector<SnapshotTruth> compare_with_snapshot(const TorchSnapshot& snapshot);

}  // namespace swaplab
