#include "policy/foresight_model.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "policy/foresight_lane.hpp"
#include "trace/error.hpp"

namespace swaplab::foresight {
namespace {

enum class Place : std::uint8_t { absent, device, outgoing, host };

struct SlotState {
  Place place = Place::absent;
  bool host_valid = false;
  std::int64_t used = 0, written = 0;          // end of the last kernel that used / wrote it
  std::int64_t copied_in = 0, copied_out = 0;  // end of the latest copies
};

struct Piece {  // free bytes, usable from `ready` on
  std::int64_t bytes, ready;
};

class Replay {
 public:
  Replay(const Program& program, const Machine& machine, std::span<const std::int64_t> sizes, Bytes budget)
      : program_(program),
        machine_(machine),
        sizes_(sizes),
        slots_(program.slot_count()),
        out_lane_(machine.interference.d2h_during_h2d),
        in_lane_(machine.interference.h2d_during_d2h) {
    streams_.assign(program.stream_count, 0);
    free_.push_back({budget.value, 0});
    free_bytes_ = budget.value;
    submit_ =
        machine.host.copy_submit.value + machine.host.event_record.value + machine.host.event_wait.value;
  }

  ModelResult run(const Plan& plan, const Placement& placement, std::uint32_t end_op, bool keep_ends) {
    place_initial(placement);
    ModelResult result;
    if (keep_ends) result.op_end.assign(end_op, 0);
    std::size_t step = 0, iteration = 0;
    std::int64_t latest = 0;
    const auto end_iterations = [&](std::uint32_t position) {
      const auto& list = program_.iterations;
      for (; iteration < list.size() && list[iteration].end_op <= position; ++iteration) {
        result.iteration_end.push_back(latest);
      }
    };
    end_iterations(0);  // of no operators
    for (std::uint32_t op = 0; op < end_op; ++op) {
      const auto events = program_.gap(op);
      std::size_t e = 0;
      if (step < plan.steps.size() && plan.steps[step].position <= op) {
        for (; e < events.size() && events[e].is_free; ++e) release(index(events[e].slot));
        for (; step < plan.steps.size() && plan.steps[step].position <= op; ++step) apply(plan.steps[step]);
      }
      for (; e < events.size(); ++e) {
        const std::uint32_t s = index(events[e].slot);
        events[e].is_free ? release(s) : allocate(s);
      }
      issue(op);
      latest = std::max(latest, streams_[program_.stream[op]]);
      if (keep_ends) result.op_end[op] = streams_[program_.stream[op]];
      end_iterations(op + 1);
    }
    result.overdrafts = overdrafts_;
    if (keep_ends) result.end = end_placement();
    return result;
  }

 private:
  void place_initial(const Placement& placement) {
    for (std::uint32_t s = 0; s < program_.slot_count(); ++s) {
      if (program_.initial[s] == 0) continue;
      if (placement.on_host[s] != 0) {
        slots_[s].place = Place::host;
        slots_[s].host_valid = true;
      } else {
        if (sizes_[s] > free_bytes_) {
          throw Error(ErrorKind::invariant,
                      "foresight: the initial placement holds more than the budget, from slot " +
                          std::to_string(s) + " on");
        }
        slots_[s].place = Place::device;
        slots_[s].host_valid = placement.is_clean(s);
        take_newest(sizes_[s]);
      }
    }
  }

  Placement end_placement() const {
    Placement now;
    for (const SlotState& slot : slots_) {
      now.on_host.push_back(slot.place == Place::host || slot.place == Place::outgoing ? 1 : 0);
      now.clean.push_back(slot.place == Place::device && slot.host_valid ? 1 : 0);
    }
    return now;
  }

  void apply(const PlanStep& step) {
    const std::uint32_t s = index(step.slot);
    switch (step.action) {
      case PlanAction::copy_out:
        if (slots_[s].place == Place::device) copy_out(s);
        break;
      case PlanAction::evict:
        if (slots_[s].place != Place::device) break;
        copy_out(s);
        slots_[s].place = Place::outgoing;
        outgoing_.push_back(s);
        outgoing_bytes_ += sizes_[s];
        break;
      case PlanAction::prefetch:
        if (slots_[s].place == Place::outgoing) {
          cancel(s);
        } else if (slots_[s].place == Place::host && free_bytes_ + outgoing_bytes_ >= sizes_[s]) {
          copy_in(s);
        }
        break;
    }
  }

  void copy_out(std::uint32_t s) {
    SlotState& slot = slots_[s];
    if (slot.host_valid) return;
    host_ += submit_;
    slot.copied_out =
        out_lane_.copy(std::max({slot.written, slot.copied_in, host_}),
                       machine_.link(Direction::device_to_host).time(program_.bytes[s]).value, in_lane_);
    slot.host_valid = true;
  }

  void copy_in(std::uint32_t s) {
    SlotState& slot = slots_[s];
    make_room(sizes_[s]);
    host_ += submit_;
    const std::int64_t ready = take_oldest(sizes_[s]);
    slot.copied_in =
        in_lane_.copy(std::max({ready, slot.copied_out, host_}),
                      machine_.link(Direction::host_to_device).time(program_.bytes[s]).value, out_lane_);
    slot.place = Place::device;
  }

  void cancel(std::uint32_t s) {
    slots_[s].place = Place::device;
    outgoing_bytes_ -= sizes_[s];
  }

  void allocate(std::uint32_t s) {
    make_room(sizes_[s]);
    const std::int64_t ready = take_newest(sizes_[s]);
    std::int64_t& stream = streams_[program_.home_stream[s]];
    stream = std::max(stream, ready);
    slots_[s].place = Place::device;
  }

  void release(std::uint32_t s) {
    SlotState& slot = slots_[s];
    if (slot.place == Place::outgoing) outgoing_bytes_ -= sizes_[s];
    if (slot.place == Place::device || slot.place == Place::outgoing) hand_on(s);
    slot.place = Place::absent;
  }

  void hand_on(std::uint32_t s) {
    const SlotState& slot = slots_[s];
    const std::int64_t ready = std::max({slot.used, slot.copied_out, slot.copied_in});
    free_bytes_ += sizes_[s];
    free_.push_back({sizes_[s], ready});
  }

  // Hands the bytes of evicted storages on, oldest first, until `bytes` are free.
  void make_room(std::int64_t bytes) {
    while (free_bytes_ < bytes && outgoing_head_ < outgoing_.size()) {
      const std::uint32_t s = outgoing_[outgoing_head_++];
      if (slots_[s].place != Place::outgoing) continue;
      outgoing_bytes_ -= sizes_[s];
      slots_[s].place = Place::host;
      hand_on(s);
    }
    if (free_bytes_ < bytes) {
      ++overdrafts_;
      free_.push_back({bytes - free_bytes_, 0});
      free_bytes_ = bytes;
    }
  }

  std::int64_t take_newest(std::int64_t bytes) {
    std::int64_t ready = 0;
    free_bytes_ -= bytes;
    while (bytes > 0) {
      Piece& piece = free_.back();
      ready = std::max(ready, piece.ready);
      const std::int64_t part = std::min(bytes, piece.bytes);
      bytes -= part;
      piece.bytes -= part;
      if (piece.bytes == 0) free_.pop_back();
    }
    if (free_head_ > free_.size()) free_head_ = free_.size();
    return ready;
  }
  std::int64_t take_oldest(std::int64_t bytes) {
    std::int64_t ready = 0;
    free_bytes_ -= bytes;
    while (bytes > 0) {
      Piece& piece = free_[free_head_];
      ready = std::max(ready, piece.ready);
      const std::int64_t part = std::min(bytes, piece.bytes);
      bytes -= part;
      piece.bytes -= part;
      if (piece.bytes == 0) ++free_head_;
    }
    return ready;
  }

  void issue(std::uint32_t op) {
    std::int64_t start = streams_[program_.stream[op]];
    for (const Access& access : program_.accesses_of(op)) {
      const std::uint32_t s = index(access.slot);
      SlotState& slot = slots_[s];
      if (slot.place == Place::outgoing) cancel(s);
      if (slot.place == Place::host) copy_in(s);
      start = std::max({start, slot.copied_in, slot.used});
      if ((access.flags & kWrite) != 0) start = std::max(start, slot.copied_out);
    }
    host_ += program_.host_time[op].value;
    std::int64_t& stream = streams_[program_.stream[op]];
    if ((program_.op_flags[op] & kKernel) != 0) {
      start = std::max(start, host_ + machine_.host.launch_latency.value);
      stream = start + program_.device_time[op].value;
      for (const Access& access : program_.accesses_of(op)) {
        SlotState& slot = slots_[index(access.slot)];
        slot.used = stream;
        if ((access.flags & kWrite) != 0) {
          slot.written = stream;
          slot.host_valid = false;
        }
      }
    }
    if ((program_.op_flags[op] & kSync) != 0)
      host_ = std::max(host_, stream) + machine_.host.sync_resume.value;
  }

  const Program& program_;
  const Machine& machine_;
  std::span<const std::int64_t> sizes_;
  std::vector<SlotState> slots_;
  std::vector<std::int64_t> streams_;
  std::vector<Piece> free_;  // used as a queue with both ends: [free_head_, size)
  std::size_t free_head_ = 0;
  std::vector<std::uint32_t> outgoing_;
  std::size_t outgoing_head_ = 0;
  std::int64_t free_bytes_ = 0, outgoing_bytes_ = 0, submit_ = 0;
  std::int64_t host_ = 0;
  Lane out_lane_, in_lane_;
  std::uint64_t overdrafts_ = 0;
};

}  // namespace

ModelResult replay(const Program& program, const Machine& machine, const Plan& plan,
                   const Placement& placement, std::span<const std::int64_t> sizes, Bytes budget,
                   std::uint32_t end_op, bool keep_ends) {
  return Replay(program, machine, sizes, budget).run(plan, placement, end_op, keep_ends);
}

}  // namespace swaplab::foresight
