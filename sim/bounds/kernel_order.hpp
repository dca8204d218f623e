// What a program's streams and data fix of the order of its kernels, whatever the schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program.hpp"

namespace swaplab {

// Operators as signed indices, so that the run's beginning has a place in the order.
constexpr std::int32_t kRunStart = -1;   // a pseudo operator before operator 0 that accesses nothing
constexpr std::int32_t kBeforeRun = -2;  // content that exists, on either side, when the run starts

// "i before j" here: in every schedule i has ended when j begins, because i precedes j on its stream or wrote
// what j reads, or by several such steps. (Readers of one storage, and a reader and the next writer, are left
// unordered: an eviction between them can let the later one run first.)
//
// The spine is a chain of kernels, each before the next one: a longest one by device time. With one stream
// it holds all kernels.
class KernelOrder {
 public:
  explicit KernelOrder(const Program& program);

  // Ascending.
  const std::vector<std::uint32_t>& spine() const { return spine_; }
  bool on_spine(std::uint32_t kernel) const { return begins_after(kernel) == ends_before(kernel); }
  // The last kernel of the spine that is `kernel` or before it; kRunStart: none.
  std::int32_t begins_after(std::uint32_t kernel) const {
    return after_.empty() ? static_cast<std::int32_t>(kernel) : after_[kernel];
  }
  // The first kernel of the spine that is `kernel` or behind it; op_count(): none.
  std::int32_t ends_before(std::uint32_t kernel) const {
    return before_.empty() ? static_cast<std::int32_t>(kernel) : before_[kernel];
  }

 private:
  std::vector<std::uint32_t> spine_;
  std::vector<std::int32_t> after_, before_;  // per operator; empty: all kernels are on the spine
};

}  // namespace swaplab
