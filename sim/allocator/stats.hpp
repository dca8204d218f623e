// Statistics of the caching allocator, as torch.cuda.memory_stats() counts them.
#pragma once

#include <cstdint>

namespace swaplab {

// One counter: `current`, its highest value, and everything that was ever taken away.
struct Stat {
  std::int64_t current = 0, peak = 0, freed = 0;

  std::int64_t allocated() const { return current + freed; }  // everything that was ever added
  void increase(std::int64_t amount) {
    current += amount;
    peak = current > peak ? current : peak;
  }
  void decrease(std::int64_t amount) {
    current -= amount;
    freed += amount;
  }
};

// Counts are blocks or segments, *_bytes are bytes. `active` is allocated plus freed blocks that wait
// for events; `inactive_split` is free blocks that share a segment, and like `segment` leaves
// expandable segments out; `requested_bytes` is before rounding.
struct ScopeStats {
  Stat allocation, active, allocated_bytes, active_bytes, requested_bytes;
  Stat inactive_split, inactive_split_bytes, segment, reserved_bytes;
};

struct AllocatorStats {
  ScopeStats all, small_pool, large_pool;
  Stat oversize_allocations, oversize_segments;  // of at least max_split_size
  std::int64_t num_alloc_retries = 0;            // attempts after a full release of the cache
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0, num_device_free = 0;  // cudaMalloc or map, cudaFree or unmap

  // Starts new peaks at the current values (torch.cuda.reset_peak_memory_stats).
  void reset_peaks();
};

}  // namespace swaplab
