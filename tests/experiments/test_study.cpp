#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/study.hpp"
#include "sim/cost_model.hpp"
#include "sim/machine_io.hpp"
#include "sim/schedule_checker.hpp"
#include "sim/schedule_io.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/shared.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/import/import.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

// 720 runs in all; ThreadSanitizer, an order of magnitude slower, gets 72: what threads share does not depend
// on the trace.
const std::vector<std::string> kBundled =
    test::kThreadSanitizer
        ? std::vector<std::string>{"gpt_small"}
        : std::vector<std::string>{"gpt_small", "gpt_varied", "gpt2_medium", "resnet50_b256", "moe"};
constexpr const char* kBudgets = test::kThreadSanitizer ? "0.5x,1.0x" : "0.3x,0.5x,0.7x,1.0x";
constexpr const char* kPolicies = "none,lru,size,next-use,offload-activations:fallback=lru,foresight";

std::string bundled(const std::string& name) {
  return test::source_path("configs/traces/" + name + ".jsonl.gz");
}

Schedule scheduled_run(const Trace& trace, const Program& program, const Machine& machine,
                       const PolicySpec& spec, Bytes budget, AllocatorKind allocator) {
  Schedule schedule;
  RunOptions options;
  options.budget = budget;
  options.allocator = allocator;
  options.needs = spec.factory->info().needs;
  options.schedule = &schedule;
  run_program(program, machine, *spec.factory->make(spec.values), options);
  schedule.trace_hash = trace_hash(trace);
  schedule.times = program.times;
  schedule.machine_json = machine_json(machine);
  schedule.policy = spec.text();
  schedule.allocator = allocator == AllocatorKind::ideal ? "ideal" : "caching";
  schedule.budget = budget;
  return schedule;
}

TEST_CASE("without a budget nothing is copied and iteration times follow from the trace") {
  // On a machine whose API calls cost nothing the device never waits for the host, so an iteration takes
  // the sum of the recorded times of its operators that run a kernel: not views, not host-only reads.
  const auto path = test::shared_path("recorded/gpt_small.jsonl.gz");
  if (!path) return;
  const Trace trace = read_trace(*path);
  const Machine machine = load_machine("ideal-55gbps");
  const Program program = compile_program(trace, machine, TimeSource::trace);
  const auto none = parse_policies("none");
  RunOptions options;
  options.allocator = AllocatorKind::ideal;
  const RunResult result = run_program(program, machine, *none[0].factory->make({}), options);
  REQUIRE(result.outcome == Outcome::ok);
  REQUIRE(result.iterations.size() == 3);
  const auto on_host = [&](StorageId s) {
    return trace.storages.cls[index(s)] == StorageClass::optimizer_state &&
           trace.names[trace.storages.name[index(s)]].ends_with(".step");
  };
  for (std::size_t i = 0; i < 3; ++i) {
    Nanos expected{0};
    for (std::uint32_t op = trace.iterations[i].first_op; op < trace.iterations[i].end_op; ++op) {
      if (trace.signatures.view[index(trace.ops.signature[op])] != 0) continue;
      if (trace.op_name(op).starts_with("profiler.")) continue;
      bool device = false;
      for (const StorageId s : trace.inputs(op))
        device |= !on_host(s) && trace.storages.bytes[index(s)] > Bytes{0};
      for (const StorageId s : trace.outputs(op))
        device |= !on_host(s) && trace.storages.bytes[index(s)] > Bytes{0};
      // Profiler tokens are host storages; the operators that read them are the profiler's own.
      if (device) expected += trace.ops.device_time[op];
    }
    CHECK(result.iterations[i].time() == expected);
    CHECK(result.iterations[i].copies_in == 0);
    CHECK(result.iterations[i].copies_out == 0);
  }
}

TEST_CASE("every bundled trace x policy x budget: checker, bound, threads") {
  for (const std::string& name : kBundled) {
    for (const char* machine_name : {"ideal-55gbps", "a100-80g-pcie4"}) {
      CAPTURE(name);
      CAPTURE(machine_name);
      const bool ideal = std::string(machine_name) == "ideal-55gbps";
      StudyRequest request;
      request.traces = {bundled(name)};
      request.policies = parse_policies(kPolicies);
      request.budgets = parse_budgets(kBudgets);
      request.machine = load_machine(machine_name);
      request.times = TimeSource::model;
      request.allocator = ideal ? AllocatorKind::ideal : AllocatorKind::caching;
      request.jobs = 1;
      const Study study = run_study(request);
      request.jobs = 3;
      const Study parallel = run_study(request);
      const Trace trace = read_trace(request.traces[0]);
      const Program program = compile_program(trace, request.machine, TimeSource::model);
      REQUIRE(study.rows.size() == parallel.rows.size());
      for (std::size_t i = 0; i < study.rows.size(); ++i) {
        const StudyRow& row = study.rows[i];
        CAPTURE(row.policy);
        CAPTURE(row.budget_text);
        CHECK(row.steady_total == parallel.rows[i].steady_total);
        CHECK(row.result.explanation == parallel.rows[i].result.explanation);
        if (row.result.outcome == Outcome::ok) {
          REQUIRE(row.bound.has_value());
          CHECK(row.bound->feasible);
          CHECK(row.bound->steady_total <= row.steady_total);
          CHECK(row.result.allocator.peak_allocated <= row.budget);
        } else if (ideal && row.policy != "none") {
          CHECK(!row.bound->feasible);  // with an ideal allocator these fail only where every policy does
        }
        const PolicySpec& spec = request.policies[i % request.policies.size()];
        const Schedule schedule =
            scheduled_run(trace, program, request.machine, spec, row.budget, request.allocator);
        if (schedule.entries.empty()) continue;  // infeasible from the start
        const ScheduleCheck check = check_schedule(schedule, trace);
        for (const CheckFinding& finding : check.findings) MESSAGE(finding.message);
        CHECK(check.finding_count == 0);
        CHECK(check.rules_checked > schedule.entries.size());
      }
    }
  }
}

TEST_CASE("budgets are read exactly") {
  CHECK(parse_budgets("0.3x")[0].resolve(Bytes{10}) == Bytes{3});
  CHECK(parse_budgets("1.5GiB")[0].resolve(Bytes{1}) == Bytes{3ll << 29});
  CHECK(parse_budgets("0.5x,inf").size() == 2);
  for (const char* wrong : {"", "x", "0x", "-1x", "1.5", "12", "0.5x,", "1e3x", "5 parsecs", "0GiB"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_budgets(wrong), Error);
  }
}

TEST_CASE("imports without storages, or without times, are refused in one sentence") {
  StudyRequest request;
  request.policies = parse_policies("lru");
  request.budgets = parse_budgets("0.5x");
  request.machine = load_machine("ideal-55gbps");
  const auto folder =
      std::filesystem::temp_directory_path() / ("swaplab_study_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto refusal = [&](const char* bytes, const char* file) {
    const std::string path = (folder / file).string();
    const ImportInput input = ImportInput::memory("made", bytes);
    write_trace(*import_trace(std::span(&input, 1)).trace, path);
    request.traces = {path};
    try {
      run_study(request);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::input);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(refusal("0000 1.5 ms\n0001 2.25 ms\n", "times.jsonl").find("with times, but no storages") !=
        std::string::npos);
  const std::string memory = refusal("id,lower,upper,size\na,0,3,8\nb,1,4,16\n", "memory.jsonl");
  CHECK(memory.find("with storages, but no times of operators") != std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_CASE("an operator larger than the budget is infeasible, with the budget that would do") {
  StudyRequest request;
  request.traces = {bundled("gpt_small")};
  request.policies = parse_policies("lru");
  request.budgets = parse_budgets("1MiB");
  request.machine = load_machine("ideal-55gbps");
  const Study study = run_study(request);
  CHECK(study.rows[0].result.outcome == Outcome::infeasible);
  CHECK(study.rows[0].result.smallest_budget == study.traces[0].largest_working_set);
  CHECK(!study.rows[0].bound->feasible);
}

}  // namespace
}  // namespace swaplab
