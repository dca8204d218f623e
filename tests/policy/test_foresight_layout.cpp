// Plans for the caching allocator: which neighbours make a place, and how far from the bound whole runs are.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "policy/foresight_places.hpp"
#include "policy/registry.hpp"
#include "sim/bounds/steady_bound.hpp"
#include "sim/machine_io.hpp"
#include "sim/run.hpp"
#include "sim/schedule_checker.hpp"
#include "tests/support/shared.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

using namespace swaplab;
using namespace swaplab::foresight;

namespace {

// Blocks from `address` on: size and slot; kNever: free.
struct Block {
  std::uint64_t size;
  std::uint32_t slot;
};

class Memory {
 public:
  void segment(const std::vector<Block>& blocks, bool large = true, std::uint32_t stream = 0) {
    SegmentInfo segment;
    segment.address = next_;
    segment.large = large;
    segment.stream = stream;
    for (const Block& block : blocks) {
      const bool active = block.slot != kNever;
      segment.blocks.push_back({block.size, active, active});
      if (active) owners_.emplace_back(next_, block.slot);
      segment.size += block.size;
      next_ += block.size;
    }
    next_ += 1000;  // segments do not touch
    segments.push_back(segment);
  }
  TenantAt tenants(std::vector<std::int64_t> costs) const {
    return [this, costs](std::uint64_t address) {
      for (const auto& [at, slot] : owners_) {
        if (at == address) return Tenant{slot, costs.at(slot)};
      }
      FAIL("nobody lives at " << address);
      return Tenant{kNever, -1};
    };
  }
  std::vector<SegmentInfo> segments;

 private:
  std::uint64_t next_ = 1 << 20;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> owners_;
};

using Slots = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("a place is made of neighbours, free bytes between them included") {
  Memory memory;
  memory.segment({{10, 0}, {20, kNever}, {10, 1}, {10, 2}, {30, 3}});
  const auto cost = [&](std::vector<std::int64_t> costs, std::int64_t bytes) {
    return cheapest_place(memory.segments, {bytes, true, 0}, memory.tenants(std::move(costs)));
  };
  CHECK(cost({5, 5, 5, 5}, 30) == Slots{0});        // with the free 20; the first of equals
  CHECK(cost({9, 5, 5, 6}, 30) == Slots{1});        // from the other side
  CHECK(cost({9, 9, 9, 6}, 30) == Slots{3});        // alone
  CHECK(cost({9, -1, 9, 6}, 40) == Slots{2, 3});    // not across what must stay
  CHECK(cost({1, 1, 1, 9}, 41) == Slots{0, 1, 2});  // 50, for 40 do not do
  CHECK(cost({1, -1, 1, 1}, 41).empty());
  CHECK(cost({1, 1, 1, 1}, 81).empty());
}

TEST_CASE("a place lies in one segment of the request's pool and stream") {
  Memory memory;
  memory.segment({{40, 0}}, false);
  memory.segment({{40, 1}}, true, 1);
  memory.segment({{40, 2}});
  memory.segment({{20, 3}, {20, kNever}});
  const TenantAt tenants = memory.tenants({1, 1, 7, 8});
  CHECK(cheapest_place(memory.segments, {40, true, 0}, tenants) == Slots{2});
  CHECK(cheapest_place(memory.segments, {40, true, 1}, tenants) == Slots{1});
  CHECK(cheapest_place(memory.segments, {40, false, 0}, tenants) == Slots{0});
  CHECK(cheapest_place(memory.segments, {60, true, 0}, tenants).empty());
}

TEST_CASE("whole segments go by cost per byte, empty ones for nothing") {
  Memory memory;
  memory.segment({{40, 0}, {60, 1}});
  memory.segment({{50, 2}});
  memory.segment({{30, kNever}});
  memory.segment({{200, 3}});
  const TenantAt tenants = memory.tenants({10, 10, 20, -1});
  CHECK(cheapest_segments(memory.segments, 30, tenants).empty());
  CHECK(cheapest_segments(memory.segments, 31, tenants) == Slots{0, 1});
  CHECK(cheapest_segments(memory.segments, 131, tenants) == Slots{0, 1, 2});
}

// The acceptance of the planner: half the memory, every cost of the machine, PyTorch's allocator.
TEST_CASE("GPT-2 medium and ResNet-50 at half their peak: within 8 % of the bound") {
  const Machine machine = load_machine(test::source_path("configs/machines/h100-pcie5.yaml"));
  for (const std::string name : {"gpt2_medium", "resnet50_b256"}) {
    const Trace trace =
        extend_iterations(read_trace(test::source_path("configs/traces/" + name + ".jsonl.gz")), 8);
    const Program program = compile_program(trace, machine, TimeSource::model);
    const Bytes budget = program.peak_bytes / 2;
    const PolicySpec spec = parse_policies("foresight").at(0);
    const auto policy = spec.factory->make(spec.values);
    Schedule schedule;
    RunOptions options;
    options.budget = budget;
    options.needs = spec.factory->info().needs;
    options.schedule = &schedule;
    const RunResult result = run_program(program, machine, *policy, options);
    CAPTURE(name);
    REQUIRE(result.outcome == Outcome::ok);
    schedule.trace_hash = trace_hash(trace);
    schedule.times = program.times;
    schedule.machine_json = machine_json(machine);
    schedule.policy = spec.text();
    schedule.allocator = "caching";
    schedule.budget = budget;
    const ScheduleCheck check = check_schedule(schedule, trace);
    for (const CheckFinding& finding : check.findings) MESSAGE(finding.message);
    CHECK(check.finding_count == 0);
    Nanos time{0};
    for (std::uint32_t i = program.steady_first; i < program.steady_end; ++i)
      time += result.iterations[i].time();
    const Nanos bound = RunBounds(program, best_rates(machine)).at(budget).steady.total;
    MESSAGE(name, ": ", time.value, " ns against ", bound.value, " ns");
    CHECK(time >= bound);
    CHECK(time.value * 100 <= bound.value * 108);
  }
}
