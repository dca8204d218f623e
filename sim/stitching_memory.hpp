// Device memory with the stitching allocator; same shape as the kinds in sim/memory.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "sim/allocator/stitching_allocator.hpp"
#include "sim/memory.hpp"

namespace swaplab {

// The driver's virtual memory management. A mapping costs map_page per granule, whether its memory is new
// or stitched (the figure that machines give covers creation and mapping together, so stitching is
// charged rather too much than too little). The device is not told of mappings: here bytes have several
// addresses, which no device that holds real bytes offers.
template <class Device>
class StitchingDriver {
 public:
  StitchingDriver(Device& device, const HostCosts& costs, Bytes capacity)
      : device_(device),
        costs_(costs),
        capacity_(static_cast<std::uint64_t>(capacity.value) / kStitchGranule * kStitchGranule) {}

  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t left() const { return capacity_ - used_; }
  bool create(std::uint64_t size) {
    if (size > left()) return false;
    used_ += size;
    return true;
  }
  void destroy(std::uint64_t size) { used_ -= size; }
  std::uint64_t reserve(std::uint64_t size) {
    device_.host_spend(costs_.reserve_range);
    return ranges_.place(size);
  }
  void release(std::uint64_t address, std::uint64_t) { ranges_.remove(address); }
  void map(std::uint64_t, std::uint64_t size) { device_.host_spend(costs_.map_page * granules(size)); }
  void unmap(std::uint64_t, std::uint64_t size) {
    device_.host_spend(costs_.unmap_page * granules(size), Stall::oom_recovery);
  }
  void synchronize() { device_.host_wait_all(Stall::oom_recovery); }

 private:
  static std::int64_t granules(std::uint64_t size) {
    return static_cast<std::int64_t>(size / kStitchGranule);
  }
  Device& device_;
  const HostCosts& costs_;
  std::uint64_t capacity_, used_ = 0;
  AddressSpace ranges_{std::uint64_t{1} << 46};
};

// Bytes are counted in granules: a granule that small blocks share counts whole, so allocated() is what
// no other block can use. Of a budget that is no multiple of the granule the rest stays unused.
template <class Device>
class StitchingMemory {
 public:
  using Block = BlockId;

  StitchingMemory(Device& device, const HostCosts& costs, Bytes budget, const StitchingConfig& config)
      : driver_(device, costs, budget), allocator_(driver_, config) {}

  Bytes allocated() const { return as_bytes(allocator_.stats().occupied); }
  Bytes reserved() const { return as_bytes(allocator_.stats().reserved); }
  const AllocatorConfig* config() const { return nullptr; }  // free bytes never lie in unusable pieces
  bool fits(Bytes bytes) const {
    return allocated() + allocator_.wanted(bytes) <= as_bytes(driver_.capacity());
  }
  bool could_take(Bytes bytes, std::uint16_t stream) const { return allocator_.could_serve(bytes, stream); }
  bool could_grow(Bytes bytes) const { return allocator_.wanted(bytes) <= as_bytes(driver_.left()); }

  template <class OnReuse>
  std::optional<Block> take(Bytes bytes, std::uint16_t stream, MemoryUser, OnReuse&& on_reuse) {
    const StitchedResult result = allocator_.alloc(std::max(bytes, Bytes{1}), stream);
    if (result.block == kNoBlock) return std::nullopt;
    on_reuse(stream, result.tag);
    return result.block;
  }
  std::uint64_t address(Block block) const { return block == kNoBlock ? 0 : allocator_.block_address(block); }
  void give(Block block, Bytes, std::uint16_t, const ReuseTag& tag) { allocator_.free(block, tag); }
  std::unique_ptr<MemoryFork> fork() const { return nullptr; }
  void fill_figures(AllocatorFigures& figures) const {
    const StitchingStats& stats = allocator_.stats();
    figures.peak_allocated = as_bytes(stats.peak_occupied);
    figures.peak_reserved = as_bytes(stats.peak_reserved);
    figures.reserved_at_peak = as_bytes(stats.reserved_at_peak);
    figures.device_mallocs = static_cast<std::int64_t>(stats.creates);
    figures.device_frees = static_cast<std::int64_t>(stats.destroys);
    figures.retries = static_cast<std::int64_t>(stats.drops);
    figures.ooms = static_cast<std::int64_t>(stats.failures);
    figures.stitches = static_cast<std::int64_t>(stats.stitches);
    figures.stitched_reuses = static_cast<std::int64_t>(stats.stitched_reuses);
  }

 private:
  static Bytes as_bytes(std::uint64_t value) { return Bytes{static_cast<std::int64_t>(value)}; }
  StitchingDriver<Device> driver_;
  StitchingAllocator<StitchingDriver<Device>> allocator_;
};

}  // namespace swaplab
