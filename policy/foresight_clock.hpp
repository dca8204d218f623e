// About when kernels and copies of a layout walk end: streams, copy engines, and each storage's latest of
// both.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policy/foresight_lane.hpp"
#include "sim/machine.hpp"
#include "sim/program.hpp"

namespace swaplab::foresight {

// All times in ns. The program and the machine must outlive the walk, not what is kept of the clock
// afterwards.
class LayoutClock {
 public:
  struct SlotTimes {
    std::int64_t used = 0, written = 0, copied_in = 0, copied_out = 0;
  };
  explicit LayoutClock(const Interference& interference = {})
      : out_lane_(interference.d2h_during_h2d), in_lane_(interference.h2d_during_d2h) {}

  // Goes on, or begins, with the slots and streams of `program`.
  void enter(const Program& program);

  std::int64_t host() const { return host_; }
  std::int64_t latest() const { return *std::max_element(streams_.begin(), streams_.end()); }
  SlotTimes& of(std::uint32_t slot) { return slots_[slot]; }

  // `earliest`: when the copy could be submitted.
  void copy_to_host(std::uint32_t slot, Bytes bytes, std::int64_t earliest, const Machine& machine);
  void copy_to_device(std::uint32_t slot, Bytes bytes, const Machine& machine);
  // A new storage whose place may still be copied out of: its stream waits.
  void create(std::uint32_t slot, std::uint16_t stream) {
    streams_[stream] = std::max(streams_[stream], slots_[slot].copied_out);
  }
  // The operator itself, when all that it accesses is there.
  void issue(const Program& program, std::uint32_t op, const Machine& machine);

 private:
  std::int64_t host_ = 0;
  std::vector<std::int64_t> streams_;
  Lane out_lane_, in_lane_;
  std::vector<SlotTimes> slots_;
};

}  // namespace swaplab::foresight
