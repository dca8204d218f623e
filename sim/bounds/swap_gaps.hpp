// What the swap-only bound needs of a Program, once for all windows and budgets: gaps between accesses,
// bytes that must exist at each operator, and compute time before it.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program.hpp"

namespace swaplab {

// Operators as signed indices, so that the run's beginning has a place in the order.
constexpr std::int32_t kRunStart = -1;   // a pseudo operator before operator 0 that accesses nothing
constexpr std::int32_t kBeforeRun = -2;  // content that exists, on either side, when the run starts

// Time between two consecutive accesses of one storage, in which its bytes may be away from the device.
struct SwapGap {
  std::int32_t open;     // operator of the access before it; kBeforeRun: initial, not accessed yet
  std::int32_t close;    // operator of the access that ends it
  std::int32_t version;  // last operator <= open that wrote the storage; kBeforeRun: never written so far
  Slot slot;
  Bytes bytes;
};

// Rules (each only lowers the bound, or is exact):
// - A storage must exist from its first to its last access of the program, an initial one from the
//   run's start if it is accessed at all. Before and after that it is free memory, wherever it is.
// - A gap that ends in an access without kRead is free memory: an executor may overwrite without
//   fetching. (Ours fetches; then nothing is lost but tightness.)
// - Gaps without an operator inside (close == open + 1) cannot bind and are left out.
struct SwapGapTable {
  std::vector<SwapGap> gaps;           // ascending by (open, close, slot)
  std::int32_t longest = 0;            // largest close - open
  std::vector<Bytes> required;         // [k + 1]: bytes that exist during operator k; [0]: at the run's start
  std::vector<Nanos> elapsed;          // [k]: compute time of the operators before k; op_count() + 1
  std::vector<std::uint32_t> kernels;  // operators with accesses or device time, ascending
  Bytes largest_working_set;           // largest sum of bytes that one operator accesses: the smallest budget
  std::uint32_t largest_working_set_op = 0;

  // Throws Error(input) when the program exceeds 2^31 - 2 operators or 2^62 bytes or nanoseconds in all.
  explicit SwapGapTable(const Program& program);
};

}  // namespace swaplab
