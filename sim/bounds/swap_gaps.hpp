// What the swap-only bound needs of a Program, once for all windows and budgets: gaps between accesses,
// bytes that must exist at each operator, and compute time before it.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/bounds/host_clock.hpp"
#include "sim/bounds/kernel_order.hpp"
#include "sim/program.hpp"

namespace swaplab {

// A stretch of the spine (kernel_order.hpp) beside which a storage's bytes may be away from the device,
// though one and the same coming access needs its content. With one stream: from one access to the next.
struct SwapGap {
  std::int32_t open;     // operator that it lies behind; kBeforeRun: initial content, from the beginning
  std::int32_t stop;     // operator that it lies before
  std::int32_t close;    // kernel of the spine by whose start the bytes are back; stop, or behind it
  std::int32_t version;  // last kernel of the spine up to whose end the content cannot have been complete;
                         // kBeforeRun: it may always have been
  Slot slot;
  Bytes bytes;
};

// Rules (each only lowers the bound, or is exact):
// - A storage must exist from its first to its last access of the program, an initial one from the
//   run's start if it is accessed at all. Before and after that it is free memory, wherever it is.
// - A gap that ends in an access without kRead is free memory: an executor may overwrite without
//   fetching. (Ours fetches; then nothing is lost but tightness.)
// - Gaps without an operator inside (stop == open + 1) cannot bind and are left out.
struct SwapGapTable {
  std::vector<SwapGap> gaps;  // ascending by (open, close, slot)
  std::int32_t longest = 0;   // largest close - open
  // [k + 1], k on the spine: bytes that exist during operator k; [0]: at the run's start
  std::vector<Bytes> required;
  std::vector<Nanos> elapsed;  // [k]: time of the spine's kernels before k; op_count() + 1
  // [k]: where on the spine all kernels before operator k have ended. Odd, 2 i + 1: with kernel i of the
  // spine; even, 2 i: when it starts.
  std::vector<std::int64_t> settled;
  Bytes largest_working_set;  // largest sum of bytes that one operator accesses: the smallest budget
  std::uint32_t largest_working_set_op = 0;
  KernelOrder order;
  HostClock host;

  // Throws Error(input) when the program exceeds 2^31 - 2 operators or 2^62 bytes or nanoseconds in all.
  explicit SwapGapTable(const Program& program);

 private:
  // An access of a storage, as the spine sees it.
  struct Use {
    std::int32_t after, before;  // KernelOrder::begins_after and ends_before
    bool write;
  };
  struct Life {  // accesses of one storage, in program order, between which its content must survive
    Slot slot;
    Bytes bytes;
    bool initial;
    std::vector<Use> uses;
    std::vector<std::uint32_t> by_after, writes;  // rows of uses
  };
  void add_life(Life& life);
  void add_gaps(const Life& life, std::uint32_t coming, std::int32_t open, std::int32_t top);
};

}  // namespace swaplab
