// Device memory as the executor sees it: take and give back bytes in program order, and learn who
// must be waited for before they can be used.
//
// Both kinds have the same shape (bound at compile time):
//   config()               settings of the caching allocator, null with the ideal one
//   fits(bytes)            the budget allows it, whatever the fragmentation
//   could_take(bytes, st)  take() would succeed without touching the driver
//   could_grow(bytes)      a new segment, or new pages, of the needed size are within the budget
//   take(bytes, st, user, on_reuse) -> Block; on_reuse(stream, tag) for each reused piece; no value
//                          when memory could not be had even after the allocator's own recovery
//   give(block, bytes, st, tag)
//   address(block)         where the bytes are; 0 with the ideal kind, whose bytes are nowhere
//   fork()                 a copy to try requests on; null where bytes never lie in unusable pieces
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "sim/allocator/caching_allocator.hpp"
#include "sim/machine.hpp"
#include "sim/memory_fork.hpp"
#include "sim/virtual_device.hpp"
#include "sim/wide_math.hpp"
#include "trace/units.hpp"

namespace swaplab {

// Who will use the bytes: kernels of a stream, or a copy from the host.
enum class MemoryUser : std::uint8_t { compute, copy_in };

// Counts bytes only. Free bytes remember who used them last: kernels take the most recently freed
// (their own stream orders them anyway), copies the longest free (they wait least).
class IdealMemory {
 public:
  using Block = BlockId;

  explicit IdealMemory(Bytes budget) : budget_(budget) { free_.push_back({budget.value, 0, {}}); }

  Bytes allocated() const { return allocated_; }
  Bytes reserved() const { return allocated_; }
  const AllocatorConfig* config() const { return nullptr; }
  bool fits(Bytes bytes) const { return allocated_ + bytes <= budget_; }
  bool could_take(Bytes bytes, std::uint16_t) const { return fits(bytes); }
  bool could_grow(Bytes) const { return false; }

  template <class OnReuse>
  std::optional<Block> take(Bytes bytes, std::uint16_t, MemoryUser user, OnReuse&& on_reuse) {
    allocated_ += bytes;
    std::int64_t wanted = bytes.value;
    while (wanted > 0) {
      Piece& piece = user == MemoryUser::compute ? free_.back() : free_.front();
      const std::int64_t part = std::min(wanted, piece.bytes);
      on_reuse(piece.stream, piece.tag);
      wanted -= part;
      piece.bytes -= part;
      if (piece.bytes > 0) break;
      user == MemoryUser::compute ? free_.pop_back() : free_.pop_front();
    }
    return kNoBlock;
  }
  void give(Block, Bytes bytes, std::uint16_t stream, const ReuseTag& tag) {
    allocated_ -= bytes;
    if (!free_.empty() && free_.back().stream == stream && free_.back().tag == tag) {
      free_.back().bytes += bytes.value;
    } else {
      free_.push_back({bytes.value, stream, tag});
    }
  }
  Bytes block_bytes(Block, Bytes bytes) const { return bytes; }
  std::uint64_t address(Block) const { return 0; }
  std::unique_ptr<MemoryFork> fork() const { return nullptr; }
  void fill_figures(AllocatorFigures&) const {}

 private:
  struct Piece {
    std::int64_t bytes;
    std::uint16_t stream;
    ReuseTag tag;
  };
  Bytes budget_, allocated_{0};
  std::deque<Piece> free_;
};

// First-fit addresses for segments and reserved ranges.
class AddressSpace {
 public:
  explicit AddressSpace(std::uint64_t base) : base_(base) {}
  std::uint64_t place(std::uint64_t size) {
    std::uint64_t address = base_;
    auto it = live_.begin();
    for (; it != live_.end() && it->first - address < size; ++it) address = it->first + it->second;
    live_.emplace_hint(it, address, size);
    return address;
  }
  void remove(std::uint64_t address) { live_.erase(address); }
  const std::map<std::uint64_t, std::uint64_t>& live() const { return live_; }

 private:
  std::uint64_t base_;
  std::map<std::uint64_t, std::uint64_t> live_;  // address -> size
};

// Where the addresses of segments and those of reserved ranges begin.
inline constexpr std::uint64_t kSegmentBase = std::uint64_t{1} << 44, kRangeBase = std::uint64_t{1} << 45;

// The driver below the caching allocator: bounded memory, API costs on the host clock, events from
// the device's tickets.
template <class Device>
class DriverBackend {
 public:
  struct Event {
    std::uint16_t lane;
    Ticket ticket;
  };

  DriverBackend(Device& device, const HostCosts& costs, Bytes capacity)
      : device_(device), costs_(costs), capacity_(static_cast<std::uint64_t>(capacity.value)) {}

  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t used() const { return used_; }
  StubDevice copy() const {
    StubDevice device(capacity_);
    for (const auto& [address, size] : segments_.live()) device.adopt_segment(address, size);
    for (const auto& [address, size] : ranges_.live()) device.adopt_range(address, size);
    device.adopt_used(used_);
    return device;
  }
  std::uint64_t device_malloc(std::uint64_t size, std::uint32_t) {
    charge_malloc(size);
    if (used_ + size > capacity_) return 0;
    used_ += size;
    const std::uint64_t address = segments_.place(size);
    device_.memory_mapped(address, size, size);
    return address;
  }
  void device_free(std::uint64_t address, std::uint64_t size, std::uint32_t) {
    device_.host_wait_all(Stall::oom_recovery);  // cudaFree waits for the device
    device_.host_spend(costs_.device_free, Stall::oom_recovery);
    device_.memory_unmapped(address, size);
    segments_.remove(address);
    used_ -= size;
  }
  std::uint64_t va_reserve(std::uint64_t size) {
    device_.host_spend(costs_.reserve_range);
    return ranges_.place(size);
  }
  void va_free(std::uint64_t address, std::uint64_t) { ranges_.remove(address); }
  bool map(std::uint64_t address, std::uint64_t size, std::uint64_t page, std::uint32_t) {
    device_.host_spend(costs_.map_page * static_cast<std::int64_t>(size / page));
    if (used_ + size > capacity_) return false;
    used_ += size;
    device_.memory_mapped(address, size, page);
    return true;
  }
  void unmap(std::uint64_t address, std::uint64_t size, std::uint64_t page, std::uint32_t) {
    device_.host_spend(costs_.unmap_page * static_cast<std::int64_t>(size / page), Stall::oom_recovery);
    device_.memory_unmapped(address, size);
    used_ -= size;
  }
  Event record_event(std::uint32_t stream) {
    device_.host_spend(costs_.event_record);
    const auto lane = static_cast<std::uint16_t>(stream);
    return {lane, device_.issued(lane)};
  }
  bool query(const Event& event) {
    device_.host_spend(costs_.event_query);
    return device_.query(event.lane, event.ticket);
  }
  void synchronize(const Event& event) { device_.host_wait(event.lane, event.ticket, Stall::oom_recovery); }
  void synchronize_stream(std::uint32_t stream) {
    const auto lane = static_cast<std::uint16_t>(stream);
    device_.host_wait(lane, device_.issued(lane), Stall::oom_recovery);
  }

 private:
  void charge_malloc(std::uint64_t size) {
    const std::int64_t variable = ceil_mul_div(costs_.device_malloc_per_gib.value,
                                               static_cast<std::int64_t>(size), std::int64_t{1} << 30);
    device_.host_spend(costs_.device_malloc + Nanos{variable});
  }
  Device& device_;
  const HostCosts& costs_;
  std::uint64_t capacity_, used_ = 0;
  AddressSpace segments_{kSegmentBase}, ranges_{kRangeBase};
};

// PyTorch's allocator over a device whose capacity is the budget.
template <class Device>
class CachingMemory {
 public:
  using Block = BlockId;

  CachingMemory(Device& device, const HostCosts& costs, Bytes budget, const AllocatorConfig& config)
      : backend_(device, costs, budget), allocator_(backend_, config), budget_(budget) {}

  Bytes allocated() const { return Bytes{allocator_.stats().all.allocated_bytes.current}; }
  Bytes reserved() const { return Bytes{allocator_.stats().all.reserved_bytes.current}; }
  const AllocatorConfig* config() const { return &allocator_.config(); }
  bool fits(Bytes bytes) const { return allocated() + rounded(bytes) <= budget_; }
  bool could_take(Bytes bytes, std::uint16_t stream) const {
    return allocator_.could_fit_cached(bytes, stream) || could_grow(bytes);
  }
  bool could_grow(Bytes bytes) const {
    const std::uint64_t growth = allocator_.config().growth(static_cast<std::uint64_t>(rounded(bytes).value));
    return backend_.used() + growth <= backend_.capacity();
  }

  template <class OnReuse>
  std::optional<Block> take(Bytes bytes, std::uint16_t stream, MemoryUser, OnReuse&& on_reuse) {
    const AllocResult result = allocator_.alloc(bytes, stream);
    if (result.status != AllocStatus::ok) return std::nullopt;
    on_reuse(stream, result.tag);
    const auto& all = allocator_.stats().all;
    if (all.allocated_bytes.current >= peak_allocated_) {
      peak_allocated_ = all.allocated_bytes.current;
      reserved_at_peak_ = all.reserved_bytes.current;
    }
    return result.block;
  }
  void give(Block block, Bytes, std::uint16_t, const ReuseTag& tag) { allocator_.free(block, tag); }
  std::uint64_t address(Block block) const { return block == kNoBlock ? 0 : allocator_.block_address(block); }
  std::unique_ptr<MemoryFork> fork() const {
    return std::make_unique<MemoryFork>(backend_.copy(), allocator_);
  }
  void fill_figures(AllocatorFigures& figures) const {
    const AllocatorStats& stats = allocator_.stats();
    figures.peak_allocated = Bytes{stats.all.allocated_bytes.peak};
    figures.peak_reserved = Bytes{stats.all.reserved_bytes.peak};
    figures.reserved_at_peak = Bytes{reserved_at_peak_};
    figures.device_mallocs = stats.num_device_alloc;
    figures.device_frees = stats.num_device_free;
    figures.retries = stats.num_alloc_retries;
    figures.ooms = stats.num_ooms;
  }

 private:
  Bytes rounded(Bytes bytes) const {
    return Bytes{
        static_cast<std::int64_t>(allocator_.config().round_size(static_cast<std::uint64_t>(bytes.value)))};
  }
  DriverBackend<Device> backend_;
  CachingAllocator<DriverBackend<Device>> allocator_;
  Bytes budget_;
  std::int64_t peak_allocated_ = 0, reserved_at_peak_ = 0;
};

}  // namespace swaplab
