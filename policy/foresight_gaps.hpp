// What a planner must know about a Program before it chooses: when each storage is next used, how many
// bytes live at each operator, and which decisions repeat from iteration to iteration.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program.hpp"

namespace swaplab::foresight {

// A gap is the time between two consecutive uses of a storage; it is named by the access that opens
// it (row of Program::accesses). Gaps before the first use of an initial storage are named by slot.
struct GapTable {
  // Per access.
  std::vector<std::uint32_t> next;  // operator that closes the gap; kNever after the last use
  std::vector<std::uint32_t> key;   // equal for the same access of like iterations
  std::uint32_t key_count = 0;

  std::vector<std::uint32_t> first_use;  // per slot: operator, kNever when it is never used

  // Per operator: bytes live once its allocations are done, and how much more lives for a moment
  // between its allocations and frees, where a free follows an allocation.
  std::vector<std::int64_t> live, surge;

  // Class of each iteration: equal numbers mean equal operators, times, accesses and sizes.
  std::vector<std::uint32_t> iteration_class;
};

// `granularity`: allocation unit; sizes count rounded up to it. Linear in accesses.
GapTable find_gaps(const Program& program, Bytes granularity);

inline std::int64_t rounded(Bytes bytes, Bytes granularity) {
  return (bytes.value + granularity.value - 1) / granularity.value * granularity.value;
}

}  // namespace swaplab::foresight
