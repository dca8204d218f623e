#include "policy/chameleon/ahead.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "policy/chameleon/ahead_program.hpp"
#include "policy/chameleon/ahead_search.hpp"
#include "policy/foresight_study.hpp"
#include "sim/memory_fork.hpp"

namespace swaplab::adaptive {
namespace {

foresight::LiveState state_now(const AheadProgram& ahead, std::shared_ptr<MemoryFork> memory,
                               std::span<const Slot> leaving, const View& view) {
  foresight::LiveState state;
  state.memory = std::move(memory);
  state.block.assign(ahead.program().slot_count(), kNoBlock);
  std::unordered_map<std::uint32_t, std::uint32_t> slot;
  for (std::uint32_t s = 0; s < ahead.live().size(); ++s) {
    const Slot storage = ahead.live()[s];
    slot.emplace(index(storage), s);
    const Residency residency = view.residency(storage);
    if (on_device(residency) || residency == Residency::outgoing) state.block[s] = view.block(storage);
  }
  for (const Slot storage : leaving) {
    const auto found = slot.find(index(storage));
    if (found != slot.end()) state.outgoing.push_back(found->second);
  }
  return state;
}

// Steps of the plan in force, for the program's slots.
Plan kept_plan(const AheadProgram& ahead, std::span<const Step> held, std::uint32_t first_op) {
  Plan kept;
  for (const Step& step : held) {
    const Slot slot = ahead.slot_of(step);
    if (slot == kNoSlot || step.op < first_op) continue;
    kept.steps.push_back({step.op - first_op, step.action, slot});
  }
  return kept;
}

}  // namespace

AheadPlan plan_ahead(std::span<const Lap> laps, std::span<const Slot> slot_of, std::span<const Slot> leaving,
                     std::span<const Step> held, const Tuning& tuning, const AheadOptions& options,
                     const View& view) {
  const AheadProgram ahead(laps, slot_of, leaving, view);
  const Program& program = ahead.program();
  const Machine& machine = view.machine();
  const std::uint32_t end = ahead.begin_of(static_cast<std::uint32_t>(laps.size()) - 1);
  std::uint64_t work = program.accesses.size() + program.op_count();
  const std::uint32_t longest = std::min(options.hold, end > 0 ? end - 1 : 0);
  std::uint32_t hold = 0;
  std::optional<foresight::LiveState> state;
  foresight::Placement placement = ahead.placement();
  if (std::shared_ptr<MemoryFork> memory = view.fork_memory()) {
    state = state_now(ahead, std::move(memory), leaving, view);
    hold = longest;
  } else if (options.in_force && longest > 0) {
    const foresight::Study study(program, machine, placement, options.budget, Bytes{1});
    work += std::uint64_t{program.access_begin[longest]} + longest;
    foresight::ModelResult until =
        foresight::replay(program, machine, kept_plan(ahead, held, laps[0].first_op), placement, study.sizes,
                          options.budget, longest, true);
    // Where it runs out of room, nobody knows who leaves: planned from what is.
    if (until.overdrafts == 0) {
      hold = longest;
      placement = std::move(until.end);
    }
  }
  // Until the new plan takes over, the run goes on as it does now.
  if (state && hold > 0) {
    const foresight::Study study(program, machine, ahead.placement(), options.budget, Bytes{512});
    const Plan kept = kept_plan(ahead, held, laps[0].first_op);
    std::vector<std::int64_t> op_end;
    for (std::uint32_t op = 0; op < program.op_count(); ++op) {
      op_end.push_back((op == 0 ? 0 : op_end.back()) +
                       std::max(program.device_time[op], program.host_time[op]).value);
    }
    const foresight::LiveStart start{*state, hold, true};
    work += 2 * (std::uint64_t{program.access_begin[hold]} + hold);
    foresight::LayoutResult until = foresight::fit_to_allocator(
        study.problem, kept, op_end, kUnplanned, state->memory->allocator.config(), options.budget, &start);
    if (until.failures == 0) {
      state = std::move(until.end);
    } else {
      hold = 0;
    }
  }
  const Program rest = hold > 0 ? rest_of(program, hold) : program;
  if (hold == 0 && state) {
    state->placement = ahead.placement();
    state->placement.on_host.resize(program.slot_count(), 0);
    state->placement.clean.resize(program.slot_count(), 0);
  }
  AheadSearch search(rest, state ? state->placement : placement, state ? &*state : nullptr, end - hold,
                     options, machine);
  search.run(tuning);
  AheadPlan plan;
  for (PlanStep step : search.plan().steps) {
    step.position += hold;
    if (step.position >= end) break;
    plan.steps.push_back(ahead.step(step));
  }
  plan.tuning = search.tuning();
  plan.work = work + search.work();
  plan.expected = search.expected();
  return plan;
}

}  // namespace swaplab::adaptive
