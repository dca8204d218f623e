// CachingAllocator: new segments, expandable segments and the order of attempts. Included by
// caching_allocator.hpp.
#pragma once

#include <algorithm>
#include <string>

#include "sim/allocator/caching_allocator.hpp"
#include "trace/error.hpp"

namespace swaplab {

// The cache has nothing that fits.
template <class Backend>
AllocResult CachingAllocator<Backend>::grow(const Request& request) {
  if (collects_garbage_) collect_garbage();
  std::uint32_t id = new_segment(request, false);
  if (id == kNone) {
    const Partial partial = release_available(request);
    if (partial == Partial::internal_assert) return {AllocStatus::internal_assert, kNoBlock, 0, {}};
    if (partial == Partial::released) id = new_segment(request, false);
  }
  if (id == kNone) {
    release_cached();
    id = new_segment(request, true);
  }
  if (id == kNone) {
    // The cache is not searched again, although the event wait may have put a fitting block there.
    ++stats_.num_ooms;
    return {AllocStatus::out_of_memory, kNoBlock, 0, {}};
  }
  return hand_out(id, request);
}

// A free block in no set from new device memory, or kNone.
template <class Backend>
std::uint32_t CachingAllocator<Backend>::new_segment(const Request& request, bool is_retry) {
  const std::uint64_t size = AllocatorConfig::segment_size(request.size);
  if (is_retry) ++stats_.num_alloc_retries;
  // Also for expandable segments the test is made with the segment size, not with what will be mapped.
  const auto reserved = static_cast<std::uint64_t>(stats_.all.reserved_bytes.current);
  if (limited_ && reserved + size > allowed_) return kNone;
  if (config_.expandable_segments) return expand(request);
  const std::uint64_t address = backend_.device_malloc(size, request.stream);
  if (address == 0) return kNone;
  if (size >= FreeBins::kSizeEnd || ((address | size) & (kMinBlockSize - 1)) != 0 || address >> 48 != 0) {
    throw Error(ErrorKind::invariant, "caching allocator: the device gave " + std::to_string(size) +
                                          " bytes at address " + std::to_string(address) +
                                          " (expected multiples of 512 below 2^41 and 2^48)");
  }
  const std::uint32_t id = blocks_.create(address, size, request.pool, BlockState::free);
  for (ScopeStats* stats : {&stats_.all, &scope(request.pool)}) {
    stats->segment.increase(1);
    stats->reserved_bytes.increase(static_cast<std::int64_t>(size));
  }
  if (size >= config_.max_split_size) stats_.oversize_segments.increase(1);
  ++stats_.num_device_alloc;
  return id;
}

// Grows an expandable segment until a block of request.size bytes is free. Pieces that were mapped
// before a failure stay in the cache.
template <class Backend>
std::uint32_t CachingAllocator<Backend>::expand(const Request& request) {
  std::uint32_t id = find_expandable(request);
  if (blocks_[id].state == BlockState::unmapped && !map_block(id, std::min(blocks_[id].size, request.size))) {
    return kNone;
  }
  while (blocks_[id].size < request.size) {
    const std::uint32_t next = blocks_[id].next;  // unmapped; absorbs `id` once mapped
    const std::uint64_t missing = request.size - blocks_[id].size;
    if (!map_block(next, std::min(missing, blocks_[next].size))) return kNone;
    id = next;
  }
  const Block& block = blocks_[id];
  pools_[block.pool]->free.erase(block.size, block.address);
  return id;
}

// The start of the lowest run of free and unmapped blocks with room for the request: an unmapped block
// or the free block just before one. Reserves a new address range when there is none.
template <class Backend>
std::uint32_t CachingAllocator<Backend>::find_expandable(const Request& request) {
  const auto usable = [&](std::uint32_t id) {
    return id != kNone &&
           (blocks_[id].state == BlockState::free || blocks_[id].state == BlockState::unmapped);
  };
  Pool& pool = pool_at(request.pool);
  for (const std::uint32_t unmapped : pool.unmapped) {
    const std::uint32_t before = blocks_[unmapped].prev;
    const std::uint32_t start = usable(before) ? before : unmapped;
    std::uint64_t room = 0;
    for (std::uint32_t id = start; room < request.size && usable(id); id = blocks_[id].next) {
      room += blocks_[id].size;
    }
    if (room >= request.size) return start;
  }
  // 1/8 more than the device, so that pages can be given up early on and mapped again at the end.
  const std::uint64_t page = (request.pool & 1) != 0 ? kLargeBuffer : kSmallBuffer;
  const std::uint64_t size = (capacity_ + capacity_ / 8 + page - 1) / page * page;
  const std::uint64_t address = backend_.va_reserve(size);
  if (size >= FreeBins::kSizeEnd || address == 0 || (address & (kMinBlockSize - 1)) != 0 ||
      (address + size) >> 48 != 0) {
    throw Error(ErrorKind::invariant, "caching allocator: the device reserved " + std::to_string(size) +
                                          " bytes of address space at " + std::to_string(address) +
                                          " (expected a multiple of 512 below 2^48)");
  }
  std::uint32_t range = 0;
  if (free_ranges_.empty()) {
    range = static_cast<std::uint32_t>(ranges_.size());
    ranges_.emplace_back();
  } else {
    range = free_ranges_.back();
    free_ranges_.pop_back();
  }
  ranges_[range] = {address, size, page};
  const std::uint32_t id = blocks_.create(address, size, request.pool, BlockState::unmapped);
  blocks_[id].range = range;
  insert_unmapped(id);
  return id;
}

// Maps whole pages for the first `size` bytes of an unmapped block and puts the result, merged with its
// free neighbours, into the cache. False, and nothing changed, when memory ran out.
template <class Backend>
bool CachingAllocator<Backend>::map_block(std::uint32_t id, std::uint64_t size) {
  const std::uint64_t page = ranges_[blocks_[id].range].page;
  const std::uint64_t mapped = (size + page - 1) / page * page;
  if (!backend_.map(blocks_[id].address, mapped, page, blocks_[id].stream())) return false;
  erase_unmapped(id);
  blocks_[id].state = BlockState::free;
  blocks_[id].tag = {};  // new pages: nobody has used them
  if (mapped < blocks_[id].size) {
    const std::uint64_t left = blocks_[id].size - mapped;
    const std::uint32_t rest = carve(id, false, blocks_[id].address + mapped, left);
    blocks_[rest].state = BlockState::unmapped;
    insert_unmapped(rest);
    blocks_[id].size = mapped;
  }
  absorb(id, blocks_[id].prev);
  absorb(id, blocks_[id].next);
  insert_free(id);
  for (ScopeStats* stats : {&stats_.all, &scope(blocks_[id].pool)}) {
    stats->reserved_bytes.increase(static_cast<std::int64_t>(mapped));
  }
  ++stats_.num_device_alloc;
  return true;
}

template <class Backend>
void CachingAllocator<Backend>::insert_unmapped(std::uint32_t id) {
  std::vector<std::uint32_t>& unmapped = pools_[blocks_[id].pool]->unmapped;
  const auto at = std::partition_point(unmapped.begin(), unmapped.end(), [&](std::uint32_t other) {
    return blocks_[other].address < blocks_[id].address;
  });
  unmapped.insert(at, id);
}

template <class Backend>
void CachingAllocator<Backend>::erase_unmapped(std::uint32_t id) {
  std::vector<std::uint32_t>& unmapped = pools_[blocks_[id].pool]->unmapped;
  const auto at = std::partition_point(unmapped.begin(), unmapped.end(), [&](std::uint32_t other) {
    return blocks_[other].address < blocks_[id].address;
  });
  unmapped.erase(at);
}

}  // namespace swaplab
