// Replays on the host device: the same decisions as the simulator, call by call, and all data right.
#include <doctest/doctest.h>

#include <atomic>

#include "gpu_validate/replay.hpp"
#include "tests/gpu/gpu_cases.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

// Real copies of 1/64 of the bytes, kernels of 1/2000 of their time.
ReplaySettings quick(const PolicySpec& spec, Bytes budget) {
  ReplaySettings settings;
  settings.budget = budget;
  settings.needs = spec.factory->info().needs;
  settings.device.bytes_divisor = 64;
  settings.device.time_scale = 500;
  settings.device.stretch_copies = false;
  return settings;
}

Replay replay(const Program& program, const Machine& machine, const PolicySpec& spec,
              const ReplaySettings& settings) {
  const auto policy = spec.factory->make(spec.values);
  return replay_program(program, machine, *policy, settings, open_host_accelerator);
}

// Operands that kernels read.
std::uint64_t reads(const Program& program) {
  std::uint64_t count = 0;
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    if ((program.op_flags[op] & kKernel) == 0) continue;
    for (const Access& access : program.accesses_of(op)) {
      if ((access.flags & kRead) != 0 && program.bytes[index(access.slot)] > Bytes{0}) ++count;
    }
  }
  return count;
}

TEST_CASE("bundled traces: every storage right, decisions identical to the simulator's log") {
  const Machine machine = load_machine("a100-40g-pcie4");
  for (const char* trace : {"gpt_small.jsonl.gz", "gpt_varied.jsonl.gz", "moe.jsonl.gz",
                            "gpt2_medium.jsonl.gz", "resnet50_b256.jsonl.gz"}) {
    const bool large = std::string_view(trace).find("gpt_") == std::string_view::npos;
    if (large && test::kThreadSanitizer) continue;
    const Program program = test::bundled_program(trace, large ? 2 : 0, machine);
    for (const char* text : {"foresight", "next-use", "lru", "offload-activations:fallback=lru"}) {
      if (large && text == std::string_view("next-use")) continue;
      const PolicySpec spec = parse_policies(text)[0];
      const Bytes budget = test::share_of_peak(program, 70);
      CAPTURE(trace);
      CAPTURE(text);
      const Schedule simulated = test::simulate(program, machine, spec, budget);
      ReplaySettings settings = quick(spec, budget);
      if (large) settings.device.verify_stride = 16;
      const Replay measured = replay(program, machine, spec, settings);
      CHECK(measured.result.outcome == simulated.result.outcome);
      CHECK(first_difference(simulated, measured.schedule).value_or("") == "");
      CHECK(measured.integrity.findings == std::vector<std::string>{});
      CHECK(measured.integrity.ok());
      CHECK(measured.integrity.counts.operands == reads(program));
      std::uint64_t copies_in = 0;
      for (const ScheduleEntry& entry : measured.schedule.entries) {
        if (entry.kind == ScheduleKind::copy_in) ++copies_in;
      }
      CHECK(copies_in > 0);
      CHECK(measured.integrity.counts.swap_ins <=
            copies_in);  // what was swapped before it was written has no content
      CHECK(measured.integrity.counts.swap_ins > copies_in / 2);
      CHECK(measured.result.allocator.peak_reserved == simulated.result.allocator.peak_reserved);
      CHECK(measured.result.allocator.peak_allocated == simulated.result.allocator.peak_allocated);
      CHECK(measured.result.iterations.size() == program.iterations.size());
      for (const IterationMetrics& iteration : measured.result.iterations) CHECK(iteration.time() > Nanos{0});
    }
  }
}

TEST_CASE("whole bytes, stretched copies, event-polled release, sampled checks") {
  const Machine machine = load_machine("a100-40g-pcie4");
  const Program program = test::bundled_program("gpt_small.jsonl.gz", 0, machine);
  const PolicySpec spec = parse_policies("offload-activations:fallback=lru,release=record_stream")[0];
  ReplaySettings settings = quick(spec, test::share_of_peak(program, 60));
  settings.device.bytes_divisor = 1;
  settings.device.stretch_copies = true;
  settings.device.verify_stride = 64;
  const Replay measured = replay(program, machine, spec, settings);
  CHECK(measured.result.outcome == Outcome::ok);
  CHECK(measured.integrity.ok());
  const Schedule simulated = test::simulate(program, machine, spec, settings.budget);
  CHECK(first_difference(simulated, measured.schedule).value_or("") == "");
}

TEST_CASE("what does not fit is the same result as in the simulator") {
  const Machine machine = load_machine("a100-40g-pcie4");
  const Program program = test::bundled_program("gpt_small.jsonl.gz", 0, machine);
  const PolicySpec none = parse_policies("none")[0];
  const Replay measured = replay(program, machine, none, quick(none, test::share_of_peak(program, 60)));
  CHECK(measured.result.outcome == Outcome::out_of_memory);
  CHECK(measured.integrity.ok());
  const Replay tiny = replay(program, machine, none, quick(none, program.largest_working_set - Bytes{1}));
  CHECK(tiny.result.outcome == Outcome::infeasible);
}

TEST_CASE("options out of range and an interrupt end a replay cleanly") {
  const Machine machine = load_machine("a100-40g-pcie4");
  const Program program = test::bundled_program("gpt_small.jsonl.gz", 0, machine);
  const PolicySpec lru = parse_policies("lru")[0];
  ReplaySettings settings = quick(lru, test::share_of_peak(program, 70));
  settings.device.bytes_divisor = 3;
  CHECK_THROWS_AS(replay(program, machine, lru, settings), Error);
  settings.device.bytes_divisor = 64;
  const std::atomic<bool> interrupted{true};
  settings.device.interrupted = &interrupted;
  CHECK_THROWS_AS(replay(program, machine, lru, settings), Interrupted);
}

}  // namespace
}  // namespace swaplab
