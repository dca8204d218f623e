// No run of the simulator is faster than the bound, iteration by iteration: random programs, machines and
// decisions, with what exhaustive search has no place for (launch latency, several versions at once, frees).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/bounds/steady_bound.hpp"
#include "sim/run.hpp"
#include "tests/sim/bound_programs.hpp"

using namespace swaplab;
using namespace swaplab::test;
using namespace swaplab::unit_literals;

namespace {

// Storages are freed behind their last access, and the operators divided into iterations.
Program with_frees(Program program, std::uint32_t iterations) {
  const std::uint32_t n = program.op_count();
  const AccessIndex accesses = index_accesses(program);
  std::vector<std::vector<GapEvent>> gaps(n + 1);
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
    const std::uint32_t uses = accesses.begin[s + 1] - accesses.begin[s];
    if (uses == 0) continue;
    program.death[s] = accesses.ops[accesses.begin[s + 1] - 1] + 1;
    gaps[program.death[s]].push_back({Slot{s}, true});
  }
  for (std::uint32_t op = 0; op < n; ++op) {
    for (const GapEvent& event : program.gap(op)) gaps[op].push_back(event);
  }
  program.gap_events.clear();
  program.gap_begin.assign(1, 0);
  for (const auto& gap : gaps) {
    program.gap_events.insert(program.gap_events.end(), gap.begin(), gap.end());
    program.gap_begin.push_back(static_cast<std::uint32_t>(program.gap_events.size()));
  }
  program.iterations.clear();
  for (std::uint32_t i = 0; i < iterations; ++i) {
    program.iterations.push_back(
        {i, IterationKind::train, false, n * i / iterations, n * (i + 1) / iterations});
  }
  program.steady_first = 1;
  program.steady_end = iterations;
  return program;
}

// Evicts, copies and fetches at random.
class RandomPolicy final : public Policy {
 public:
  explicit RandomPolicy(std::uint64_t seed) : dice_(seed), pace_(dice_.in(0, 80)) {}
  void before_op(std::uint32_t, const View& view, Actions& actions) override {
    while (dice_.chance(pace_)) {
      const Slot slot = pick(view);
      if (slot == kNoSlot) return;
      if (dice_.chance(40)) {
        actions.copy_out(slot);
      } else if (view.evictable(slot)) {
        evict(slot, actions);
      }
    }
    for (const Slot slot : gone_) {
      const Residency residency = view.residency(slot);
      if (residency == Residency::outgoing && dice_.chance(10)) actions.release(slot);
      if (residency == Residency::host && dice_.chance(pace_)) actions.prefetch(slot);
    }
  }
  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    for (Slot s = view.oldest(); s != kNoSlot && shortfall > 0_B;) {
      const Slot next = view.newer(s);
      if (view.evictable(s)) {
        shortfall -= view.size(s);
        evict(s, actions);
      }
      s = next;
    }
  }

 private:
  Slot pick(const View& view) {
    std::vector<Slot> slots;
    for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) slots.push_back(s);
    if (slots.empty()) return kNoSlot;
    return slots[static_cast<std::size_t>(dice_.in(0, static_cast<std::int64_t>(slots.size()) - 1))];
  }
  void evict(Slot slot, Actions& actions) {
    actions.evict(slot);
    if (std::find(gone_.begin(), gone_.end(), slot) == gone_.end()) gone_.push_back(slot);
  }
  Dice dice_;
  std::int64_t pace_;
  std::vector<Slot> gone_;
};

Machine random_machine(Dice& dice) {
  Machine m;
  m.name = "random";
  m.hbm_capacity = Bytes{1 << 30};
  m.host_memory = {Bytes{std::int64_t{1} << 40}, Nanos{0}, false};
  m.launch_queue_depth = dice.in(0, 4);
  if (dice.chance(60)) {
    m.host.launch_latency = Nanos{dice.in(0, 5)};
    m.host.copy_submit = Nanos{dice.in(0, 2)};
    m.host.sync_resume = Nanos{dice.in(0, 3)};
    m.host.alloc_cached = Nanos{dice.in(0, 2)};
    m.host.free_cached = Nanos{dice.in(0, 2)};
  }
  for (TransferTable& table : m.pinned) {
    table = TransferTable({{0_B, Nanos{dice.in(0, 1)}}}, dice.in(1, 4) * 500'000'000);
  }
  if (dice.chance(50)) {
    m.interference.d2h_during_h2d = dice.in(40, 100) * 10'000;
    m.interference.h2d_during_d2h = dice.in(40, 100) * 10'000;
  }
  if (dice.chance(50)) {
    m.interference.kernel_during_d2h = dice.in(40, 100) * 10'000;
    m.interference.kernel_during_h2d = dice.in(40, 100) * 10'000;
  }
  return m;
}

}  // namespace

TEST_CASE("no run of the simulator beats the bound") {
  Dice dice(606);
  int runs = 0, failed = 0, violations = 0, equal = 0, stalled = 0;
  double ratios = 0;
  while (runs < 30'000) {
    const Program program =
        with_frees(tiny_program(dice, {7, 24, 6, 8, dice.in(1, 3), dice.chance(60) ? dice.in(1, 15) : 0}), 3);
    const Machine machine = random_machine(dice);
    const RunBounds bounds(program, best_rates(machine), {0, 0});
    const std::int64_t least = bounds.at(0_B).steady.smallest_budget.value;
    const Bytes budget{dice.in(least, std::max(least, bounds.required_peak().value))};
    const RunBound bound = bounds.at(budget);
    for (int policy = 0; policy < 6; ++policy) {
      RandomPolicy random(dice.next());
      RunOptions options;
      options.budget = budget;
      options.allocator = AllocatorKind::ideal;
      options.needs = Needs::op_events;
      const RunResult result = run_program(program, machine, random, options);
      ++runs;
      if (result.outcome != Outcome::ok) {  // whole storages may need more room than there is
        ++failed;
        continue;
      }
      Nanos steady{0};
      for (std::uint32_t i = 0; i < 3; ++i) {
        const Nanos time = result.iterations[i].time();
        violations += time < bound.iterations[i] ? 1 : 0;
        if (i > 0) steady += time;
      }
      violations += steady < bound.steady.total ? 1 : 0;
      equal += steady == bound.steady.total ? 1 : 0;
      if (steady == bound.steady.compute || bound.steady.total == 0_ns) continue;
      ++stalled;
      ratios += static_cast<double>(steady.value) / static_cast<double>(bound.steady.total.value);
    }
  }
  MESSAGE(runs, " runs, ", failed, " without room, ", stalled, " slower than the spine; time/bound mean ",
          ratios / stalled, ", ", equal, " equal");
  CHECK(violations == 0);
  CHECK(failed < runs / 4);
  CHECK(stalled > 10'000);
  CHECK(equal > 100);
}

TEST_CASE("a run without a budget is no bound of a window: a stall before it lets the host run ahead") {
  // Iteration 0: A (60 B) leaves for B and comes back, 60 ns each way. Iteration 1: eight kernels of 1 ns
  // that the host takes 10 ns each to issue.
  ProgramBuilder b;
  const auto A = b.storage(60), B = b.storage(60), C = b.storage(1);
  b.op(1, {{A, kWrite | kCreate}});
  b.op(1, {{B, kWrite | kCreate}});
  b.op(1, {{A, kRead}, {C, kWrite | kCreate}});
  b.end_iteration();
  for (int i = 0; i < 8; ++i) b.op(1, {{C, kRead | kWrite}});
  b.end_iteration();
  Program program = b.finish();
  for (std::uint32_t op = 3; op < 11; ++op) program.host_time[op] = 10_ns;
  Machine machine;
  machine.host_memory = {1024_B, 0_ns, false};
  machine.launch_queue_depth = 0;
  machine.pinned = {TransferTable({}, 1'000'000'000), TransferTable({}, 1'000'000'000)};
  const auto time_of = [&](Bytes budget) {
    RandomPolicy on_demand(0);
    RunOptions options;
    options.budget = budget;
    options.allocator = AllocatorKind::ideal;
    const RunResult result = run_program(program, machine, on_demand, options);
    REQUIRE(result.outcome == Outcome::ok);
    return result.iterations[1].time();
  };
  CHECK(time_of(1000_B) == 78_ns);
  CHECK(time_of(61_B) == 8_ns);
  const auto bound = [&] { return RunBounds(program, best_rates(machine)).at(61_B).iterations[1]; };
  CHECK(bound() == 8_ns);
  // With a launch queue of two, the host is at most two kernels ahead.
  machine.launch_queue_depth = 2;
  CHECK(time_of(61_B) == 61_ns);
  CHECK(bound() == 61_ns);
  // With a synchronization at its end, iteration 0 is no help.
  machine.launch_queue_depth = 0;
  program.op_flags[3] |= kSync;
  CHECK(time_of(61_B) == 72_ns);
  CHECK(bound() == 72_ns);
}
