#include "sim/virtual_device.hpp"

#include <algorithm>

#include "trace/error.hpp"

namespace swaplab {

VirtualDevice::VirtualDevice(const Machine& machine, std::uint16_t compute_streams)
    : machine_(machine),
      compute_streams_(compute_streams),
      launch_latency_(machine.host.launch_latency.value),
      launch_queue_depth_(machine.launch_queue_depth),
      lanes_(compute_streams + 2u),
      next_(compute_streams + 2u, kInfinity) {
  const Interference& i = machine.interference;
  interference_ = i.d2h_during_h2d != kUnchanged || i.h2d_during_d2h != kUnchanged ||
                  i.kernel_during_d2h != kUnchanged || i.kernel_during_h2d != kUnchanged;
}

// ---- host clock

void VirtualDevice::host_spend(Nanos time, Stall reason) {
  if (time <= Nanos{0}) return;
  host_segments_.push({host_now_, host_now_ + time.value, reason});
  host_now_ += time.value;
}

void VirtualDevice::host_wait(std::uint16_t lane, Ticket ticket, Stall reason) {
  advance(host_now_);
  if (lanes_[lane].completed >= ticket) return;
  std::int64_t now = host_now_;
  while (lanes_[lane].completed < ticket) {
    const std::uint16_t next = next_lane();
    if (next_[next] == kInfinity) {
      throw Error(ErrorKind::invariant, "the host waits for device work that can never complete");
    }
    now = std::max(now, next_[next]);
    step(next);
  }
  host_spend(Nanos{now - host_now_}, reason);
}

void VirtualDevice::host_wait_all(Stall reason) {
  for (std::uint16_t lane = 0; lane < static_cast<std::uint16_t>(lanes_.size()); ++lane)
    host_wait(lane, lanes_[lane].issued, reason);
}

bool VirtualDevice::query(std::uint16_t lane, Ticket ticket) {
  if (lanes_[lane].completed >= ticket) return true;
  advance(host_now_);
  return lanes_[lane].completed >= ticket;
}

// ---- submission

void VirtualDevice::push(std::uint16_t lane, const Item& item) {
  if (item.work > kLongestWork) [[unlikely]] {
    throw Error(ErrorKind::input, std::string(is_compute(lane) ? "a kernel" : "a copy") + " takes " +
                                      std::to_string(item.work) +
                                      " ns on this machine; the simulator's limit is " +
                                      std::to_string(kLongestWork) + " ns (two hours) for one");
  }
  Lane& l = lanes_[lane];
  const bool was_idle = l.queue.empty() && !l.running;
  l.queue.push(item);
  if (!was_idle) return;
  if (!item.is_wait) {
    next_[lane] = std::max(l.ready, item.issue);
  } else if (lanes_[item.on].completed >= item.ticket) {
    l.queue.pop();  // complete before it was submitted: no constraint
  }
}

Ticket VirtualDevice::launch(std::uint16_t stream, Nanos duration, std::uint32_t log) {
  Lane& l = lanes_[stream];
  const auto depth = static_cast<Ticket>(launch_queue_depth_);
  if (depth != 0 && l.issued - l.completed >= depth) {
    advance(host_now_);
    if (l.issued - l.completed >= depth) host_wait(stream, l.issued - depth + 1, Stall::host_bound);
  }
  push(stream, {host_now_ + launch_latency_, duration.value, 0, log, 0, false});
  return ++l.issued;
}

Ticket VirtualDevice::copy(Direction direction, Bytes bytes, std::uint32_t log) {
  const std::uint16_t lane = copy_lane(direction);
  push(lane, {host_now_, machine_.link(direction).time(bytes).value, 0, log, 0, false});
  return ++lanes_[lane].issued;
}

void VirtualDevice::wait(std::uint16_t lane, std::uint16_t on, Ticket ticket) {
  if (lane == on || lanes_[on].completed >= ticket) return;
  push(lane, {host_now_, 0, ticket, kNever, on, true});
}

// ---- the event loop

std::uint16_t VirtualDevice::next_lane() const {
  std::uint16_t best = 0;
  for (std::uint16_t lane = 1; lane < static_cast<std::uint16_t>(next_.size()); ++lane) {
    if (next_[lane] < next_[best]) best = lane;
  }
  return best;
}

void VirtualDevice::advance(std::int64_t until) {
  for (;;) {
    const std::uint16_t lane = next_lane();
    if (next_[lane] > until || next_[lane] == kInfinity) return;
    step(lane);
  }
}

void VirtualDevice::step(std::uint16_t lane) {
  const std::int64_t now = next_[lane];
  if (lanes_[lane].running) {
    complete(lane, now);
  } else {
    start(lane, now);
  }
}

// Passes waits that are complete and schedules the start of the next work item.
void VirtualDevice::progress(std::uint16_t lane, std::int64_t now) {
  Lane& l = lanes_[lane];
  next_[lane] = kInfinity;
  while (!l.queue.empty()) {
    const Item& head = l.queue.front();
    if (!head.is_wait) {
      next_[lane] = std::max(l.ready, head.issue);
      if (next_[lane] <= now) start(lane, now);
      return;
    }
    if (lanes_[head.on].completed < head.ticket) return;
    resolve_wait(lane, head, now);
    l.queue.pop();
  }
}

// The ticket completed at `now` or before the lane came to this wait.
void VirtualDevice::resolve_wait(std::uint16_t lane, const Item& wait, std::int64_t now) {
  Lane& l = lanes_[lane];
  if (now <= l.ready || now <= wait.issue) return;  // held nothing up
  if (!is_compute(lane)) {
    l.memory_wait_until = now;
  } else {
    if (wait.issue > l.ready) l.reasons.push_back({wait.issue, true, Stall::host_bound});
    std::int64_t memory_until = kInfinity;
    if (wait.on == copy_lane(Direction::host_to_device)) memory_until = lanes_[wait.on].memory_wait_until;
    const std::int64_t from = std::max(l.ready, wait.issue);
    if (memory_until > from) l.reasons.push_back({std::min(memory_until, now), false, Stall::memory});
    if (memory_until < now) l.reasons.push_back({now, false, Stall::swap_in});
  }
  l.ready = now;
}

void VirtualDevice::start(std::uint16_t lane, std::int64_t now) {
  Lane& l = lanes_[lane];
  const Item& item = l.queue.front();
  if (is_compute(lane)) account_start(l, now);
  l.running = true;
  l.started = now;
  if (!interference_) {
    next_[lane] = now + item.work;
    return;
  }
  l.updated = now;
  l.remaining = item.work * kScale;
  if (!is_compute(lane)) update_rates(now);  // this copy changes the rate of the others
  l.rate = rate_of(lane);
  next_[lane] = now + (l.remaining + l.rate - 1) / l.rate;
}

void VirtualDevice::complete(std::uint16_t lane, std::int64_t now) {
  Lane& l = lanes_[lane];
  const std::uint32_t log = l.queue.front().log;
  if (log != kNever && log_ != nullptr) {
    (*log_)[log].start = Nanos{l.started};
    (*log_)[log].end = Nanos{now};
  }
  l.queue.pop();
  l.running = false;
  l.ready = now;
  ++l.completed;
  if (is_compute(lane)) {
    totals_.busy += Nanos{now - accounted_};
    accounted_ = now;
    --running_kernels_;
    if (!markers_.empty()) take_snapshots();
  } else if (interference_) {
    update_rates(now);
  }
  for (std::uint16_t other = 0; other < static_cast<std::uint16_t>(lanes_.size()); ++other) {
    Lane& o = lanes_[other];
    if (other == lane || o.running || o.queue.empty()) continue;
    if (o.queue.front().is_wait && o.queue.front().on == lane) progress(other, now);
  }
  progress(lane, now);
}

// ---- interference

Ppm VirtualDevice::rate_of(std::uint16_t lane) const {
  const bool out = lanes_[copy_lane(Direction::device_to_host)].running;
  const bool in = lanes_[copy_lane(Direction::host_to_device)].running;
  const Interference& i = machine_.interference;
  if (lane == copy_lane(Direction::device_to_host)) return in ? i.d2h_during_h2d : kUnchanged;
  if (lane == copy_lane(Direction::host_to_device)) return out ? i.h2d_during_d2h : kUnchanged;
  return std::min(out ? i.kernel_during_d2h : kUnchanged, in ? i.kernel_during_h2d : kUnchanged);
}

void VirtualDevice::update_rates(std::int64_t now) {
  for (std::uint16_t lane = 0; lane < static_cast<std::uint16_t>(lanes_.size()); ++lane) {
    Lane& l = lanes_[lane];
    if (!l.running) continue;
    const Ppm rate = rate_of(lane);
    if (rate == l.rate) continue;
    l.remaining = std::max<std::int64_t>(0, l.remaining - (now - l.updated) * l.rate);
    l.updated = now;
    l.rate = rate;
    next_[lane] = now + (l.remaining + rate - 1) / rate;
  }
}

// ---- accounting

// A kernel starts: what passed since `accounted_` was busy, or idle for this lane's reasons.
void VirtualDevice::account_start(Lane& lane, std::int64_t now) {
  if (running_kernels_++ > 0) {
    totals_.busy += Nanos{now - accounted_};
  } else {
    const std::uint32_t entry = lane.queue.front().log;
    std::int64_t from = accounted_;
    for (const Reason& reason : lane.reasons) {
      const std::int64_t until = std::min(reason.until, now);
      if (until <= from) continue;
      if (reason.host) {
        attribute_host(from, until, entry);
      } else {
        add_stall(reason.stall, from, until, entry);
      }
      from = until;
    }
    if (from < now) attribute_host(from, now, entry);
  }
  lane.reasons.clear();
  accounted_ = now;
}

// The device had nothing to run because the host had not submitted it: say what the host did.
void VirtualDevice::attribute_host(std::int64_t from, std::int64_t until, std::uint32_t entry) {
  while (from < until) {
    while (!host_segments_.empty() && host_segments_.front().end <= from) host_segments_.pop();
    std::int64_t end = until;
    Stall reason = Stall::host_bound;
    if (!host_segments_.empty()) {
      const HostSegment& segment = host_segments_.front();
      if (segment.begin > from) {
        end = std::min(until, segment.begin);
      } else {
        end = std::min(until, segment.end);
        reason = segment.reason;
      }
    }
    add_stall(reason, from, end, entry);
    from = end;
  }
}

void VirtualDevice::add_stall(Stall stall, std::int64_t from, std::int64_t until, std::uint32_t entry) {
  totals_.stalls[static_cast<std::size_t>(stall)] += Nanos{until - from};
  if (stall_log_ != nullptr) stall_log_->push_back({stall, Nanos{from}, Nanos{until}, entry});
}

void VirtualDevice::end_iteration() {
  std::vector<Ticket> tickets(compute_streams_);
  for (std::uint16_t lane = 0; lane < compute_streams_; ++lane) tickets[lane] = lanes_[lane].issued;
  markers_.push(tickets);
  take_snapshots();
}

// Called when a kernel completes, so that `accounted_` is the end of the last one.
void VirtualDevice::take_snapshots() {
  while (!markers_.empty()) {
    const std::vector<Ticket>& tickets = markers_.front();
    for (std::uint16_t lane = 0; lane < compute_streams_; ++lane) {
      if (lanes_[lane].completed < tickets[lane]) return;
    }
    Snapshot snapshot = totals_;
    snapshot.time = Nanos{accounted_};
    snapshots_.push_back(snapshot);
    markers_.pop();
  }
}

Nanos VirtualDevice::last_iteration_time() {
  advance(host_now_);
  if (snapshots_.empty()) return Nanos{-1};
  const Nanos before = snapshots_.size() < 2 ? Nanos{0} : snapshots_[snapshots_.size() - 2].time;
  return snapshots_.back().time - before;
}

void VirtualDevice::finish() {
  advance(kInfinity);
  for (const Lane& lane : lanes_) {
    if (lane.completed != lane.issued)
      throw Error(ErrorKind::invariant, "device work left undone: circular waits");
  }
}

}  // namespace swaplab
