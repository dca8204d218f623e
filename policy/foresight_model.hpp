// What a plan would cost: the executor's semantics on the ideal allocator in one pass over the
// operators, without views, logs or metrics. It guides the search; results come from the executor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/machine.hpp"
#include "sim/policy_api.hpp"
#include "sim/program.hpp"

namespace swaplab::foresight {

// Where the initial storages are before the first operator.
struct Placement {
  std::vector<std::uint8_t> on_host;  // per slot; only meaningful for initial ones
  std::vector<std::uint8_t> clean;    // likewise: on the device, with a valid host copy; empty: none
  bool is_clean(std::uint32_t s) const { return s < clean.size() && clean[s] != 0; }
};

struct ModelResult {
  std::vector<std::int64_t> iteration_end;  // ns, for each iteration within the horizon
  std::uint64_t overdrafts = 0;             // times that the plan left too little room
  // Kept only when asked for:
  std::vector<std::int64_t> op_end;  // ns, when each operator is done
  Placement end;                     // of the storages that live behind the last operator
};

// Replays operators [0, end_op) under `plan`. Kernel and copy times as the program and the machine's
// link say; copies slow each other down about as the machine says; host costs included. `sizes`: bytes that
// each slot occupies.
ModelResult replay(const Program& program, const Machine& machine, const Plan& plan,
                   const Placement& placement, std::span<const std::int64_t> sizes, Bytes budget,
                   std::uint32_t end_op, bool keep_ends);

}  // namespace swaplab::foresight
