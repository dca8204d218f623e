// A deterministic device for replaying allocator requests without any notion of time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/allocator/backend.hpp"

namespace swaplab {

// The stub CUDA runtime of the reference results (FORMAT.md, "The stub"): first-fit addresses, events
// that complete only on request, cudaFree completing all of them.
class StubDevice {
 public:
  struct Event {
    std::uint32_t stream;
    std::uint64_t number;
  };
  struct Calls {
    std::uint64_t cuda_malloc = 0, cuda_free = 0, mem_create = 0, mem_release = 0;
    std::uint64_t event_record = 0, event_query = 0, event_sync = 0, stream_sync = 0;
  };
  // What happened on the device, in order. `address` is 0 for failed calls.
  enum class LogKind : std::uint8_t {
    segment_alloc,
    segment_free,
    map,
    unmap,
    reserve,
    release,
    malloc_failed,
    create_failed,
    deferred_free
  };
  struct LogEntry {
    LogKind kind;
    std::uint64_t address, size;
    std::uint32_t stream;
  };

  explicit StubDevice(std::uint64_t capacity) : capacity_(capacity) {}

  // Memory and address ranges that are taken already, without a call, by ascending address; for copies of a
  // running device (MemoryFork).
  void adopt_segment(std::uint64_t address, std::uint64_t size);
  void adopt_range(std::uint64_t address, std::uint64_t size);
  void adopt_used(std::uint64_t bytes) { used_ = bytes; }

  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t device_malloc(std::uint64_t size, std::uint32_t stream);
  void device_free(std::uint64_t address, std::uint64_t size, std::uint32_t stream);
  std::uint64_t va_reserve(std::uint64_t size);
  void va_free(std::uint64_t address, std::uint64_t size);
  bool map(std::uint64_t address, std::uint64_t size, std::uint64_t page, std::uint32_t stream);
  void unmap(std::uint64_t address, std::uint64_t size, std::uint64_t page, std::uint32_t stream);
  Event record_event(std::uint32_t stream) {
    ++calls_.event_record;
    return {stream, ++recorded_[stream]};
  }
  bool query(const Event& event) {
    ++calls_.event_query;
    return event.number <= completed_[event.stream];
  }
  void synchronize(const Event& event);
  void synchronize_stream(std::uint32_t stream);
  void on_deferred_free(std::uint64_t address) { log_.push_back({LogKind::deferred_free, address, 0, 0}); }

  // The `count` oldest incomplete events of the stream complete; all if there are fewer.
  void complete(std::uint32_t stream, std::uint64_t count);
  void complete_all() { completed_ = recorded_; }

  std::uint64_t used() const { return used_; }  // bytes
  const Calls& calls() const { return calls_; }
  std::vector<LogEntry>& log() { return log_; }  // the caller clears it

 private:
  struct Range {
    std::uint64_t begin, end;
  };
  static std::uint64_t first_fit(std::vector<Range>& live, std::uint64_t base, std::uint64_t size);
  static void remove(std::vector<Range>& live, std::uint64_t address);

  std::uint64_t capacity_;
  std::uint64_t used_ = 0;
  std::vector<Range> segments_, address_ranges_;  // live, by address
  std::array<std::uint64_t, kMaxAllocatorStreams> recorded_{}, completed_{};
  Calls calls_;
  std::vector<LogEntry> log_;
};

static_assert(AllocatorBackend<StubDevice>);

}  // namespace swaplab
