// The online policy: detector, fingerprints, stages, identities, and that its schedules are accepted.
#include <doctest/doctest.h>

#include "policy/chameleon/fingerprint.hpp"
#include "policy/chameleon/profiler.hpp"
#include "policy/chameleon/sequence.hpp"
#include "sim/machine_io.hpp"
#include "sim/schedule_checker.hpp"
#include "tests/policy/policy_programs.hpp"
#include "tests/support/shared.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

using namespace swaplab;
using namespace swaplab::chameleon;

namespace {

std::int64_t metric(const RunResult& result, std::string_view tag) {
  for (const PolicyMetric& m : result.policy_metrics) {
    if (m.tag == tag) return m.value;
  }
  FAIL("no metric " << tag);
  return 0;
}

// Everything that a run reports but the names of the policies' own figures.
bool same_run(const RunResult& a, const RunResult& b) {
  if (a.outcome != b.outcome || a.iterations.size() != b.iterations.size() || a.evictions != b.evictions)
    return false;
  for (std::size_t i = 0; i < a.iterations.size(); ++i) {
    const IterationMetrics &x = a.iterations[i], &y = b.iterations[i];
    if (x.begin != y.begin || x.end != y.end || x.stalls != y.stalls || x.bytes_out != y.bytes_out ||
        x.bytes_in != y.bytes_in || x.passive_in != y.passive_in) {
      return false;
    }
  }
  return true;
}

struct Loaded {
  Trace trace;
  Machine machine;
  Program program;
};

Loaded load(const std::string& name, std::uint32_t iterations) {
  Loaded l;
  l.trace = read_trace(test::source_path("configs/traces/" + name + ".jsonl.gz"));
  if (iterations > 0) l.trace = extend_iterations(l.trace, iterations);
  l.machine = load_machine("h100-pcie5");
  l.program = compile_program(l.trace, l.machine, TimeSource::model);
  return l;
}

RunResult run(const Loaded& l, const std::string& policy, std::int64_t percent,
              Schedule* schedule = nullptr) {
  const Bytes budget{l.program.peak_bytes.value * percent / 100};
  return test::run_policy(policy, l.program, l.machine, budget, AllocatorKind::ideal, schedule);
}

}  // namespace

TEST_CASE("detector: lengths from 5 % on, cosine below 95 %") {
  CHECK_FALSE(lengths_differ(100, 104, 50'000));
  CHECK(lengths_differ(100, 105, 50'000));
  CHECK(lengths_differ(100, 95, 50'000));
  CHECK_FALSE(lengths_differ(100, 96, 50'000));
  const std::vector<std::uint32_t> a{3, 4}, b{4, 3}, c{3, 4, 0};
  // cos = (12 + 12) / 25 = 0.96.
  CHECK_FALSE(cosine_below(a, b, Similarity::sequence, 950'000));
  CHECK_FALSE(cosine_below(a, b, Similarity::sequence, 960'000));
  CHECK(cosine_below(a, b, Similarity::sequence, 960'001));
  CHECK_FALSE(cosine_below(a, a, Similarity::sequence, 1'000'000));
  CHECK_FALSE(cosine_below(a, c, Similarity::sequence, 1'000'000));  // padded with zeros
  // Counts do not see the order.
  CHECK_FALSE(cosine_below(a, b, Similarity::counts, 1'000'000));
  CHECK(cosine_below(std::vector<std::uint32_t>{1, 1}, std::vector<std::uint32_t>{2, 2}, Similarity::counts,
                     1));
  DetectorParams off;
  off.detector = Detector::off;
  CHECK_FALSE(sequences_differ(a, std::vector<std::uint32_t>(50, 1), off));
  DetectorParams length;
  length.detector = Detector::length;
  CHECK_FALSE(sequences_differ(std::vector<std::uint32_t>{1, 9}, std::vector<std::uint32_t>{9, 1}, length));
  CHECK(
      sequences_differ(std::vector<std::uint32_t>{1, 9}, std::vector<std::uint32_t>{9, 1}, DetectorParams{}));
  // Large values do not overflow.
  const std::vector<std::uint32_t> large(200'000, 4'000'000'000U);
  CHECK_FALSE(cosine_below(large, large, Similarity::sequence, 999'999));
}

TEST_CASE("fingerprints: eight last operators, rare ones count as zeros") {
  Fingerprint f;
  f.use(3, 0);
  f.use(0, 5);  // not among the 64
  f.use(64, 1);
  CHECK(f.uses == 3);
  CHECK(f.operators == ((std::uint64_t{1} << 2) | (std::uint64_t{1} << 63)));
  CHECK(f.last_operators == 0x030040);
  CHECK(f.last_arguments == 0x010002);
  for (int i = 0; i < 8; ++i) f.use(1, 0);
  CHECK(f.last_operators == 0x0101010101010101);
  // 70 names: the most frequent first, ties by token; 6 are left out.
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t t = 1; t <= 70; ++t) tokens.push_back(t);
  tokens.push_back(70);
  const auto frequent = frequent_operators(tokens);
  CHECK(frequent[70] == 1);
  CHECK(frequent[1] == 2);
  CHECK(frequent[63] == 64);
  CHECK(frequent[64] == 0);
}

TEST_CASE("step tracker: a forward operator after a backward one starts a micro-batch") {
  StepTracker t;
  t.begin_iteration();
  const auto at = [&](Phase phase) {
    t.advance(phase);
    return std::string(stage_type_name(t.type())) + std::to_string(t.micro_batch()) + "." +
           std::to_string(t.offset());
  };
  CHECK(at(Phase::zero_grad) == "INIT0.0");
  CHECK(at(Phase::data) == "INIT0.1");
  CHECK(at(Phase::forward) == "FWD1.0");
  CHECK(at(Phase::forward) == "FWD1.1");
  CHECK(at(Phase::data) == "FWD1.2");
  CHECK(at(Phase::recompute) == "BWD1.0");
  CHECK(at(Phase::backward) == "BWD1.1");
  CHECK(at(Phase::forward) == "FWD2.0");
  CHECK(at(Phase::backward) == "BWD2.0");
  CHECK(at(Phase::optimizer) == "OPTIM0.0");
}

TEST_CASE("chameleon: stages, plan, and fewer stalls than passive swapping") {
  const Loaded l = load("gpt2_medium", 14);
  const RunResult passive = run(l, "passive-swap", 90);
  const RunResult r = run(l, "chameleon:n_layers=24", 90);
  REQUIRE(r.outcome == Outcome::ok);
  CHECK(metric(r, "iterations_warmup") == 2);
  CHECK(metric(r, "iterations_searching") == 3);
  CHECK(metric(r, "iterations_stable") == 9);
  CHECK(metric(r, "plans_generated") == 3);
  CHECK(metric(r, "adaptation_iterations") == 5);
  CHECK(metric(r, "matched") > 0);
  CHECK(metric(r, "planned_swap_ins") > 0);
  CHECK(r.iterations[12].time() < passive.iterations[12].time());
  CHECK(r.iterations[12].passive_in < passive.iterations[12].passive_in);
}

TEST_CASE("chameleon: an unchanged sequence keeps its plan byte for byte") {
  const Loaded l = load("gpt_small", 16);
  const RunResult r = run(l, "chameleon:n_layers=4,stable_step=10", 60);
  const RunResult longer = run(l, "chameleon:n_layers=4,stable_step=12", 60);
  REQUIRE(r.outcome == Outcome::ok);
  CHECK(metric(r, "changes_detected") == 0);
  // Deterministic, and stable iterations repeat exactly.
  CHECK(same_run(r, run(l, "chameleon:n_layers=4,stable_step=10", 60)));
  const Loaded more = load("gpt_small", 24);
  const RunResult stable = run(more, "chameleon:n_layers=4", 60);
  for (std::size_t i = 14; i < 22; ++i) {
    CHECK(stable.iterations[i].bytes_out == stable.iterations[13].bytes_out);
    CHECK(stable.iterations[i].bytes_in == stable.iterations[13].bytes_in);
  }
  CHECK(metric(longer, "plans_generated") == metric(r, "plans_generated") + 2);
}

TEST_CASE("identity: everything off equals passive swapping") {
  for (const std::string name : {"gpt_varied", "gpt_small"}) {
    const Loaded l = load(name, 0);
    const RunResult passive = run(l, "passive-swap", 60);
    const RunResult off =
        run(l, "chameleon:swap_out=off,detector=off,light_ns=0,detailed_ns=0,match_ns=0,generate_ns=0", 60);
    CHECK(same_run(passive, off));
    // And it is the switch that does it.
    CHECK_FALSE(same_run(
        passive, run(l, "chameleon:light_ns=0,detailed_ns=0,match_ns=0,generate_ns=0,warmup_step=0", 60)));
  }
}

TEST_CASE("identity: thresholds at infinity equal the static plan") {
  for (const std::string name : {"gpt_small", "resnet50_b256"}) {
    for (const std::int64_t percent : {50, 70}) {
      const Loaded l = load(name, 9);
      const RunResult online = run(
          l, "chameleon:detector=off,stable_step=1,match=index,n_layers=4,light_ns=0,match_ns=0", percent);
      const RunResult fixed = run(l, "static-plan:n_layers=4", percent);
      CAPTURE(name);
      CAPTURE(percent);
      CHECK(same_run(online, fixed));
      CHECK(metric(fixed, "planned_moves") > 0);
    }
  }
}

TEST_CASE("a changed sequence: static plans miss, chameleon starts over") {
  const Loaded l = load("gpt_varied", 0);
  const RunResult fixed = run(l, "static-plan:n_layers=3", 60);
  const RunResult online = run(l, "chameleon:n_layers=3", 60);
  REQUIRE(fixed.outcome == Outcome::ok);
  REQUIRE(online.outcome == Outcome::ok);
  CHECK(metric(online, "changes_detected") > 0);
  CHECK(run(l, "capuchin-swap", 60).outcome == Outcome::ok);
  // A detector that sees nothing never starts over.
  CHECK(metric(run(l, "chameleon:n_layers=3,detector=off", 60), "changes_detected") == 0);
}

TEST_CASE("every switch changes something, and none breaks the run") {
  const auto try_options = [](const std::string& trace, std::int64_t percent,
                              const std::vector<std::string>& options) {
    const Loaded l = load(trace, 10);
    const std::string base = "chameleon:match_ns=99,conventional_ns=5000";
    const RunResult r = run(l, base, percent);
    REQUIRE(r.outcome == Outcome::ok);
    for (const std::string& option : options) {
      CAPTURE(option);
      const RunResult changed = run(l, base + "," + option, percent);
      CHECK(changed.outcome == Outcome::ok);
      CHECK_FALSE(same_run(r, changed));
    }
  };
  try_options("gpt2_medium", 60,
              {"swap_in=off", "release=record_stream", "synchronous_oom=off", "oom_feedback=off",
               "swap_out=off", "n_layers=24", "layer_rule=single", "D2H_bandwidth=2000", "light_ns=0",
               "detailed_ns=0", "generate_ns=0", "profiler=conventional"});
  try_options("resnet50_b256", 70,
              {"order=fifo", "release=on_demand", "free_stage_delay=0", "size_coverage_weight=0",
               "redundant_memory=20%", "tensor_size_filter=150MiB", "warmup_step=1", "stable_step=1"});
  const Loaded l = load("gpt2_medium", 3);
  CHECK(run(l, "chameleon:passive_swap_out=public", 60).outcome == Outcome::ok);
  CHECK(run(l, "chameleon:passive_swap_out=off", 60).outcome == Outcome::out_of_memory);
}

TEST_CASE("v2 plans where operators are named attention, and says so where none is") {
  const Loaded l = load("gpt_small", 8);  // softmax and matmul: no attention operator
  const RunResult r = run(l, "chameleon:version=v2", 70);
  CHECK(r.outcome == Outcome::ok);
  CHECK(metric(r, "plans_refused") == 3);
  CHECK(metric(r, "plans_generated") == 0);
}

TEST_CASE("schedules of the online policies are accepted by the independent checker") {
  for (const std::string name : {"gpt_varied", "gpt_small"}) {
    Loaded l = load(name, 0);
    for (const char* policy :
         {"chameleon:n_layers=3,warmup_step=1", "chameleon:n_layers=3,release=record_stream,warmup_step=0",
          "static-plan", "capuchin-swap", "passive-swap"}) {
      for (const AllocatorKind allocator : {AllocatorKind::ideal, AllocatorKind::caching}) {
        CAPTURE(name);
        CAPTURE(policy);
        Schedule schedule;
        const Bytes budget{l.program.peak_bytes.value * 6 / 10};
        const RunResult r = test::run_policy(policy, l.program, l.machine, budget, allocator, &schedule);
        REQUIRE(r.outcome == Outcome::ok);
        schedule.trace_hash = trace_hash(l.trace);
        schedule.times = l.program.times;
        schedule.machine_json = machine_json(l.machine);
        schedule.allocator = allocator == AllocatorKind::ideal ? "ideal" : "caching";
        schedule.budget = budget;
        schedule.policy = policy;
        const ScheduleCheck check = check_schedule(schedule, l.trace);
        CHECK(check.finding_count == 0);
        if (check.finding_count > 0) MESSAGE(check.findings[0].message);
      }
    }
  }
}
