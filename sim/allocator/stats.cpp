#include "sim/allocator/stats.hpp"

#include <initializer_list>

namespace swaplab {

void AllocatorStats::reset_peaks() {
  for (ScopeStats* scope : {&all, &small_pool, &large_pool}) {
    for (Stat* stat : {&scope->allocation, &scope->active, &scope->allocated_bytes, &scope->active_bytes,
                       &scope->requested_bytes, &scope->inactive_split, &scope->inactive_split_bytes,
                       &scope->segment, &scope->reserved_bytes}) {
      stat->peak = stat->current;
    }
  }
  oversize_allocations.peak = oversize_allocations.current;
  oversize_segments.peak = oversize_segments.current;
}

}  // namespace swaplab
