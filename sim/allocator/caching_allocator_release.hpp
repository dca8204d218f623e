// CachingAllocator: giving memory back to the device, and events. Included by caching_allocator.hpp.
#pragma once

#include <algorithm>
#include <bit>

#include "sim/allocator/caching_allocator.hpp"

namespace swaplab {

// With max_split_size: frees the first oversize block of this stream and pool that would do, otherwise
// oversize blocks from the largest down, even when they do not suffice.
template <class Backend>
auto CachingAllocator<Backend>::release_available(const Request& request) -> Partial {
  if (config_.max_split_size == kNoSplitLimit) return Partial::not_enough;
  const std::uint64_t wanted = std::max(request.size, config_.max_split_size);
  FreeBins& bins = pool_at(request.pool).free;
  if (const FreeBins::Cursor found = bins.lower_bound(wanted)) {
    if (blocks_[found.id].range != kNone) return Partial::internal_assert;
    release_segment(found.id);
    return Partial::released;
  }
  std::uint64_t released = 0;
  while (released < wanted) {
    const FreeBins::Cursor largest = bins.last();
    if (!largest || blocks_[largest.id].size < config_.max_split_size) return Partial::not_enough;
    if (blocks_[largest.id].range != kNone) return Partial::internal_assert;
    released += blocks_[largest.id].size;
    release_segment(largest.id);
  }
  return Partial::released;
}

// Frees whole large segments of at least the mean age, in passes, until the excess over the threshold
// is gone; a pass is not cut short.
template <class Backend>
void CachingAllocator<Backend>::collect_garbage() {
  const auto reserved = static_cast<std::uint64_t>(stats_.all.reserved_bytes.current);
  if (reserved <= garbage_threshold_) return;
  const std::uint64_t target = reserved - garbage_threshold_;
  std::vector<std::uint32_t> candidates;  // (stream, size, address) order
  std::uint64_t total_age = 0;
  for (std::size_t pool = 1; pool < pools_.size(); pool += 2) {
    if (!pools_[pool]) continue;
    const FreeBins& bins = pools_[pool]->free;
    for (FreeBins::Cursor at = bins.first(); at; at = bins.next(at)) {
      if (blocks_[at.id].is_split()) continue;
      candidates.push_back(at.id);
      total_age += large_lookups_ - cached_at_[at.id];
    }
  }
  std::uint64_t reclaimed = 0;
  bool freed = true;
  while (reclaimed < target && freed && !candidates.empty()) {
    freed = false;
    const std::uint64_t age_sum = total_age;  // mean age of this pass = age_sum / count
    const std::uint64_t count = candidates.size();
    std::erase_if(candidates, [&](std::uint32_t id) {
      const std::uint64_t age = large_lookups_ - cached_at_[id];
      if (age * count < age_sum || blocks_[id].range != kNone) return false;
      freed = true;
      reclaimed += blocks_[id].size;
      total_age -= age;
      release_segment(id);
      return true;
    });
  }
}

template <class Backend>
void CachingAllocator<Backend>::empty_cache() {
  release_cached();
}

template <class Backend>
void CachingAllocator<Backend>::release_cached() {
  wait_for_events();
  for (const std::size_t first : {std::size_t{1}, std::size_t{0}}) {  // large, then small
    std::vector<std::uint32_t> to_unmap;
    for (std::size_t pool = first; pool < pools_.size(); pool += 2) {
      if (!pools_[pool]) continue;
      scratch_.clear();
      const FreeBins& bins = pools_[pool]->free;
      for (FreeBins::Cursor at = bins.first(); at; at = bins.next(at)) scratch_.push_back(at.id);
      for (const std::uint32_t id : scratch_) {
        if (blocks_[id].range != kNone) {
          to_unmap.push_back(id);
        } else if (!blocks_[id].is_split()) {
          release_segment(id);
        }
      }
    }
    for (const std::uint32_t id : to_unmap) unmap_block(id);
  }
}

// cudaFree of an unsplit free block.
template <class Backend>
void CachingAllocator<Backend>::release_segment(std::uint32_t id) {
  const Block block = blocks_[id];
  ++stats_.num_device_free;
  backend_.device_free(block.address, block.size, block.stream());
  for (ScopeStats* stats : {&stats_.all, &scope(block.pool)}) {
    stats->segment.decrease(1);
    stats->reserved_bytes.decrease(static_cast<std::int64_t>(block.size));
  }
  if (block.size >= config_.max_split_size) stats_.oversize_segments.decrease(1);
  pools_[block.pool]->free.erase(block.size, block.address);
  blocks_.destroy(id);
}

// Unmaps the whole pages inside a free expandable block; what sticks out at either end stays free. A
// range without any mapped page left is given up.
template <class Backend>
void CachingAllocator<Backend>::unmap_block(std::uint32_t id) {
  const AddressRange range = ranges_[blocks_[id].range];
  const std::uint64_t start = blocks_[id].address - range.address;
  const std::uint64_t end = start + blocks_[id].size;
  const std::uint64_t first = (start + range.page - 1) / range.page * range.page;
  const std::uint64_t last = end / range.page * range.page;
  if (first >= last) return;
  // Unmapping does not wait for the device by itself.
  backend_.synchronize_stream(blocks_[id].stream());
  backend_.unmap(range.address + first, last - first, range.page, blocks_[id].stream());
  pools_[blocks_[id].pool]->free.erase(blocks_[id].size, blocks_[id].address);
  if (first > start) insert_free(carve(id, true, range.address + start, first - start));
  if (end > last) insert_free(carve(id, false, range.address + last, end - last));
  blocks_[id].address = range.address + first;
  blocks_[id].size = last - first;
  blocks_[id].state = BlockState::unmapped;
  absorb(id, blocks_[id].prev);
  absorb(id, blocks_[id].next);
  insert_unmapped(id);
  for (ScopeStats* stats : {&stats_.all, &scope(blocks_[id].pool)}) {
    stats->reserved_bytes.decrease(static_cast<std::int64_t>(last - first));
  }
  ++stats_.num_device_free;
  if (!blocks_[id].is_split()) {
    backend_.va_free(range.address, range.size);
    free_ranges_.push_back(blocks_[id].range);
    erase_unmapped(id);
    blocks_.destroy(id);
  }
}

// A new free block beside `neighbour` in the same segment, with its tag, in no set.
template <class Backend>
std::uint32_t CachingAllocator<Backend>::carve(std::uint32_t neighbour, bool before, std::uint64_t address,
                                               std::uint64_t size) {
  const std::uint32_t id = blocks_.create(address, size, blocks_[neighbour].pool, BlockState::free);
  Block& block = blocks_[id];
  Block& beside = blocks_[neighbour];
  block.range = beside.range;
  block.tag = beside.tag;
  block.prev = before ? beside.prev : neighbour;
  block.next = before ? neighbour : beside.next;
  if (block.prev != kNone) blocks_[block.prev].next = id;
  if (block.next != kNone) blocks_[block.next].prev = id;
  return id;
}

template <class Backend>
void CachingAllocator<Backend>::EventQueue::pop() {
  if (++head == events.size()) {
    events.clear();
    head = 0;
  } else if (head >= 256 && 2 * head >= events.size()) {
    events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(head));
    head = 0;
  }
}

// The block was freed but other streams use it: one event on each, recorded now.
template <class Backend>
void CachingAllocator<Backend>::record_events(std::uint32_t id) {
  Block& block = blocks_[id];
  block.state = BlockState::pending;
  for (std::uint64_t streams = block.stream_uses; streams != 0; streams &= streams - 1) {
    const auto stream = static_cast<std::uint32_t>(std::countr_zero(streams));
    const std::uint32_t place = queue_place(stream);
    queues_[place].events.push_back({backend_.record_event(stream), id});
    events_pending_ |= std::uint64_t{1} << place;
    ++block.events;
  }
  block.stream_uses = 0;
}

// Takes finished events from the head of each stream's queue.
template <class Backend>
void CachingAllocator<Backend>::poll_events() {
  for (std::uint64_t places = events_pending_; places != 0; places &= places - 1) {
    const auto place = static_cast<std::uint32_t>(std::countr_zero(places));
    EventQueue& queue = queues_[place];
    while (!queue.empty() && backend_.query(queue.events[queue.head].event)) {
      event_done(queue.events[queue.head].block);
      queue.pop();
    }
    if (queue.empty()) events_pending_ &= ~(std::uint64_t{1} << place);
  }
}

template <class Backend>
void CachingAllocator<Backend>::wait_for_events() {
  ++stats_.num_sync_all_streams;
  for (std::uint64_t places = events_pending_; places != 0; places &= places - 1) {
    EventQueue& queue = queues_[static_cast<std::size_t>(std::countr_zero(places))];
    for (; !queue.empty(); queue.pop()) {
      backend_.synchronize(queue.events[queue.head].event);
      event_done(queue.events[queue.head].block);
    }
  }
  events_pending_ = 0;
}

template <class Backend>
void CachingAllocator<Backend>::event_done(std::uint32_t id) {
  Block& block = blocks_[id];
  if (--block.events != 0) return;
  const std::uint64_t address = block.address;
  to_cache(id);
  if constexpr (requires(Backend & backend) { backend.on_deferred_free(address); }) {
    backend_.on_deferred_free(address);
  }
}

}  // namespace swaplab
