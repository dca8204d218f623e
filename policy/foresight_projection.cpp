#include "policy/foresight_projection.hpp"

namespace swaplab::foresight {

std::vector<std::int64_t> projected_room(const Problem& problem, std::span<const PlanStep> steps,
                                         Bytes capacity) {
  const Program& program = problem.program;
  std::vector<std::int64_t> values(program.op_count());
  std::vector<std::uint8_t> away(program.slot_count(), 0), live(program.slot_count(), 0);
  std::int64_t resident = 0;
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
    if (program.initial[s] == 0) continue;
    live[s] = 1;
    away[s] = problem.placement.on_host[s];
    if (away[s] == 0) resident += problem.sizes[s];
  }
  const auto move = [&](std::uint32_t s, bool leave) {
    if (live[s] == 0 || (away[s] != 0) == leave) return;
    away[s] = leave ? 1 : 0;
    resident += leave ? -problem.sizes[s] : problem.sizes[s];
  };
  std::size_t step = 0;
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    for (; step < steps.size() && steps[step].position <= op; ++step) {
      if (steps[step].action == PlanAction::copy_out) continue;
      move(index(steps[step].slot), steps[step].action == PlanAction::evict);
    }
    for (const GapEvent& event : program.gap(op)) {
      const std::uint32_t s = index(event.slot);
      if (!event.is_free) {
        live[s] = 1;
        away[s] = 0;
        resident += problem.sizes[s];
      } else {
        if (away[s] == 0) resident -= problem.sizes[s];
        live[s] = 0;
      }
    }
    for (const Access& access : program.accesses_of(op)) move(index(access.slot), false);
    values[op] = capacity.value - resident - problem.gaps.surge[op];
  }
  return values;
}

}  // namespace swaplab::foresight
