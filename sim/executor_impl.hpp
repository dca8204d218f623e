// Implementation of Executor; include sim/executor.hpp.
#pragma once

#include "sim/executor.hpp"
#include "trace/human.hpp"

namespace swaplab {

template <class Device, class Memory>
std::optional<RunEnded> Executor<Device, Memory>::run(Policy& policy) {
  policy_ = &policy;
  release_rule_ = policy.release_rule();
  try {
    place_initial();
    plan_ = policy.start(*this, *this);
    std::uint32_t iteration = 0;
    const bool hooked = has(needs_, Needs::op_events);
    const auto end_iterations = [&](std::uint32_t issued) {  // several where some have no operator
      while (iteration < program_.iterations.size() && program_.iterations[iteration].end_op <= issued) {
        end_iteration(policy, iteration++);
      }
    };
    end_iterations(0);
    do {
      for (; op_ < program_.op_count(); ++op_) {
        for (const Access& access : program_.accesses_of(op_)) slots_[index(access.slot)].pinned_for = op_;
        const bool plan_due = plan_next_ < plan_.steps.size() && plan_.steps[plan_next_].position <= op_;
        run_gap(op_, policy, plan_due || hooked);
        issue(op_);
        issued_ = op_ + 1;
        end_iterations(op_ + 1);
      }
    } while (enter_next_window());
    run_gap(op_, policy, false);
  } catch (const RunEnded& ended) {
    return ended;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::policy) throw;
    return RunEnded{Outcome::policy_error, error.what()};
  }
  return std::nullopt;
}

template <class Device, class Memory>
void Executor<Device, Memory>::place_initial() {
  Schedule* const schedule = std::exchange(schedule_, nullptr);  // Schedule::initial_device says it all
  for (std::uint32_t s = 0; s < program_.slot_count(); ++s) {
    if (program_.initial[s] == 0) continue;
    SlotState& state = slots_[s];
    bool placed = memory_.fits(program_.bytes[s]) && memory_.could_take(program_.bytes[s], 0);
    if (placed) placed = take(Slot{s}, MemoryUser::compute, false);
    if (placed) {
      state.residency = Residency::device;
      state.last_write_ticket = state.last_use_ticket;
      append_recent(s);
    } else {
      Bytes pinned;
      if (!host_pool_.take(program_.bytes[s], pinned)) {
        throw RunEnded{Outcome::out_of_memory, "host memory is too small for the initial storages"};
      }
      state.residency = Residency::host;
      state.host_valid = state.has_host_block = true;
      device_.host_block_taken(Slot{s});
    }
    if (schedule != nullptr) {
      (placed ? schedule->initial_device : schedule->initial_host).push_back(program_.origin[s]);
    }
  }
  schedule_ = schedule;
}

// Storages that died take their slots along when those are used again.
template <class Device, class Memory>
bool Executor<Device, Memory>::enter_next_window() {
  if (windows_ == nullptr || !windows_->advance()) return false;
  const auto gone = [this](Slot slot) { return slots_[index(slot)].residency == Residency::absent; };
  outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(outgoing_head_));
  outgoing_.erase(std::remove_if(outgoing_.begin(), outgoing_.end(), gone), outgoing_.end());
  outgoing_head_ = 0;
  for (const Slot slot : windows_->recycled()) slots_[index(slot)] = SlotState{};
  slots_.resize(program_.slot_count());
  return true;
}

// Frees and allocations in recorded order. Plan steps and the policy's hook come after the frees.
template <class Device, class Memory>
void Executor<Device, Memory>::run_gap(std::uint32_t gap, Policy& policy, bool policy_due) {
  const auto events = program_.gap(gap);
  std::size_t i = 0;
  if (policy_due) {
    for (; i < events.size() && events[i].is_free; ++i) free(events[i].slot);
    run_plan(gap);
    if (has(needs_, Needs::op_events)) policy.before_op(gap, *this, *this);
  }
  for (; i < events.size(); ++i) events[i].is_free ? free(events[i].slot) : allocate(events[i].slot);
}

template <class Device, class Memory>
void Executor<Device, Memory>::run_plan(std::uint32_t position) {
  for (; plan_next_ < plan_.steps.size() && plan_.steps[plan_next_].position <= position; ++plan_next_) {
    const PlanStep& step = plan_.steps[plan_next_];
    const SlotState& state = slots_[index(step.slot)];
    const bool resident = state.residency == Residency::device;
    ++result_.plan_steps;
    bool done = false;
    if (step.action == PlanAction::evict && resident && state.pinned_for != op_) {
      evict(step.slot);
      done = true;
    } else if (step.action == PlanAction::copy_out && resident) {
      copy_out(step.slot);
      done = true;
    } else if (step.action == PlanAction::prefetch && state.residency != Residency::absent) {
      done = prefetch(step.slot);
    }
    if (!done) ++result_.plan_steps_skipped;
  }
}

template <class Device, class Memory>
void Executor<Device, Memory>::issue(std::uint32_t op) {
  const std::uint32_t row = program_.row(op);
  const std::uint16_t stream = program_.stream[row];
  const auto accesses = program_.accesses_of(op);
  for (const Access& access : accesses) make_resident(access.slot, stream);
  device_.host_dispatch(program_.host_time[row]);
  const std::uint32_t entry = log(ScheduleKind::op, op, Bytes{0}, stream);
  const std::uint8_t flags = program_.op_flags[row];
  if ((flags & kKernel) != 0) {
    for (const Access& access : accesses) {
      if ((access.flags & kWrite) == 0) continue;
      const SlotState& state = slots_[index(access.slot)];
      // A copy to the host still reads the old content.
      if (state.out_ticket != 0) wait(stream, out_lane_, state.out_ticket);
    }
    const Ticket ticket = device_.launch(stream, program_.device_time[row], entry, op, accesses);
    for (const Access& access : accesses) {
      const std::uint32_t s = index(access.slot);
      SlotState& state = slots_[s];
      state.last_use = op;
      // Tickets belong to last_stream. A reader on another stream waited for the writer, so its own
      // completion stands for the writer's.
      if (state.last_stream != stream) state.last_write_ticket = ticket;
      state.last_stream = stream;
      state.last_use_ticket = ticket;
      if ((access.flags & kWrite) != 0) {
        state.last_write_ticket = ticket;
        state.host_valid = false;
      }
      if (newest_ != s) {
        remove_recent(s);
        append_recent(s);
      }
      if (!next_access_.empty()) ++next_access_[s];
    }
  } else if (schedule_ != nullptr) {
    schedule_->entries[entry].start = schedule_->entries[entry].end = device_.host_now();
  }
  if ((flags & kSync) != 0) {
    device_.host_wait(stream, device_.issued(stream), Stall::synchronization);
    device_.host_spend(machine_.host.sync_resume, Stall::synchronization);
  }
}

// ---- residency

template <class Device, class Memory>
void Executor<Device, Memory>::make_resident(Slot slot, std::uint16_t stream) {
  SlotState& state = slots_[index(slot)];
  if (state.residency != Residency::device) fetch(slot);
  if (state.in_ticket != 0) wait(stream, in_lane_, state.in_ticket);
  if (state.last_stream != stream) wait(stream, state.last_stream, state.last_use_ticket);
}

template <class Device, class Memory>
void Executor<Device, Memory>::fetch(Slot slot) {
  SlotState& state = slots_[index(slot)];
  if (state.residency == Residency::outgoing) {
    cancel_eviction(slot);
    return;
  }
  if (state.residency != Residency::host) {
    throw Error(ErrorKind::invariant, "operator " + std::to_string(op_) + " accesses " + describe(slot) +
                                          ", which is neither on the device nor on the host");
  }
  take(slot, MemoryUser::copy_in, true);
  start_copy_in(slot);
  ++current_.passive_in;
}

template <class Device, class Memory>
void Executor<Device, Memory>::start_copy_in(Slot slot) {
  SlotState& state = slots_[index(slot)];
  const Bytes bytes = size(slot);
  if (state.out_ticket != 0) wait(in_lane_, out_lane_, state.out_ticket);
  device_.host_spend(machine_.host.copy_submit + machine_.host.event_record + machine_.host.event_wait);
  const std::uint32_t entry = log(ScheduleKind::copy_in, index(program_.origin[index(slot)]), bytes, 0);
  state.in_ticket = device_.copy(Direction::host_to_device, bytes, entry, slot);
  state.residency = Residency::device;
  append_recent(index(slot));
  current_.bytes_in += bytes;
  ++current_.copies_in;
}

template <class Device, class Memory>
void Executor<Device, Memory>::copy_out(Slot slot) {
  SlotState& state = slots_[index(slot)];
  if (state.residency != Residency::device) {
    throw Error(ErrorKind::policy, "copy_out of " + describe(slot) + " at operator " + std::to_string(op_) +
                                       ": it is not on the device");
  }
  if (state.host_valid) return;
  require_host_block(slot);
  const Bytes bytes = size(slot);
  // The version is complete when its last writer is; later readers do not matter.
  wait(out_lane_, state.last_stream, state.last_write_ticket);
  if (state.in_ticket != 0) wait(out_lane_, in_lane_, state.in_ticket);
  device_.host_spend(machine_.host.copy_submit + machine_.host.event_record + machine_.host.event_wait);
  const std::uint32_t entry = log(ScheduleKind::copy_out, index(program_.origin[index(slot)]), bytes, 0);
  state.out_ticket = device_.copy(Direction::device_to_host, bytes, entry, slot);
  state.host_valid = true;
  current_.bytes_out += bytes;
  ++current_.copies_out;
}

template <class Device, class Memory>
void Executor<Device, Memory>::evict(Slot slot) {
  SlotState& state = slots_[index(slot)];
  if (!evictable(slot)) {
    throw Error(ErrorKind::policy, "evict of " + describe(slot) + " at operator " + std::to_string(op_) +
                                       (state.residency == Residency::device ? ": the operator accesses it"
                                                                             : ": it is not on the device"));
  }
  copy_out(slot);
  ++result_.evictions;
  remove_recent(index(slot));
  state.residency = Residency::outgoing;
  outgoing_.push_back(slot);
  outgoing_bytes_ += size(slot);
}

template <class Device, class Memory>
void Executor<Device, Memory>::cancel_eviction(Slot slot) {
  SlotState& state = slots_[index(slot)];  // its entry in outgoing_ goes stale
  state.residency = Residency::device;
  outgoing_bytes_ -= size(slot);
  append_recent(index(slot));
}

template <class Device, class Memory>
bool Executor<Device, Memory>::prefetch(Slot slot) {
  const SlotState& state = slots_[index(slot)];
  if (state.residency == Residency::device) return true;
  if (state.residency == Residency::outgoing) {
    cancel_eviction(slot);
    return true;
  }
  if (state.residency != Residency::host) {
    throw Error(ErrorKind::policy,
                "prefetch of " + describe(slot) + " at operator " + std::to_string(op_) + ": it is not live");
  }
  if (!take(slot, MemoryUser::copy_in, false)) return false;
  start_copy_in(slot);
  return true;
}

// ---- memory

template <class Device, class Memory>
void Executor<Device, Memory>::allocate(Slot slot) {
  take(slot, MemoryUser::compute, true);
  SlotState& state = slots_[index(slot)];
  state.residency = Residency::device;
  state.last_use = op_;
  state.last_stream = program_.home_stream[index(slot)];
  // Content that no kernel writes (a resize, an external storage) is there once the bytes are: after
  // their last user. A copy to the host must not start before.
  state.last_write_ticket = state.last_use_ticket;
  append_recent(index(slot));
}

template <class Device, class Memory>
void Executor<Device, Memory>::free(Slot slot) {
  SlotState& state = slots_[index(slot)];
  if (state.residency == Residency::device) {
    remove_recent(index(slot));
    hand_on(slot);
    device_.host_spend(machine_.host.free_cached);
  } else if (state.residency == Residency::outgoing) {
    outgoing_bytes_ -= size(slot);
    hand_on(slot);
  }
  if (state.has_host_block) {
    host_pool_.give(size(slot));
    device_.host_block_given(slot);
  }
  state.has_host_block = false;
  state.residency = Residency::absent;
}

// The device bytes go back to the memory, tagged with their last users.
template <class Device, class Memory>
void Executor<Device, Memory>::hand_on(Slot slot) {
  SlotState& state = slots_[index(slot)];
  const std::uint16_t home = program_.home_stream[index(slot)];
  // The tag has no place for a copy in that nobody waited for, nor for another stream's kernel: order
  // everything that is issued from now on behind them.
  if (state.in_ticket > waited_[home * (out_lane_ + 2u) + in_lane_]) order_after(in_lane_, state.in_ticket);
  if (state.last_stream != home) order_after(state.last_stream, state.last_use_ticket);
  const Ticket compute = state.last_stream == home ? state.last_use_ticket : 0;
  device_.bytes_given(slot);
  memory_.give(state.block, size(slot), home, {compute, state.out_ticket});
  state.in_ticket = state.out_ticket = state.last_use_ticket = state.last_write_ticket = 0;
  state.last_stream = home;
  log(ScheduleKind::release, index(program_.origin[index(slot)]), size(slot), 0);
}

template <class Device, class Memory>
bool Executor<Device, Memory>::release_oldest_outgoing() {
  while (outgoing_head_ < outgoing_.size()) {
    const Slot slot = outgoing_[outgoing_head_++];
    if (outgoing_head_ == outgoing_.size()) {
      outgoing_.clear();
      outgoing_head_ = 0;
    }
    SlotState& state = slots_[index(slot)];
    if (state.residency != Residency::outgoing) continue;  // fetched back or freed meanwhile
    if (release_rule_ == ReleaseRule::event_polled && !device_.query(out_lane_, state.out_ticket)) {
      device_.host_wait(out_lane_, state.out_ticket, Stall::memory);
    }
    hand_on_outgoing(slot);
    return true;
  }
  return false;
}

template <class Device, class Memory>
void Executor<Device, Memory>::hand_on_outgoing(Slot slot) {
  SlotState& state = slots_[index(slot)];
  const Ticket copied = state.out_ticket;
  outgoing_bytes_ -= size(slot);
  state.residency = Residency::host;
  hand_on(slot);
  state.out_ticket = copied;  // a copy back must not overtake it
}

template <class Device, class Memory>
void Executor<Device, Memory>::release(Slot slot) {
  const SlotState& state = slots_[index(slot)];
  if (state.residency != Residency::outgoing) return;
  wait(program_.home_stream[index(slot)], out_lane_, state.out_ticket);
  hand_on_outgoing(slot);  // its entry in outgoing_ goes stale
}

// Device bytes for `slot`, in program order: free bytes, then bytes of evicted storages, then what
// the policy evicts. Not forced: without the policy and without disturbing the allocator's cache.
template <class Device, class Memory>
bool Executor<Device, Memory>::take(Slot slot, MemoryUser user, bool forced) {
  const Bytes bytes = size(slot);
  const std::uint16_t home = program_.home_stream[index(slot)];
  SlotState& state = slots_[index(slot)];
  bool fragmented = false;
  for (;;) {
    const bool easy = memory_.fits(bytes) && memory_.could_take(bytes, home);
    if (easy || (forced && memory_.fits(bytes) && outgoing_bytes_ == Bytes{0})) {
      const std::uint16_t lane = user == MemoryUser::compute ? home : in_lane_;
      const auto block = memory_.take(bytes, home, user, [&](std::uint16_t stream, const ReuseTag& tag) {
        wait(lane, stream, tag.compute);
        wait(lane, out_lane_, tag.d2h);
        // Should nobody use the bytes before they are handed on again, their next owner waits for the same.
        state.out_ticket = std::max(state.out_ticket, tag.d2h);
        if (stream == home) {
          state.last_use_ticket = std::max(state.last_use_ticket, tag.compute);
        } else {
          order_after(stream, tag.compute);
        }
      });
      if (block) {
        state.block = *block;
        device_.host_spend(machine_.host.alloc_cached);
        current_.peak_allocated = std::max(current_.peak_allocated, memory_.allocated());
        current_.peak_reserved = std::max(current_.peak_reserved, memory_.reserved());
        log(ScheduleKind::acquire, index(program_.origin[index(slot)]), bytes, 0);
        const bool arriving = user == MemoryUser::copy_in;
        state.last_use_ticket =
            std::max(state.last_use_ticket, device_.bytes_taken(slot, memory_.address(*block), arriving));
        return true;
      }
      fragmented = true;
    }
    if (!forced && memory_.allocated() - outgoing_bytes_ + bytes > budget_) return false;
    if (release_oldest_outgoing()) continue;
    if (!forced) return false;
    // Rounding alone may be what does not fit.
    const Bytes shortfall =
        memory_.fits(bytes) ? bytes : std::max(Bytes{1}, memory_.allocated() + bytes - budget_);
    ++result_.make_room_calls;
    const std::uint64_t before = result_.evictions;
    policy_->make_room(shortfall, *this, *this);
    if (result_.evictions == before) throw out_of_memory(slot, fragmented);
  }
}

template <class Device, class Memory>
void Executor<Device, Memory>::require_host_block(Slot slot) {
  SlotState& state = slots_[index(slot)];
  if (state.has_host_block) return;
  Bytes pinned;
  if (!host_pool_.take(size(slot), pinned)) {
    throw RunEnded{Outcome::out_of_memory, "operator " + std::to_string(op_) +
                                               ": host memory is full: " + exact_bytes(host_pool_.pinned()) +
                                               " are pinned; cannot move out " + describe(slot)};
  }
  state.has_host_block = true;
  device_.host_block_taken(slot);
  const std::int64_t cost =
      ceil_mul_div(machine_.host_memory.pin_per_gib.value, pinned.value, std::int64_t{1} << 30);
  // Offloaders pin their pool before they train (never inside a timed step), so this is a cost of the
  // start, reported and not charged to an iteration.
  result_.pinning_time += Nanos{cost};
}

template <class Device, class Memory>
void Executor<Device, Memory>::wait(std::uint16_t lane, std::uint16_t on, Ticket ticket) {
  if (lane == on) return;
  Ticket& waited = waited_[lane * (out_lane_ + 2u) + on];
  if (ticket <= waited) return;
  waited = ticket;
  device_.wait(lane, on, ticket);
}

// Work issued from now on, in any lane, starts after `ticket` of lane `on`.
template <class Device, class Memory>
void Executor<Device, Memory>::order_after(std::uint16_t on, Ticket ticket) {
  for (std::uint16_t lane = 0; lane < out_lane_ + 2; ++lane) wait(lane, on, ticket);
}

// ---- results

template <class Device, class Memory>
std::uint32_t Executor<Device, Memory>::log(ScheduleKind kind, std::uint32_t id, Bytes bytes,
                                            std::uint16_t stream) {
  if (schedule_ == nullptr) return kNever;
  const Nanos now = device_.host_now();
  schedule_->entries.push_back({kind, stream, id, bytes, now, now});
  if (schedule_->keep_timeline) schedule_->issued.push_back(now);
  return static_cast<std::uint32_t>(schedule_->entries.size() - 1);
}

template <class Device, class Memory>
void Executor<Device, Memory>::end_iteration(Policy& policy, std::uint32_t which) {
  device_.end_iteration();
  const ProgramIteration& iteration = program_.iterations[which];
  current_.number = iteration.number;
  current_.kind = iteration.kind;
  result_.iterations.push_back(current_);
  current_ = {};
  current_.peak_allocated = memory_.allocated();
  current_.peak_reserved = memory_.reserved();
  policy.end_iteration(which, *this, *this);
}

template <class Device, class Memory>
std::string Executor<Device, Memory>::describe(Slot slot) const {
  const std::uint32_t s = index(slot);
  std::string text = "storage " + std::to_string(index(program_.origin[s]));
  const std::string_view name = program_.names[program_.slot_name[s]];
  if (!name.empty()) text += " '" + std::string(name) + "'";
  return text + " of " + exact_bytes(program_.bytes[s]);
}

template <class Device, class Memory>
RunEnded Executor<Device, Memory>::out_of_memory(Slot slot, bool fragmented) const {
  Bytes pinned{0};
  if (op_ < program_.op_count()) {
    for (const Access& access : program_.accesses_of(op_)) {
      if (slots_[index(access.slot)].residency == Residency::device) pinned += size(access.slot);
    }
  }
  std::string text = "operator " + std::to_string(op_);
  if (op_ < program_.op_count())
    text += " (" + std::string(program_.names[program_.name[program_.row(op_)]]) + ")";
  text += " needs " + describe(slot) + ", but " + exact_bytes(memory_.allocated()) + " of the budget of " +
          exact_bytes(budget_) + " are allocated, " + exact_bytes(pinned) +
          " of them by this operator's own storages";
  if (fragmented) {
    text += ", " + exact_bytes(memory_.reserved()) +
            " are reserved and no free piece is large enough (fragmentation)";
  }
  return {Outcome::out_of_memory, text + ", and the policy evicts nothing more"};
}

}  // namespace swaplab
