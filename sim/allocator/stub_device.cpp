#include "sim/allocator/stub_device.hpp"

#include <algorithm>

namespace swaplab {
namespace {

constexpr std::uint64_t kMallocBase = 0x100000000000;
constexpr std::uint64_t kReserveBase = 0x200000000000;

}  // namespace

std::uint64_t StubDevice::first_fit(std::vector<Range>& live, std::uint64_t base, std::uint64_t size) {
  std::uint64_t address = base;
  auto at = live.begin();
  for (; at != live.end() && at->begin - address < size; ++at) address = at->end;
  live.insert(at, {address, address + size});
  return address;
}

void StubDevice::remove(std::vector<Range>& live, std::uint64_t address) {
  live.erase(std::partition_point(live.begin(), live.end(),
                                  [&](const Range& range) { return range.begin < address; }));
}

void StubDevice::adopt_segment(std::uint64_t address, std::uint64_t size) {
  segments_.push_back({address, address + size});
}

void StubDevice::adopt_range(std::uint64_t address, std::uint64_t size) {
  address_ranges_.push_back({address, address + size});
}

std::uint64_t StubDevice::device_malloc(std::uint64_t size, std::uint32_t stream) {
  ++calls_.cuda_malloc;
  if (size > capacity_ - used_) {
    log_.push_back({LogKind::malloc_failed, 0, size, stream});
    return 0;
  }
  used_ += size;
  const std::uint64_t address = first_fit(segments_, kMallocBase, size);
  log_.push_back({LogKind::segment_alloc, address, size, stream});
  return address;
}

void StubDevice::device_free(std::uint64_t address, std::uint64_t size, std::uint32_t stream) {
  ++calls_.cuda_free;
  used_ -= size;
  remove(segments_, address);
  complete_all();
  log_.push_back({LogKind::segment_free, address, size, stream});
}

std::uint64_t StubDevice::va_reserve(std::uint64_t size) {
  const std::uint64_t address = first_fit(address_ranges_, kReserveBase, size);
  log_.push_back({LogKind::reserve, address, size, 0});
  return address;
}

void StubDevice::va_free(std::uint64_t address, std::uint64_t size) {
  remove(address_ranges_, address);
  log_.push_back({LogKind::release, address, size, 0});
}

bool StubDevice::map(std::uint64_t address, std::uint64_t size, std::uint64_t page, std::uint32_t stream) {
  const std::uint64_t pages = size / page;
  const std::uint64_t fitting = (capacity_ - used_) / page;
  if (fitting < pages) {  // the pages made so far are released again
    calls_.mem_create += fitting + 1;
    calls_.mem_release += fitting;
    log_.push_back({LogKind::create_failed, 0, page, stream});
    return false;
  }
  calls_.mem_create += pages;
  used_ += size;
  log_.push_back({LogKind::map, address, size, stream});
  return true;
}

void StubDevice::unmap(std::uint64_t address, std::uint64_t size, std::uint64_t page, std::uint32_t stream) {
  calls_.mem_release += size / page;
  used_ -= size;
  log_.push_back({LogKind::unmap, address, size, stream});
}

void StubDevice::synchronize(const Event& event) {
  ++calls_.event_sync;
  completed_[event.stream] = std::max(completed_[event.stream], event.number);
}

void StubDevice::synchronize_stream(std::uint32_t stream) {
  ++calls_.stream_sync;
  completed_[stream] = recorded_[stream];
}

void StubDevice::complete(std::uint32_t stream, std::uint64_t count) {
  completed_[stream] += std::min(count, recorded_[stream] - completed_[stream]);
}

}  // namespace swaplab
