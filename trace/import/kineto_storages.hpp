// Storages from the [memory] events of a profile.
#pragma once

#include <vector>

#include "trace/import/kineto_events.hpp"
#include "trace/import/report.hpp"

namespace swaplab::kineto {

struct Lifetime {
  std::int64_t bytes;
  // Rows of Events::memory; kNoIndex: lived before the profile, or lives after it.
  std::uint32_t birth, death;
  std::int32_t device_type, device;
};

struct Storages {
  std::vector<Lifetime> lifetimes;  // by birth; those from before come where their free is
  std::vector<std::uint32_t> rows;  // the memory events used, in time order
  bool addressed = false;           // by Addr; otherwise by size, the newest first
  std::int64_t allocations = 0, frees = 0, unmatched_frees = 0, repeated_allocations = 0, left_live = 0;
  std::int64_t allocated_bytes = 0, other_device_events = 0;
  std::int64_t baseline = -1;  // before the first event, without what is itemised; -1 unknown
  std::int64_t peak = -1;      // Total Allocated, or the sum of what is seen
};

// Device memory when there is any, else host memory. Several devices are kept apart by address and size.
Storages match_memory(const Events& events);

// "cuda:1" (CUDA and HIP), "cpu", "device19:0".
std::string device_name(std::int32_t type, std::int32_t device);

void report_storages(const Storages& storages, ImportReport& report);

}  // namespace swaplab::kineto
