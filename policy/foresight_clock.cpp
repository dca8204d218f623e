#include "policy/foresight_clock.hpp"

namespace swaplab::foresight {
namespace {

std::int64_t submit_time(const Machine& machine) {
  return (machine.host.copy_submit + machine.host.event_record + machine.host.event_wait).value;
}

}  // namespace

void LayoutClock::enter(const Program& program) {
  streams_.resize(program.stream_count, 0);
  slots_.resize(program.slot_count());
}

void LayoutClock::copy_to_host(std::uint32_t slot, Bytes bytes, std::int64_t earliest,
                               const Machine& machine) {
  SlotTimes& t = slots_[slot];
  host_ += submit_time(machine);
  t.copied_out = out_lane_.copy(std::max({t.written, t.copied_in, earliest}),
                                machine.link(Direction::device_to_host).time(bytes).value, in_lane_);
}

void LayoutClock::copy_to_device(std::uint32_t slot, Bytes bytes, const Machine& machine) {
  SlotTimes& t = slots_[slot];
  host_ += submit_time(machine);
  t.copied_in = in_lane_.copy(std::max({t.used, t.copied_out, host_}),
                              machine.link(Direction::host_to_device).time(bytes).value, out_lane_);
}

void LayoutClock::issue(const Program& program, std::uint32_t op, const Machine& machine) {
  std::int64_t& stream = streams_[program.stream[op]];
  host_ += program.host_time[op].value;
  if ((program.op_flags[op] & kKernel) != 0) {
    std::int64_t start = std::max(stream, host_ + machine.host.launch_latency.value);
    for (const Access& access : program.accesses_of(op)) {
      const SlotTimes& t = slots_[index(access.slot)];
      start = std::max({start, t.copied_in, t.used});
      if ((access.flags & kWrite) != 0) start = std::max(start, t.copied_out);
    }
    stream = start + program.device_time[op].value;
    for (const Access& access : program.accesses_of(op)) {
      SlotTimes& t = slots_[index(access.slot)];
      t.used = stream;
      if ((access.flags & kWrite) != 0) t.written = stream;
    }
  }
  if ((program.op_flags[op] & kSync) != 0) host_ = std::max(host_, stream) + machine.host.sync_resume.value;
}

}  // namespace swaplab::foresight
