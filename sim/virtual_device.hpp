// The simulated GPU: a host clock, FIFO lanes (compute streams, one copy engine per direction) and
// exact accounting of why the compute streams were idle. No memory here; see sim/memory.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sim/machine.hpp"
#include "sim/metrics.hpp"
#include "sim/schedule.hpp"

namespace swaplab {

// Number of work items of a lane that must be complete. Tickets of a lane complete in order, so a
// ticket is what CUDA calls an event, for free.
using Ticket = std::uint64_t;

// FIFO of device work, as a ring that grows to the largest backlog.
template <class T>
class WorkQueue {
 public:
  bool empty() const { return head_ == tail_; }
  T& front() { return ring_[head_ & (ring_.size() - 1)]; }
  void pop() { ++head_; }
  void push(const T& item) {
    if (tail_ - head_ == ring_.size()) grow();
    ring_[tail_++ & (ring_.size() - 1)] = item;
  }

 private:
  void grow() {
    std::vector<T> larger(ring_.size() * 2);
    for (std::uint64_t i = head_; i != tail_; ++i)
      larger[i & (larger.size() - 1)] = ring_[i & (ring_.size() - 1)];
    ring_.swap(larger);
  }
  std::vector<T> ring_ = std::vector<T>(64);
  std::uint64_t head_ = 0, tail_ = 0;
};

// Time rules (design.md, "Time and memory rules of the machine"):
// - A work item starts at the latest of: its lane's previous item, the waits queued before it, its issue.
// - Copies whose directions interfere, and kernels beside copies, progress at rates that change when
//   a copy starts or ends (fluid model in integers: work in ns x 10^6, rates in ppm).
// - The host runs ahead; what it submits at host time h cannot change anything before h. So the
//   device is only ever advanced to the host's time, or further while the host is blocked.
class VirtualDevice {
 public:
  VirtualDevice(const Machine& machine, std::uint16_t compute_streams);

  std::uint16_t copy_lane(Direction direction) const {
    return static_cast<std::uint16_t>(compute_streams_ + static_cast<std::uint16_t>(direction));
  }

  // ---- host clock
  Nanos host_now() const { return Nanos{host_now_}; }
  void host_spend(Nanos time) { host_now_ += time.value; }
  // The same, remembered as the reason should the device run dry meanwhile.
  void host_spend(Nanos time, Stall reason);
  // Blocks the host until the ticket is complete.
  void host_wait(std::uint16_t lane, Ticket ticket, Stall reason);
  void host_wait_all(Stall reason);
  // Whether the ticket is complete at the host's present time.
  bool query(std::uint16_t lane, Ticket ticket);

  // ---- submission; `log` is an entry of the attached schedule or kNever. Throws Error(input) for work of
  // more than two hours.
  Ticket launch(std::uint16_t stream, Nanos duration, std::uint32_t log);
  Ticket copy(Direction direction, Bytes bytes, std::uint32_t log);
  // Later work of `lane` does not start before `ticket` of lane `on` is complete.
  void wait(std::uint16_t lane, std::uint16_t on, Ticket ticket);
  Ticket issued(std::uint16_t lane) const { return lanes_[lane].issued; }

  // ---- what the work is about, for a device that holds real bytes (gpu_validate/real_device.hpp);
  // simulated time depends on none of it, so it costs nothing here
  // An operator's own host time, as against the costs of API calls, which a real device has anyway.
  void host_dispatch(Nanos time) { host_spend(time); }
  Ticket launch(std::uint16_t stream, Nanos duration, std::uint32_t log, std::uint32_t /*op*/,
                std::span<const Access>) {
    return launch(stream, duration, log);
  }
  Ticket copy(Direction direction, Bytes bytes, std::uint32_t log, Slot) {
    return copy(direction, bytes, log);
  }
  // Device time of an operator that is done: here always what the program says.
  Nanos measured_time(std::uint32_t /*op*/, Nanos simulated) const { return simulated; }
  // The storage owns device bytes from `address` on; whoever must be waited for has been waited for.
  // `arriving`: its content comes by a copy; otherwise kernels write it, or it is there from outside, put
  // there by work of the storage's home stream, whose ticket is returned (0: none).
  Ticket bytes_taken(Slot, std::uint64_t /*address*/, bool /*arriving*/) { return 0; }
  void bytes_given(Slot) {}
  void host_block_taken(Slot) {}
  void host_block_given(Slot) {}
  // Memory below the allocator: segments, and pages of expandable ones, in pieces that can go one by one.
  void memory_mapped(std::uint64_t /*address*/, std::uint64_t /*size*/, std::uint64_t /*piece*/) {}
  void memory_unmapped(std::uint64_t /*address*/, std::uint64_t /*size*/) {}

  // ---- accounting
  void attach(std::vector<ScheduleEntry>* log) { log_ = log; }
  // Every stall that is accounted for is also appended here.
  void attach_stalls(std::vector<StallSlice>* stalls) { stall_log_ = stalls; }
  // The iteration ends with the last kernel submitted so far.
  void end_iteration();
  struct Snapshot {
    Nanos time, busy;  // cumulative
    std::array<Nanos, kStallCount> stalls{};
  };
  // Runs everything that was submitted to its end; afterwards snapshots() has one per iteration.
  void finish();
  const std::vector<Snapshot>& snapshots() const { return snapshots_; }
  // Of the newest iteration that is complete at the host's present time; -1 before the first.
  Nanos last_iteration_time();

 private:
  static constexpr std::int64_t kInfinity = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kScale = 1'000'000;
  static constexpr std::int64_t kLongestWork = 7'200'000'000'000;  // times kScale it fits 63 bits

  struct Item {
    std::int64_t issue;  // earliest start; for waits: when it was submitted
    std::int64_t work;   // ns at full rate
    Ticket ticket;       // waits: to be complete
    std::uint32_t log;
    std::uint16_t on;  // waits: lane of the ticket
    bool is_wait;
  };
  // Why a compute lane stood still: consecutive intervals from its last completion on.
  struct Reason {
    std::int64_t until;
    bool host;    // look the host's activity up
    Stall stall;  // otherwise
  };
  struct Lane {
    WorkQueue<Item> queue;
    Ticket issued = 0, completed = 0;
    std::int64_t ready = 0;  // since when nothing but the queue's head holds the lane up
    bool running = false;
    std::int64_t started = 0;
    std::int64_t remaining = 0, updated = 0;  // ns x kScale of the running item, as of `updated`
    Ppm rate = kUnchanged;
    std::int64_t memory_wait_until = 0;  // copy lanes: end of the running item's wait for memory
    std::vector<Reason> reasons;
  };

  void push(std::uint16_t lane, const Item& item);
  void advance(std::int64_t until);
  std::uint16_t next_lane() const;
  void step(std::uint16_t lane);
  void progress(std::uint16_t lane, std::int64_t now);
  void start(std::uint16_t lane, std::int64_t now);
  void complete(std::uint16_t lane, std::int64_t now);
  void resolve_wait(std::uint16_t lane, const Item& wait, std::int64_t now);
  Ppm rate_of(std::uint16_t lane) const;
  void update_rates(std::int64_t now);
  bool is_compute(std::uint16_t lane) const { return lane < compute_streams_; }
  void account_start(Lane& lane, std::int64_t now);
  void attribute_host(std::int64_t from, std::int64_t until, std::uint32_t entry);
  void add_stall(Stall stall, std::int64_t from, std::int64_t until, std::uint32_t entry);
  void take_snapshots();

  const Machine& machine_;
  std::uint16_t compute_streams_;
  bool interference_;
  std::int64_t launch_latency_, launch_queue_depth_;
  std::int64_t host_now_ = 0;
  std::vector<Lane> lanes_;
  std::vector<std::int64_t> next_;  // per lane: time of its next transition

  // Accounting over all compute lanes.
  std::uint32_t running_kernels_ = 0;
  std::int64_t accounted_ = 0;  // everything before is attributed
  Snapshot totals_{};
  struct HostSegment {
    std::int64_t begin, end;
    Stall reason;
  };
  WorkQueue<HostSegment> host_segments_;
  WorkQueue<std::vector<Ticket>> markers_;
  std::vector<Snapshot> snapshots_;
  std::vector<ScheduleEntry>* log_ = nullptr;
  std::vector<StallSlice>* stall_log_ = nullptr;
};

}  // namespace swaplab
