// A copy of the caching allocator's state, to try requests on without touching the device.
//
// What a training process can do as well: memory_snapshot() tells every segment and block, and the rules of
// the allocator are public.
#pragma once

#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/stub_device.hpp"

namespace swaplab {

// Not movable: the allocator refers to the device. Block ids are those of the source.
struct MemoryFork {
  // `device` holds the segments and address ranges of the source's device.
  template <class Backend>
  MemoryFork(StubDevice copy, const CachingAllocator<Backend>& source)
      : device(std::move(copy)), allocator(device, source) {}
  // Nothing allocated yet.
  MemoryFork(StubDevice empty, const AllocatorConfig& config)
      : device(std::move(empty)), allocator(device, config) {}
  MemoryFork(const MemoryFork& other) : device(other.device), allocator(device, other.allocator) {}
  MemoryFork& operator=(const MemoryFork&) = delete;

  StubDevice device;
  CachingAllocator<StubDevice> allocator;
};

}  // namespace swaplab
