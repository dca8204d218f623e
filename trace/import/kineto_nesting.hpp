// Which operator encloses which event of a profile, and which of them is one eager operator.
#pragma once

#include <vector>

#include "trace/import/kineto_events.hpp"

namespace swaplab::kineto {

struct Nesting {
  // Per CPU operator: the operator around it, and the one that stands for it in a trace: the outermost
  // dispatched operator ("aten::linear", not "autograd::engine::..." or "AddBackward0") around it or
  // itself; without one, the operator itself. kNoIndex: none.
  std::vector<std::uint32_t> parent, unit;
  // The innermost CPU operator around each launch and each memory event; kNoIndex: none.
  std::vector<std::uint32_t> launch_op, memory_op;
  // Per device event: its launch by correlation; its CPU operator by the launch, else by External id.
  std::vector<std::uint32_t> device_launch, device_op;
  std::int64_t clamped = 0;         // operators that end after the operator around them
  std::int64_t by_external = 0;     // device events linked by External id alone
  std::int64_t without_launch = 0;  // device events linked by neither
};

// "aten::mm" is dispatched; "autograd::engine::evaluate_function: X", "X", "Optimizer.step#SGD" are not.
bool is_dispatched(std::string_view name);

Nesting nest(const Events& events);

}  // namespace swaplab::kineto
