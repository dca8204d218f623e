// PyTorch's CUDA caching allocator (CUDACachingAllocator.cpp, 2.4.0), rule for rule, for one device.
//
// Left out because eager training does not meet them: graph-capture pools, free-memory callbacks,
// peer access and IPC. Not thread safe: one host program owns it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/allocator/backend.hpp"
#include "sim/allocator/block.hpp"
#include "sim/allocator/config.hpp"
#include "sim/allocator/free_bins.hpp"
#include "sim/allocator/stats.hpp"
#include "trace/units.hpp"

namespace swaplab {

enum class AllocStatus : std::uint8_t {
  ok,
  out_of_memory,    // after the whole retry order; the cache has been released
  internal_assert,  // PyTorch asserts here: expandable segments with max_split_size (see Combinations)
};

struct AllocResult {
  AllocStatus status = AllocStatus::ok;
  BlockId block = kNoBlock;   // kNoBlock for a request of 0 bytes and on failure
  std::uint64_t address = 0;  // device address, 0 likewise
  ReuseTag tag;               // of the memory handed out; {0, 0} when fresh from the device
};

// `as_pytorch` also takes what require_supported() refuses, to reproduce PyTorch's own assertion.
enum class Combinations : std::uint8_t { supported_only, as_pytorch };

// One segment of the block map: for an expandable segment, one contiguous mapped range.
struct SegmentInfo {
  struct BlockInfo {
    std::uint64_t size = 0;  // bytes
    bool allocated = false;
    bool active = false;  // allocated, or freed and waiting for events
  };
  std::uint64_t address = 0, size = 0;
  std::uint32_t stream = 0;
  bool large = false, expandable = false;
  std::vector<BlockInfo> blocks;  // address order
};

// The backend must outlive the allocator, which returns nothing to it on destruction.
template <class Backend>
class CachingAllocator {
 public:
  // Throws Error(usage) for unsupported settings or a capacity above 1 TiB.
  CachingAllocator(Backend& backend, AllocatorConfig config,
                   Combinations combinations = Combinations::supported_only);

  // The same blocks, settings and statistics over another device, whose memory must hold the same segments
  // (MemoryFork). Throws Error(invariant) while blocks wait for events.
  template <class Other>
  CachingAllocator(Backend& backend, const CachingAllocator<Other>& source);

  // Limits reserved bytes to trunc(fraction * capacity); also arms the garbage collection.
  void set_memory_fraction(double fraction);

  // Serves `size` bytes to `stream`. 0 bytes: ok without a block, the allocator is not entered.
  // Order: finished events, cache, garbage collection, device, partial release (max_split_size) and
  // device, full release and device, out of memory. Throws Error(invariant) for a negative size or a
  // stream from kMaxAllocatorStreams.
  AllocResult alloc(Bytes size, std::uint32_t stream);

  // Gives the block back; it may be reused at once on its own stream, and after an event for every
  // recorded stream. `tag` joins the block's tag (component-wise maximum), as do the tags of free
  // neighbours it merges with; a split copies the tag. kNoBlock is ignored. Throws Error(invariant)
  // when the block is not allocated.
  void free(BlockId block, ReuseTag tag = {});

  // The block is also used on `stream`; the block's own stream is ignored, repeats count once.
  void record_stream(BlockId block, std::uint32_t stream);

  // Waits for all events and returns every whole free segment or page to the device.
  void empty_cache();

  // Whether the cache would serve this request as it is now: no event polled, nothing grown.
  bool could_fit_cached(Bytes size, std::uint32_t stream) const;

  const AllocatorStats& stats() const { return stats_; }
  void reset_peak_stats() { stats_.reset_peaks(); }
  const AllocatorConfig& config() const { return config_; }
  Bytes allowed_bytes() const;  // the memory fraction's limit; the capacity when there is none

  // Of an allocated block: its bytes after rounding and splitting, its address, its stream.
  Bytes block_bytes(BlockId block) const;
  std::uint64_t block_address(BlockId block) const { return blocks_[index_of(block)].address; }
  std::uint32_t block_stream(BlockId block) const { return blocks_[index_of(block)].stream(); }

  // The block map, segments by ascending address. Slow.
  std::vector<SegmentInfo> snapshot() const;

 private:
  template <class Other>
  friend class CachingAllocator;

  using Block = allocator_detail::Block;
  using BlockState = allocator_detail::BlockState;
  using FreeBins = allocator_detail::FreeBins;
  static constexpr std::uint32_t kNone = allocator_detail::kNone;
  static constexpr std::uint64_t kMaxRequest = std::uint64_t{1} << 62;

  // Free blocks and unmapped ranges of one stream, small or large.
  struct Pool {
    FreeBins free;
    std::vector<std::uint32_t> unmapped;  // block ids by address
  };
  struct AddressRange {  // of one expandable segment
    std::uint64_t address = 0, size = 0, page = 0;
  };
  struct PendingEvent {
    typename Backend::Event event;
    std::uint32_t block;
  };
  struct EventQueue {  // first in, first out
    std::vector<PendingEvent> events;
    std::size_t head = 0;
    bool empty() const { return head == events.size(); }
    void pop();
  };
  struct Request {
    std::uint64_t requested, size;
    std::uint32_t stream;
    std::uint8_t pool;
  };

  static std::uint32_t index_of(BlockId block) { return static_cast<std::uint32_t>(block); }
  // Event queues are visited in PyTorch's hash-map order, which for the four stream handles of the
  // reference results is 0, 2, 3, 1 (it shows in the history of inactive_split only); then ascending.
  static std::uint32_t queue_place(std::uint32_t stream) {
    return stream == 1 ? 3 : stream == 2 || stream == 3 ? stream - 1 : stream;
  }
  ScopeStats& scope(std::uint8_t pool) { return (pool & 1) != 0 ? stats_.large_pool : stats_.small_pool; }
  Request request_for(std::uint64_t requested, std::uint32_t stream) const;
  Pool& pool_at(std::uint8_t index);
  FreeBins::Cursor find_free(const FreeBins& bins, std::uint64_t size) const;
  std::uint64_t growable_size(std::uint32_t id) const;
  bool should_split(const Request& request, std::uint64_t remaining) const;
  AllocResult hand_out(std::uint32_t id, const Request& request);
  void to_cache(std::uint32_t id);
  bool absorb(std::uint32_t id, std::uint32_t neighbour);
  void insert_free(std::uint32_t id);

  // caching_allocator_growth.hpp
  AllocResult grow(const Request& request);
  std::uint32_t new_segment(const Request& request, bool is_retry);
  std::uint32_t expand(const Request& request);
  std::uint32_t find_expandable(const Request& request);
  bool map_block(std::uint32_t id, std::uint64_t size);
  void insert_unmapped(std::uint32_t id);
  void erase_unmapped(std::uint32_t id);

  // caching_allocator_release.hpp
  enum class Partial : std::uint8_t { released, not_enough, internal_assert };
  Partial release_available(const Request& request);
  void collect_garbage();
  void release_cached();
  void release_segment(std::uint32_t id);
  void unmap_block(std::uint32_t id);
  std::uint32_t carve(std::uint32_t neighbour, bool before, std::uint64_t address, std::uint64_t size);
  void record_events(std::uint32_t id);
  void poll_events();
  void wait_for_events();
  void event_done(std::uint32_t id);

  Backend& backend_;
  const AllocatorConfig config_;
  const std::uint64_t capacity_;
  std::uint64_t events_pending_ = 0;  // bit per queue that is not empty
  bool collects_garbage_ = false;
  bool limited_ = false;
  std::uint64_t allowed_ = 0, garbage_threshold_ = 0;  // bytes
  std::uint64_t large_lookups_ = 0;                    // the clock of block ages

  allocator_detail::BlockTable blocks_;
  std::array<std::unique_ptr<Pool>, std::size_t{2} * kMaxAllocatorStreams> pools_;
  AllocatorStats stats_;
  std::vector<std::uint64_t> cached_at_;  // by block: large_lookups_ when it entered the cache
  std::vector<AddressRange> ranges_;
  std::vector<std::uint32_t> free_ranges_;
  std::array<EventQueue, kMaxAllocatorStreams> queues_;  // by queue_place(stream)
  std::vector<std::uint32_t> scratch_;
};

}  // namespace swaplab

#include "sim/allocator/caching_allocator_growth.hpp"   // IWYU pragma: export
#include "sim/allocator/caching_allocator_impl.hpp"     // IWYU pragma: export
#include "sim/allocator/caching_allocator_release.hpp"  // IWYU pragma: export
