// `adaptive`: what it learns, its alignment, and both online policies under perturbed sequences.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <random>

#include "policy/chameleon/learned.hpp"
#include "policy/foresight_model.hpp"
#include "sim/machine_io.hpp"
#include "sim/memory_fork.hpp"
#include "sim/schedule_checker.hpp"
#include "tests/policy/policy_programs.hpp"
#include "tests/support/shared.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"
#include "trace/perturb/perturb.hpp"

using namespace swaplab;
using namespace swaplab::adaptive;

namespace {

std::int64_t metric(const RunResult& result, std::string_view tag) {
  for (const PolicyMetric& m : result.policy_metrics) {
    if (m.tag == tag) return m.value;
  }
  FAIL("no metric " << tag);
  return 0;
}

Nanos total(const RunResult& result) {
  Nanos sum{0};
  for (const IterationMetrics& it : result.iterations) sum += it.time();
  return sum;
}

const Trace& bundled(const std::string& name, std::uint32_t iterations) {
  static std::map<std::pair<std::string, std::uint32_t>, Trace> traces;
  auto& trace = traces[{name, iterations}];
  if (trace.ops.size() == 0) {
    trace = read_trace(test::source_path("configs/traces/" + name + ".jsonl.gz"));
    if (iterations > 0) trace = extend_iterations(trace, iterations);
  }
  return trace;
}

Trace perturbed(const Trace& trace, const std::vector<std::string>& requests, std::uint64_t seed) {
  std::vector<PerturbationRequest> parsed;
  for (const std::string& text : requests) parsed.push_back(parse_perturbation(text));
  return perturb_trace(trace, parsed, seed);
}

// Looks over the recorder's shoulder while a program runs.
class Watcher final : public Policy {
 public:
  Plan start(const View& view, Actions&) override {
    recorder.start(view);
    return {};
  }
  void before_op(std::uint32_t op, const View& view, Actions&) override {
    if (!running) recorder.begin_iteration();
    running = true;
    recorder.op(op, view);
  }
  void end_iteration(std::uint32_t, const View& view, Actions&) override {
    learned.push_back(recorder.finish(view));
    running = false;
  }
  void make_room(Bytes, const View&, Actions&) override {}
  Recorder recorder;
  std::vector<LearnedIteration> learned;
  bool running = false;
};

}  // namespace

TEST_CASE("recorder: objects, births, deaths") {
  // Per iteration: forward makes a, backward makes gradient g (which outlives it) and frees a; the next
  // iteration frees the old g before its first operator.
  test::ProgramWriter w;
  const Slot weight = w.initial(1000);
  Slot old = w.initial(100, StorageClass::gradient);
  for (int i = 0; i < 3; ++i) {
    w.free(old);
    const Slot a = w.allocate(50);
    w.op(Phase::forward, {weight}, {a});
    const Slot g = w.allocate(100, StorageClass::gradient);
    w.op(Phase::backward, {weight, a}, {g});
    w.free(a);
    w.op(Phase::optimizer, {g}, {weight});
    old = g;
    w.end_iteration();
  }
  const Program program = w.finish();
  Watcher watcher;
  RunOptions options;
  options.allocator = AllocatorKind::ideal;
  options.needs = Needs::op_events | Needs::op_stream;
  REQUIRE(run_program(program, test::plain_machine(1'000'000'000), watcher, options).outcome == Outcome::ok);
  REQUIRE(watcher.learned.size() == 3);
  const LearnedIteration& it = watcher.learned[1];
  REQUIRE(it.op_count() == 3);
  // weight (persistent), the last gradient (seen only by its death), a, g.
  REQUIRE(it.objects.size() == 4);
  std::uint32_t activations = 0, gradients = 0;
  for (std::uint32_t o = 0; o < 4; ++o) {
    const Object& object = it.objects[o];
    if (object.bytes == Bytes{1000}) {
      CHECK(it.persistent(o));
      CHECK(it.uses_of(o).size() == 3);
    } else if (object.bytes == Bytes{50}) {
      CHECK(object.born == 0);
      CHECK(object.death == 2);
      ++activations;
    } else {
      ++gradients;
    }
  }
  CHECK(activations == 1);
  CHECK(gradients == 2);
  CHECK(watcher.learned[1].signature_prefix.back() == watcher.learned[2].signature_prefix.back());
}

TEST_CASE("a copy of the allocator answers as the allocator does") {
  std::mt19937 random(7);
  StubDevice device(std::uint64_t{200} << 20);
  CachingAllocator<StubDevice> allocator(device, {});
  std::vector<BlockId> blocks;
  const auto step = [](std::mt19937& r, CachingAllocator<StubDevice>& a, std::vector<BlockId>& held) {
    if (held.size() > 40 || (!held.empty() && r() % 3 == 0)) {
      const std::size_t which = r() % held.size();
      a.free(held[which]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      return std::uint64_t{0};
    }
    const std::int64_t bytes = r() % 4 == 0 ? 1 + r() % (30U << 20) : 1 + r() % (2U << 20);
    const AllocResult got = a.alloc(Bytes{bytes}, 0);
    if (got.status == AllocStatus::ok) held.push_back(got.block);
    return got.address;
  };
  for (int i = 0; i < 400; ++i) step(random, allocator, blocks);
  StubDevice same(std::uint64_t{200} << 20);
  for (const SegmentInfo& segment : allocator.snapshot()) same.adopt_segment(segment.address, segment.size);
  same.adopt_used(device.used());
  MemoryFork fork(same, allocator);
  std::vector<BlockId> theirs = blocks;
  std::mt19937 again = random;
  std::size_t served = 0;
  for (int i = 0; i < 400; ++i) {
    const std::uint64_t address = step(random, allocator, blocks);
    REQUIRE(step(again, fork.allocator, theirs) == address);
    if (address != 0) ++served;
  }
  CHECK(served > 100);
  CHECK(fork.device.used() == device.used());
}

TEST_CASE("plans from the running state hold: a constant sequence needs no unplanned eviction") {
  const Machine machine = load_machine("h100-pcie5");
  for (const std::string name : {"gpt2_medium", "resnet50_b256"}) {
    CAPTURE(name);
    std::uint64_t rooms[2] = {0, 0};
    for (const std::uint32_t more : {0U, 1U}) {
      const Program program = compile_program(bundled(name, 5 + 2 * more), machine, TimeSource::model);
      const RunResult r = test::run_policy("adaptive", program, machine, Bytes{program.peak_bytes.value / 2},
                                           AllocatorKind::caching);
      REQUIRE(r.outcome == Outcome::ok);
      rooms[more] = r.make_room_calls;
    }
    CHECK(rooms[0] > 0);          // while it learned
    CHECK(rooms[0] == rooms[1]);  // and not since
  }
}

TEST_CASE("the model tells where storages are at the end, and when there was no room") {
  test::ProgramWriter w;
  const Slot used = w.initial(100), leaving = w.initial(100), back = w.initial(100), refused = w.initial(100),
             copied = w.initial(50);
  w.op(Phase::forward, {used}, {});
  w.op(Phase::forward, {copied}, {});
  const Slot born = w.allocate(80);
  w.op(Phase::forward, {used}, {born});
  w.op(Phase::backward, {used}, {used});
  w.end_iteration();
  const Program program = w.finish();
  const Machine machine = test::plain_machine(1'000'000'000);
  std::vector<std::int64_t> sizes;
  for (const Bytes bytes : program.bytes) sizes.push_back(bytes.value);
  // `used`, `leaving` and `copied` are on the device.
  const foresight::Placement start{{0, 0, 1, 1, 0, 0}, {1, 0, 0, 0, 0, 0}};
  const Plan plan{{{1, PlanAction::copy_out, copied},
                   {1, PlanAction::evict, leaving},
                   {1, PlanAction::prefetch, back},
                   {1, PlanAction::prefetch, refused}}};
  const auto replay = [&](std::int64_t budget, std::uint32_t end) {
    return foresight::replay(program, machine, plan, start, sizes, Bytes{budget}, end, true);
  };
  const foresight::ModelResult fits = replay(330, 3);
  CHECK(fits.overdrafts == 0);
  CHECK(fits.end.on_host == std::vector<std::uint8_t>{0, 1, 0, 1, 0, 0});
  // An operator that writes leaves the host's copy behind.
  CHECK(fits.end.clean == std::vector<std::uint8_t>{1, 0, 1, 0, 1, 0});
  CHECK(replay(330, 4).end.clean == std::vector<std::uint8_t>{0, 0, 1, 0, 1, 0});
  CHECK(replay(329, 3).overdrafts == 1);  // no room for `born`
  CHECK(replay(329, 2).overdrafts == 0);
  CHECK(foresight::replay(program, machine, plan, start, sizes, Bytes{330}, 3, false).end.on_host.empty());
}

TEST_CASE("where only bytes count plans begin where the one in force ends: a constant sequence settles") {
  const Machine machine = load_machine("h100-pcie5");
  const Program program = compile_program(bundled("gpt2_medium", 16), machine, TimeSource::model);
  for (const std::int64_t percent : {50, 60, 80}) {
    CAPTURE(percent);
    const Bytes budget{program.peak_bytes.value * percent / 100};
    const RunResult ours = test::run_policy("adaptive", program, machine, budget, AllocatorKind::ideal);
    const RunResult theirs =
        test::run_policy("chameleon:n_layers=12", program, machine, budget, AllocatorKind::ideal);
    REQUIRE(ours.outcome == Outcome::ok);
    REQUIRE(theirs.outcome == Outcome::ok);
    // Planned from another state than the one that comes, slow and quick iterations take turns.
    const std::int64_t last = ours.iterations[15].time().value, before = ours.iterations[14].time().value;
    CHECK(std::abs(last - before) < last / 100);
    CHECK(total(ours) < total(theirs));
  }
}

TEST_CASE("edit share: insertions and deletions over the longer length") {
  const auto names = [](const std::string& text) {
    std::vector<NameId> list;
    for (const char c : text) list.push_back(NameId{static_cast<std::uint32_t>(c)});
    return list;
  };
  CHECK(edit_share(names("abcdefghij"), names("abcdefghij"), 100'000) == 0);
  CHECK(edit_share(names("abcdefghij"), names("abcdfghij"), 200'000) == 100'000);
  CHECK(edit_share(names("abcdefghij"), names("abcdXefghij"), 200'000) == kUnchanged / 11);
  CHECK(edit_share(names("abcdefghij"), names("abXdefghij"), 200'000) == 200'000);
  CHECK(edit_share(names("abcdefghij"), names("abXdefghij"), 100'000) == kUnchanged);
  CHECK(edit_share(names(""), names(""), 0) == 0);
}

TEST_CASE("adaptive: knowledge is enforced") {
  const Program chain = test::chain(4, 1, 1000);
  class Curious final : public Policy {
   public:
    void before_op(std::uint32_t op, const View& view, Actions&) override { (void)view.operands(op + 1); }
    void make_room(Bytes, const View&, Actions&) override {}
  };
  class Impatient final : public Policy {
   public:
    void before_op(std::uint32_t op, const View& view, Actions& actions) override {
      if (op == 2) actions.synchronize();
      if (op == 3) known = view.measured_time(1);
      if (op == 3) (void)view.measured_time(2);  // issued after the synchronisation
    }
    void make_room(Bytes, const View&, Actions&) override {}
    Nanos known{0};
  };
  RunOptions options;
  options.allocator = AllocatorKind::ideal;
  options.needs = Needs::op_events | Needs::op_stream | Needs::measured_times;
  const Machine machine = test::plain_machine(1'000'000'000);
  Curious curious;
  CHECK(run_program(chain, machine, curious, options).outcome == Outcome::policy_error);
  Impatient impatient;
  CHECK(run_program(chain, machine, impatient, options).outcome == Outcome::policy_error);
  CHECK(impatient.known == Nanos{1000});
  options.needs = Needs::op_events;
  Impatient uninformed;
  CHECK(run_program(chain, machine, uninformed, options).outcome == Outcome::policy_error);
}

TEST_CASE("adaptive beats chameleon where the sequence changes") {
  const Machine machine = load_machine("h100-pcie5");
  struct Cell {
    std::string trace;
    std::uint32_t iterations;
    std::vector<std::string> changes;
  };
  const std::vector<Cell> cells = {
      {"gpt_varied", 0, {}},
      {"moe", 0, {}},
      {"gpt_small", 14, {"validation@every=4"}},
      {"gpt_small", 14, {"skip_step@every=5"}},
      {"gpt_small", 14, {"insert:rate=0.01@rate=0.3"}},
      {"gpt2_medium", 12, {"validation@every=4", "skip_step@every=5"}},
      {"gpt2_medium", 12, {}},
      {"resnet50_b256", 12, {"validation@every=5"}},
  };
  double log_ratio = 0;
  std::int64_t counted = 0;
  for (const Cell& cell : cells) {
    const Trace trace = perturbed(bundled(cell.trace, cell.iterations), cell.changes, 1);
    const Program program = compile_program(trace, machine, TimeSource::model);
    const RunResult free =
        test::run_policy("none", program, machine, kUnlimitedBudget, AllocatorKind::caching);
    for (const std::int64_t percent : {60, 80}) {
      const Bytes budget{program.peak_bytes.value * percent / 100};
      const RunResult theirs =
          test::run_policy("chameleon:n_layers=12", program, machine, budget, AllocatorKind::caching);
      const RunResult ours = test::run_policy("adaptive", program, machine, budget, AllocatorKind::caching);
      CAPTURE(cell.trace);
      CAPTURE(percent);
      REQUIRE(theirs.outcome == Outcome::ok);
      REQUIRE(ours.outcome == Outcome::ok);
      CHECK(total(ours) <= total(theirs));
      const auto lost = [&](const RunResult& r) {
        return static_cast<double>(std::max<std::int64_t>(1, (total(r) - total(free)).value));
      };
      log_ratio += std::log(lost(theirs) / lost(ours));
      ++counted;
      MESSAGE(cell.trace << (cell.changes.empty() ? "" : " " + cell.changes[0]) << " " << percent
                         << " %: lost " << lost(theirs) / 1e6 << " ms against " << lost(ours) / 1e6 << " ms");
    }
  }
  MESSAGE("geometric mean of lost time, chameleon over adaptive: "
          << std::exp(log_ratio / static_cast<double>(counted)));
  CHECK(std::exp(log_ratio / static_cast<double>(counted)) > 2.0);
}

TEST_CASE("adaptive recognises sequences and switches plans") {
  const Machine machine = load_machine("h100-pcie5");
  const Trace trace = perturbed(bundled("gpt_small", 16), {"validation@every=4"}, 1);
  const Program program = compile_program(trace, machine, TimeSource::model);
  const RunResult r =
      test::run_policy("adaptive", program, machine, Bytes{program.peak_bytes.value * 6 / 10});
  REQUIRE(r.outcome == Outcome::ok);
  CHECK(metric(r, "sequences_learned") <= 5);
  CHECK(metric(r, "recognised_iterations") >= 12);
  CHECK(metric(r, "plan_switches") >= 1);
  CHECK(metric(r, "adaptation_iterations") <= 6);  // 25 ms of planning, iterations of 7 ms
}

TEST_CASE("adaptive learns a period: after a while every plan is for the iteration that comes") {
  const Machine machine = load_machine("h100-pcie5");
  std::int64_t switches[2] = {0, 0};
  for (const std::uint32_t longer : {0U, 1U}) {
    const Trace trace = perturbed(bundled("gpt_small", 16 + 12 * longer), {"validation@every=4"}, 1);
    const Program program = compile_program(trace, machine, TimeSource::model);
    const RunResult r = test::run_policy("adaptive", program, machine,
                                         Bytes{program.peak_bytes.value * 6 / 10}, AllocatorKind::caching);
    REQUIRE(r.outcome == Outcome::ok);
    switches[longer] = metric(r, "plan_switches");
    CHECK(metric(r, "iterations_without_plan") <= 2);
  }
  CHECK(switches[0] > 0);             // the first validation came unexpected
  CHECK(switches[0] == switches[1]);  // three more of them did not
}

// Seeded random schedules of random perturbations over the bundled traces. $SWAPLAB_PERTURBATIONS sets how
// many (1000 in the release check); every run must end well where its budget is feasible, and its schedule
// must be accepted by the independent checker.
TEST_CASE("online policies survive random perturbation schedules at half the peak") {
  const char* wanted = std::getenv("SWAPLAB_PERTURBATIONS");
  const int runs = wanted != nullptr ? std::atoi(wanted) : 24;
  const Machine machine = load_machine("h100-pcie5");
  const std::vector<std::string> kinds = {"validation",
                                          "skip_step",
                                          "insert:rate=0.02",
                                          "delete:rate=0.02",
                                          "reorder:rate=0.05",
                                          "jitter:amplitude=0.3",
                                          "accumulation:count=2",
                                          "extra:rate=0.02",
                                          "elide:rate=0.1",
                                          "checkpoint_save",
                                          "drift:per_iteration=0.02",
                                          "fuse:rate=0.2",
                                          "layer_drop:rate=0.3",
                                          "early_exit:layers=1",
                                          "frozen"};
  const std::pair<const char*, std::uint32_t> traces[] = {
      {"gpt_varied", 0}, {"gpt_small", 6}, {"resnet50_b256", 5}, {"moe", 0}};
  std::uint64_t state = 0;
  const auto next = [&] {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    return (z ^ (z >> 27)) * 0x94D049BB133111EBULL >> 33;
  };
  int done = 0, infeasible = 0, refused = 0;
  std::int64_t chameleon_iterations = 0, adaptive_iterations = 0;
  for (int i = 0; i < runs; ++i) {
    const auto& [name, iterations] = traces[next() % 4];
    std::vector<std::string> changes;
    std::string text = name;
    for (std::uint64_t c = 1 + next() % 3; c > 0; --c) {
      changes.push_back(kinds[next() % kinds.size()] + "@rate=0." + std::to_string(1 + next() % 9));
      text += " " + changes.back();
    }
    CAPTURE(text);
    CAPTURE(i);
    Trace trace;
    try {
      trace = perturbed(bundled(name, iterations), changes, static_cast<std::uint64_t>(i) + 1);
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::usage);  // the kind does not apply to this trace
      ++refused;
      continue;
    }
    const Program program = compile_program(trace, machine, TimeSource::model);
    const Bytes budget{program.peak_bytes.value / 2};
    const AllocatorKind allocator = i % 3 == 0 ? AllocatorKind::caching : AllocatorKind::ideal;
    for (const std::string policy :
         {"chameleon:n_layers=4,warmup_step=1,stable_step=1", "adaptive:trials=2"}) {
      CAPTURE(policy);
      Schedule schedule;
      const RunResult r = test::run_policy(policy, program, machine, budget, allocator, &schedule);
      if (r.outcome == Outcome::infeasible) {
        CHECK(program.largest_working_set > budget);
        ++infeasible;
        continue;
      }
      CHECK(r.outcome == Outcome::ok);
      if (r.outcome != Outcome::ok) MESSAGE(r.explanation);
      (policy[0] == 'c' ? chameleon_iterations : adaptive_iterations) += metric(r, "adaptation_iterations");
      schedule.trace_hash = trace_hash(trace);
      schedule.times = program.times;
      schedule.machine_json = machine_json(machine);
      schedule.allocator = allocator == AllocatorKind::ideal ? "ideal" : "caching";
      schedule.budget = budget;
      schedule.policy = policy;
      const ScheduleCheck check = check_schedule(schedule, trace);
      CHECK(check.finding_count == 0);
      if (check.finding_count > 0) MESSAGE(check.findings[0].message);
      ++done;
    }
  }
  MESSAGE(done << " runs checked, " << infeasible << " infeasible, " << refused
               << " schedules that do not apply; iterations before a settled plan: chameleon "
               << chameleon_iterations << ", adaptive " << adaptive_iterations);
  CHECK(done > runs / 2);
}
