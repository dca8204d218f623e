// Replaying a trace window by window gives what replaying it whole gives.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>

#include "policy/registry.hpp"
#include "sim/machine_io.hpp"
#include "sim/program_windows.hpp"
#include "sim/run.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/shared.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

std::shared_ptr<const MappedTrace> mapped(const Trace& trace) {
  const auto path =
      std::filesystem::temp_directory_path() / ("swaplab-windows-" + std::to_string(::getpid()) + ".swt");
  write_trace(trace, path.string());
  auto result = std::make_shared<const MappedTrace>(map_trace(path.string()));
  std::filesystem::remove(path);
  return result;
}

void check_equal(const RunResult& a, const RunResult& b) {
  REQUIRE(a.outcome == b.outcome);
  CHECK(a.explanation == b.explanation);
  CHECK(a.evictions == b.evictions);
  CHECK(a.make_room_calls == b.make_room_calls);
  CHECK(a.smallest_budget == b.smallest_budget);
  CHECK(a.peak_host_pinned == b.peak_host_pinned);
  CHECK(a.pinning_time == b.pinning_time);
  CHECK(a.allocator.peak_reserved == b.allocator.peak_reserved);
  CHECK(a.allocator.device_mallocs == b.allocator.device_mallocs);
  REQUIRE(a.iterations.size() == b.iterations.size());
  for (std::size_t i = 0; i < a.iterations.size(); ++i) {
    CHECK(a.iterations[i].begin == b.iterations[i].begin);
    CHECK(a.iterations[i].end == b.iterations[i].end);
    CHECK(a.iterations[i].stalls == b.iterations[i].stalls);
    CHECK(a.iterations[i].bytes_out == b.iterations[i].bytes_out);
    CHECK(a.iterations[i].bytes_in == b.iterations[i].bytes_in);
    CHECK(a.iterations[i].passive_in == b.iterations[i].passive_in);
    CHECK(a.iterations[i].peak_allocated == b.iterations[i].peak_allocated);
  }
  REQUIRE(a.policy_metrics.size() == b.policy_metrics.size());
  for (std::size_t i = 0; i < a.policy_metrics.size(); ++i)
    CHECK(a.policy_metrics[i].value == b.policy_metrics[i].value);
}

void compare(const Trace& trace, std::uint32_t window_ops, std::int64_t percent) {
  const Machine machine = load_machine("h100-pcie5");
  const Program program = compile_program(trace, machine, TimeSource::model);
  const ProgramWindows windows(mapped(trace), machine, TimeSource::model, window_ops);
  REQUIRE(windows.totals().peak_bytes == program.peak_bytes);
  REQUIRE(windows.totals().largest_working_set == program.largest_working_set);
  REQUIRE(windows.totals().stream_count == program.stream_count);
  int compared = 0;
  for (const PolicyFactory* factory : policy_list()) {
    if (has(factory->info().needs, Needs::future)) continue;
    for (const AllocatorKind allocator :
         {AllocatorKind::ideal, AllocatorKind::caching, AllocatorKind::stitching}) {
      CAPTURE(factory->info().name);
      CAPTURE(allocator);
      RunOptions options;
      options.allocator = allocator;
      options.budget = Bytes{program.peak_bytes.value * percent / 100};
      options.needs = factory->info().needs;
      const auto whole = factory->make({}), windowed = factory->make({});
      check_equal(run_program(program, machine, *whole, options),
                  run_windows(windows, machine, *windowed, options));
      ++compared;
    }
  }
  CHECK(compared >= 10);
}

TEST_CASE("windows: recorded traces replay alike, whatever the window") {
  const std::string path = test::source_path("configs/traces/gpt_varied.jsonl.gz");
  const Trace trace = read_trace(path);
  for (const std::uint32_t window_ops : {1u, 5000u, 1u << 30}) {
    for (const std::int64_t percent : {40, 70}) compare(trace, window_ops, percent);
  }
}

// Storages that outlive their iteration die in a later one and their slots are used again, which recorded
// trainings do not show: what a policy remembers across iterations must not be taken for another storage.
TEST_CASE("windows: random traces replay alike") {
  int traces = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    const Trace trace =
        test::random_trace(seed, {.iterations = 6 + static_cast<std::uint32_t>(seed % 7), .huge = false});
    try {
      if (compile_program(trace, load_machine("h100-pcie5"), TimeSource::model).peak_bytes <= Bytes{0})
        continue;
    } catch (const Error&) {  // an operator without FLOP and bytes has no modelled time
      continue;
    }
    compare(trace, 1 + static_cast<std::uint32_t>(seed % 40), 40 + 10 * static_cast<std::int64_t>(seed % 5));
    ++traces;
  }
  CHECK(traces >= 100);
}

TEST_CASE("times beyond the clocks are refused, not wrapped around") {
  const Machine machine = load_machine("h100-pcie5");
  CHECK_THROWS_WITH_AS(compile_program(test::random_trace(0, {}), machine, TimeSource::model),
                       doctest::Contains("36 years"), Error);
}

TEST_CASE("windows: slots are used again") {
  const Trace trace =
      extend_iterations(read_trace(test::source_path("configs/traces/gpt_small.jsonl.gz")), 40);
  const Machine machine = load_machine("h100-pcie5");
  const Program program = compile_program(trace, machine, TimeSource::model);
  const ProgramWindows windows(mapped(trace), machine, TimeSource::model, 1);
  ProgramWindow window = windows.open(machine);
  while (window.advance()) {
  }
  CHECK(window.program().slot_count() * 5 < program.slot_count());
}

TEST_CASE("windows: what needs the whole trace is refused") {
  const Trace trace = test::random_trace(1, {.huge = false});
  const Machine machine = load_machine("h100-pcie5");
  const ProgramWindows windows(mapped(trace), machine, TimeSource::model);
  const auto policy = find_policy("next-use").make({});
  RunOptions options;
  options.needs = find_policy("next-use").info().needs;
  CHECK_THROWS_AS(run_windows(windows, machine, *policy, options), Error);
  options.needs = Needs::none;
  Schedule schedule;
  options.schedule = &schedule;
  CHECK_THROWS_AS(run_windows(windows, machine, *find_policy("none").make({}), options), Error);
  CHECK_THROWS_WITH_AS(map_trace(test::source_path("configs/traces/gpt_small.jsonl.gz")),
                       doctest::Contains("not a .swt file"), Error);
}

}  // namespace
}  // namespace swaplab
