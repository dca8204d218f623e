// CachingAllocator, the hot path: allocation from the cache and free. Included by caching_allocator.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "sim/allocator/caching_allocator.hpp"
#include "trace/error.hpp"

namespace swaplab {

template <class Backend>
CachingAllocator<Backend>::CachingAllocator(Backend& backend, AllocatorConfig config,
                                            Combinations combinations)
    : backend_(backend), config_(std::move(config)), capacity_(backend.capacity()) {
  static_assert(AllocatorBackend<Backend>);
  if (combinations == Combinations::supported_only) require_supported(config_);
  if (capacity_ > std::uint64_t{1} << 40) {
    throw Error(ErrorKind::usage, "caching allocator: device capacity of " + std::to_string(capacity_) +
                                      " bytes is above the supported 1 TiB");
  }
}

template <class Backend>
template <class Other>
CachingAllocator<Backend>::CachingAllocator(Backend& backend, const CachingAllocator<Other>& source)
    : backend_(backend),
      config_(source.config_),
      capacity_(source.capacity_),
      collects_garbage_(source.collects_garbage_),
      limited_(source.limited_),
      allowed_(source.allowed_),
      garbage_threshold_(source.garbage_threshold_),
      large_lookups_(source.large_lookups_),
      blocks_(source.blocks_),
      stats_(source.stats_),
      cached_at_(source.cached_at_),
      free_ranges_(source.free_ranges_) {
  if (source.events_pending_ != 0) {
    throw Error(ErrorKind::invariant, "caching allocator: copied while blocks wait for events");
  }
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    if (source.pools_[i]) {
      pools_[i] = std::make_unique<Pool>(Pool{source.pools_[i]->free, source.pools_[i]->unmapped});
    }
  }
  for (const auto& range : source.ranges_) ranges_.push_back({range.address, range.size, range.page});
}

template <class Backend>
void CachingAllocator<Backend>::set_memory_fraction(double fraction) {
  if (!(fraction > 0 && fraction <= 1)) {
    throw Error(ErrorKind::usage,
                "caching allocator: memory fraction " + std::to_string(fraction) + " is not in (0, 1]");
  }
  // The same double arithmetic as PyTorch; the results are bytes again.
  allowed_ = static_cast<std::uint64_t>(fraction * static_cast<double>(capacity_));
  garbage_threshold_ =
      static_cast<std::uint64_t>(config_.garbage_collection_threshold * static_cast<double>(allowed_));
  limited_ = true;
  collects_garbage_ = config_.garbage_collection_threshold > 0;
  if (collects_garbage_) cached_at_.resize(blocks_.size(), large_lookups_);
}

template <class Backend>
Bytes CachingAllocator<Backend>::allowed_bytes() const {
  return Bytes{static_cast<std::int64_t>(limited_ ? allowed_ : capacity_)};
}

template <class Backend>
Bytes CachingAllocator<Backend>::block_bytes(BlockId block) const {
  return Bytes{static_cast<std::int64_t>(blocks_[index_of(block)].size)};
}

template <class Backend>
auto CachingAllocator<Backend>::request_for(std::uint64_t requested, std::uint32_t stream) const -> Request {
  const std::uint64_t size = config_.round_size(requested);
  return {requested, size, stream, static_cast<std::uint8_t>(2 * stream + (size > kSmallSize ? 1 : 0))};
}

template <class Backend>
auto CachingAllocator<Backend>::pool_at(std::uint8_t index) -> Pool& {
  std::unique_ptr<Pool>& pool = pools_[index];
  if (!pool) [[unlikely]]
    pool = std::make_unique<Pool>();
  return *pool;
}

template <class Backend>
AllocResult CachingAllocator<Backend>::alloc(Bytes size, std::uint32_t stream) {
  const auto requested = static_cast<std::uint64_t>(size.value);
  if (requested - 1 >= kMaxRequest || stream >= kMaxAllocatorStreams) [[unlikely]] {
    if (requested == 0) return {};
    throw Error(ErrorKind::invariant, "caching allocator: request of " + std::to_string(size.value) +
                                          " bytes on stream " + std::to_string(stream) +
                                          " (expected at least 0 bytes and a stream below " +
                                          std::to_string(kMaxAllocatorStreams) + ")");
  }
  if (events_pending_ != 0) [[unlikely]]
    poll_events();
  const Request request = request_for(requested, stream);
  FreeBins& bins = pool_at(request.pool).free;
  if (collects_garbage_ && (request.pool & 1) != 0) [[unlikely]]
    ++large_lookups_;
  const FreeBins::Cursor found = find_free(bins, request.size);
  if (!found) [[unlikely]]
    return grow(request);
  bins.erase(found);
  return hand_out(found.id, request);
}

template <class Backend>
bool CachingAllocator<Backend>::could_fit_cached(Bytes size, std::uint32_t stream) const {
  if (size.value <= 0 || stream >= kMaxAllocatorStreams) return size.value == 0;
  const Request request = request_for(static_cast<std::uint64_t>(size.value), stream);
  const std::unique_ptr<Pool>& pool = pools_[request.pool];
  return pool && find_free(pool->free, request.size);
}

// Best fit: the smallest block that is large enough, lowest address first; never another stream's.
template <class Backend>
auto CachingAllocator<Backend>::find_free(const FreeBins& bins, std::uint64_t size) const
    -> FreeBins::Cursor {
  FreeBins::Cursor found = bins.lower_bound(size);
  if (!found) return found;
  if (config_.expandable_segments) {
    // The size that counts is the one the block can grow to; walk on while that strictly falls.
    std::uint64_t growable = growable_size(found.id);
    for (FreeBins::Cursor next = bins.next(found); next; next = bins.next(next)) {
      const std::uint64_t next_growable = growable_size(next.id);
      if (next_growable >= growable) break;
      found = next;
      growable = next_growable;
    }
  }
  if (config_.max_split_size != kNoSplitLimit) [[unlikely]] {
    const std::uint64_t block_size = blocks_[found.id].size;
    const bool oversize_request = size >= config_.max_split_size;
    if (!oversize_request && block_size >= config_.max_split_size) return {};
    if (oversize_request && block_size >= size + config_.max_non_split_rounding) return {};
  }
  return found;
}

template <class Backend>
std::uint64_t CachingAllocator<Backend>::growable_size(std::uint32_t id) const {
  const Block& block = blocks_[id];
  if (block.next == kNone || blocks_[block.next].state != BlockState::unmapped) return block.size;
  return block.size + blocks_[block.next].size;
}

template <class Backend>
bool CachingAllocator<Backend>::should_split(const Request& request, std::uint64_t remaining) const {
  if ((request.pool & 1) == 0 || config_.expandable_segments) return remaining >= kMinBlockSize;
  return request.size < config_.max_split_size && remaining > kSmallSize;
}

// `id` is free and in no set. Its front serves the request; the rest goes back when it may be split.
template <class Backend>
AllocResult CachingAllocator<Backend>::hand_out(std::uint32_t id, const Request& request) {
  ScopeStats& scoped = scope(request.pool);
  const std::uint64_t remaining = blocks_[id].size - request.size;
  const bool was_split = blocks_[id].is_split();
  const bool counts_split = blocks_[id].range == kNone;
  if (should_split(request, remaining)) {
    const std::uint32_t rest =
        blocks_.create(blocks_[id].address + request.size, remaining, request.pool, BlockState::free);
    Block& front = blocks_[id];
    Block& back = blocks_[rest];
    back.tag = front.tag;
    back.range = front.range;
    back.prev = id;
    back.next = front.next;
    if (back.next != kNone) blocks_[back.next].prev = rest;
    front.next = rest;
    front.size = request.size;
    insert_free(rest);
    if (counts_split) {
      for (ScopeStats* stats : {&stats_.all, &scoped}) {
        if (was_split) {
          stats->inactive_split_bytes.decrease(static_cast<std::int64_t>(request.size));
        } else {
          stats->inactive_split_bytes.increase(static_cast<std::int64_t>(remaining));
          stats->inactive_split.increase(1);
        }
      }
    }
  } else if (was_split && counts_split) {
    for (ScopeStats* stats : {&stats_.all, &scoped}) {
      stats->inactive_split_bytes.decrease(static_cast<std::int64_t>(blocks_[id].size));
      stats->inactive_split.decrease(1);
    }
  }
  Block& block = blocks_[id];
  block.state = BlockState::allocated;
  block.requested = request.requested;
  const auto size = static_cast<std::int64_t>(block.size);
  for (ScopeStats* stats : {&stats_.all, &scoped}) {
    stats->allocation.increase(1);
    stats->active.increase(1);
    stats->allocated_bytes.increase(size);
    stats->active_bytes.increase(size);
    stats->requested_bytes.increase(static_cast<std::int64_t>(request.requested));
  }
  if (block.size >= config_.max_split_size) [[unlikely]]
    stats_.oversize_allocations.increase(1);
  return {AllocStatus::ok, BlockId{id}, block.address, block.tag};
}

template <class Backend>
void CachingAllocator<Backend>::free(BlockId handle, ReuseTag tag) {
  const std::uint32_t id = index_of(handle);
  if (id >= blocks_.size() || blocks_[id].state != BlockState::allocated) [[unlikely]] {
    if (handle == kNoBlock) return;
    throw Error(ErrorKind::invariant,
                "caching allocator: free of block " + std::to_string(id) + ", which is not allocated");
  }
  Block& block = blocks_[id];
  block.tag.join(tag);
  const auto size = static_cast<std::int64_t>(block.size);
  for (ScopeStats* stats : {&stats_.all, &scope(block.pool)}) {
    stats->allocation.decrease(1);
    stats->allocated_bytes.decrease(size);
  }
  if (block.size >= config_.max_split_size) [[unlikely]]
    stats_.oversize_allocations.decrease(1);
  if (block.stream_uses != 0) [[unlikely]] {
    record_events(id);
  } else {
    to_cache(id);
  }
}

template <class Backend>
void CachingAllocator<Backend>::record_stream(BlockId handle, std::uint32_t stream) {
  const std::uint32_t id = index_of(handle);
  if (id >= blocks_.size() || blocks_[id].state != BlockState::allocated || stream >= kMaxAllocatorStreams)
      [[unlikely]] {
    if (handle == kNoBlock) return;
    throw Error(ErrorKind::invariant, "caching allocator: record_stream of block " + std::to_string(id) +
                                          " on stream " + std::to_string(stream) +
                                          " (expected an allocated block and a stream below " +
                                          std::to_string(kMaxAllocatorStreams) + ")");
  }
  Block& block = blocks_[id];
  if (stream != block.stream()) block.stream_uses |= std::uint64_t{1} << stream;
}

// Nobody uses the block any more: merge it with free neighbours and put it into its pool.
template <class Backend>
void CachingAllocator<Backend>::to_cache(std::uint32_t id) {
  Block& block = blocks_[id];  // no block is created below, so the reference holds
  block.state = BlockState::free;
  const auto active = static_cast<std::int64_t>(block.size);
  const auto requested = static_cast<std::int64_t>(block.requested);
  std::int64_t split_blocks = 0, split_bytes = 0;
  for (const std::uint32_t neighbour : {block.prev, block.next}) {
    const std::uint64_t before = block.size;
    if (absorb(id, neighbour)) {
      split_blocks -= 1;
      split_bytes -= static_cast<std::int64_t>(block.size - before);
    }
  }
  insert_free(id);
  if (block.is_split()) {
    split_blocks += 1;
    split_bytes += static_cast<std::int64_t>(block.size);
  }
  const bool counts_split = block.range == kNone;
  for (ScopeStats* stats : {&stats_.all, &scope(block.pool)}) {
    if (counts_split) {
      if (split_blocks > 0) stats->inactive_split.increase(split_blocks);
      if (split_blocks < 0) stats->inactive_split.decrease(-split_blocks);
      if (split_bytes > 0) stats->inactive_split_bytes.increase(split_bytes);
      if (split_bytes < 0) stats->inactive_split_bytes.decrease(-split_bytes);
    }
    stats->active.decrease(1);
    stats->active_bytes.decrease(active);
    stats->requested_bytes.decrease(requested);
  }
}

// Merges `neighbour` into `id` when both are free or both unmapped; it leaves its own set.
template <class Backend>
bool CachingAllocator<Backend>::absorb(std::uint32_t id, std::uint32_t neighbour) {
  if (neighbour == kNone) return false;
  Block& block = blocks_[id];
  const Block& other = blocks_[neighbour];
  if (other.state != block.state) return false;
  if (other.state == BlockState::free) {
    pools_[other.pool]->free.erase(other.size, other.address);
  } else {
    erase_unmapped(neighbour);
  }
  if (block.prev == neighbour) {
    block.address = other.address;
    block.prev = other.prev;
    if (block.prev != kNone) blocks_[block.prev].next = id;
  } else {
    block.next = other.next;
    if (block.next != kNone) blocks_[block.next].prev = id;
  }
  block.size += other.size;
  block.tag.join(other.tag);
  blocks_.destroy(neighbour);
  return true;
}

template <class Backend>
void CachingAllocator<Backend>::insert_free(std::uint32_t id) {
  const Block& block = blocks_[id];
  pools_[block.pool]->free.insert(block.size, block.address, id);
  if (collects_garbage_) [[unlikely]] {
    if (cached_at_.size() <= id) cached_at_.resize(blocks_.size(), 0);
    cached_at_[id] = large_lookups_;
  }
}

template <class Backend>
std::vector<SegmentInfo> CachingAllocator<Backend>::snapshot() const {
  std::vector<SegmentInfo> segments;
  const auto mapped = [&](std::uint32_t id) {
    return id != kNone && blocks_[id].state != BlockState::unmapped;
  };
  for (std::uint32_t head = 0; head < blocks_.size(); ++head) {
    const Block& first = blocks_[head];
    if (first.state == BlockState::vacant || !mapped(head) || mapped(first.prev)) continue;
    SegmentInfo segment{first.address, 0, first.stream(), first.is_large(), first.range != kNone, {}};
    for (std::uint32_t id = head; mapped(id); id = blocks_[id].next) {
      const Block& block = blocks_[id];
      segment.size += block.size;
      segment.blocks.push_back(
          {block.size, block.state == BlockState::allocated, block.state != BlockState::free});
    }
    segments.push_back(std::move(segment));
  }
  std::sort(segments.begin(), segments.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
  return segments;
}

}  // namespace swaplab
