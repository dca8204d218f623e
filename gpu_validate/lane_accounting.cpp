#include "gpu_validate/lane_accounting.hpp"

#include <algorithm>
#include <limits>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr Nanos kEndless{std::numeric_limits<std::int64_t>::max()};

struct Reason {
  Nanos until;
  bool host;    // what the host did then is the reason
  Stall stall;  // otherwise
};
struct Kernel {
  Nanos issued, begin, end;
  std::uint32_t log;
  std::vector<Reason> reasons;
};
struct Interval {  // of the timeline: from the one before to `end`
  Nanos end;
  bool busy;
  Stall stall;
};

class Accounting {
 public:
  Accounting(const LaneHistory& history, std::vector<StallSlice>* stalls)
      : history_(history), stalls_(stalls) {
    for (const auto& lane : history.lanes) {
      std::vector<Nanos> ends;
      for (const LaneEvent& event : lane) {
        if (!event.is_wait) ends.push_back(event.end);
      }
      ends_.push_back(std::move(ends));
    }
  }

  std::vector<VirtualDevice::Snapshot> run() {
    find_memory_waits();
    for (std::uint16_t lane = 0; lane < history_.compute_streams; ++lane) collect_kernels(lane);
    std::stable_sort(kernels_.begin(), kernels_.end(),
                     [](const Kernel& a, const Kernel& b) { return a.begin < b.begin; });
    Nanos at = history_.start;
    for (const Kernel& kernel : kernels_) {
      if (kernel.begin > at) {
        account_gap(at, kernel);
        at = kernel.begin;
      }
      if (kernel.end > at) {
        timeline_.push_back({kernel.end, true, Stall::swap_in});
        at = kernel.end;
      }
    }
    return snapshots();
  }

 private:
  Nanos end_of(std::uint16_t lane, Ticket ticket) const {
    if (ticket == 0 || ticket > ends_[lane].size())
      throw Error(ErrorKind::invariant, "a lane waits for work " + std::to_string(ticket) + " of lane " +
                                            std::to_string(lane) + ", which was never issued");
    return ends_[lane][ticket - 1];
  }

  // Until when each copy to the device waited for memory, i.e. for other work, rather than for its turn.
  void find_memory_waits() {
    const auto& lane = history_.lanes.back();
    Nanos ready = history_.start, until = history_.start;
    for (const LaneEvent& event : lane) {
      if (!event.is_wait) {
        memory_until_.push_back(until);
        ready = event.end;
        continue;
      }
      const Nanos there = end_of(event.on, event.ticket);
      if (there <= ready || there <= event.issued) continue;
      ready = until = there;
    }
  }

  void collect_kernels(std::uint16_t number) {
    const auto in_lane = static_cast<std::uint16_t>(history_.lanes.size() - 1);
    Nanos ready = history_.start;
    std::vector<Reason> reasons;
    for (const LaneEvent& event : history_.lanes[number]) {
      if (!event.is_wait) {
        kernels_.push_back({event.issued, event.begin, event.end, event.log, std::move(reasons)});
        reasons.clear();
        ready = event.end;
        continue;
      }
      const Nanos there = end_of(event.on, event.ticket);
      if (there <= ready || there <= event.issued) continue;  // held nothing up
      if (event.issued > ready) reasons.push_back({event.issued, true, Stall::host_bound});
      const Nanos from = std::max(ready, event.issued);
      const Nanos memory = event.on == in_lane ? memory_until_[event.ticket - 1] : kEndless;
      if (memory > from) reasons.push_back({std::min(memory, there), false, Stall::memory});
      if (memory < there) reasons.push_back({there, false, Stall::swap_in});
      ready = there;
    }
  }

  void account_gap(Nanos from, const Kernel& kernel) {
    for (const Reason& reason : kernel.reasons) {
      const Nanos until = std::min(reason.until, kernel.begin);
      if (until <= from) continue;
      reason.host ? account_host(from, until, kernel.log) : add(from, until, reason.stall, kernel.log);
      from = until;
    }
    // Up to its launch what the host did is the reason; what it does later is not.
    const Nanos issued = std::clamp(kernel.issued, from, kernel.begin);
    if (from < issued) account_host(from, issued, kernel.log);
    if (issued < kernel.begin) add(issued, kernel.begin, Stall::host_bound, kernel.log);
  }

  void account_host(Nanos from, Nanos until, std::uint32_t log) {
    while (from < until) {
      while (host_ < history_.host.size() && history_.host[host_].end <= from) ++host_;
      Nanos end = until;
      Stall reason = Stall::host_bound;
      if (host_ < history_.host.size()) {
        const HostTime& spent = history_.host[host_];
        end = std::min(until, spent.begin > from ? spent.begin : spent.end);
        if (spent.begin <= from) reason = spent.reason;
      }
      add(from, end, reason, log);
      from = end;
    }
  }

  void add(Nanos from, Nanos until, Stall stall, std::uint32_t log) {
    timeline_.push_back({until, false, stall});
    if (stalls_ != nullptr) stalls_->push_back({stall, from - history_.start, until - history_.start, log});
  }

  std::vector<VirtualDevice::Snapshot> snapshots() const {
    std::vector<VirtualDevice::Snapshot> all;
    VirtualDevice::Snapshot sum{};
    Nanos at = history_.start;
    std::size_t next = 0;
    for (const auto& tickets : history_.markers) {
      Nanos end = at;
      for (std::uint16_t lane = 0; lane < history_.compute_streams; ++lane) {
        if (tickets[lane] != 0) end = std::max(end, end_of(lane, tickets[lane]));
      }
      while (at < end && next < timeline_.size()) {
        const Interval& interval = timeline_[next];
        const Nanos until = std::min(interval.end, end);
        (interval.busy ? sum.busy : sum.stalls[static_cast<std::size_t>(interval.stall)]) += until - at;
        at = until;
        if (interval.end <= end) ++next;
      }
      sum.time = at - history_.start;
      all.push_back(sum);
    }
    return all;
  }

  const LaneHistory& history_;
  std::vector<StallSlice>* stalls_;
  std::vector<std::vector<Nanos>> ends_;
  std::vector<Nanos> memory_until_;
  std::vector<Kernel> kernels_;
  std::vector<Interval> timeline_;
  std::size_t host_ = 0;
};

}  // namespace

std::vector<VirtualDevice::Snapshot> account_lanes(const LaneHistory& history,
                                                   std::vector<StallSlice>* stalls) {
  return Accounting(history, stalls).run();
}

}  // namespace swaplab
