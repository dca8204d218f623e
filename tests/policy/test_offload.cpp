// offload-activations: every step of its plan on programs small enough to follow by hand.
#include <doctest/doctest.h>

#include <set>
#include <sstream>

#include "tests/policy/policy_programs.hpp"
#include "trace/error.hpp"

using namespace swaplab;
using namespace swaplab::test;

namespace {

// Shows a planner the program; everything else is out of bounds.
class PlannerView final : public View, public Actions {
 public:
  explicit PlannerView(const Program& program) : program_(program), accesses_(index_accesses(program)) {}
  std::uint32_t position() const override { return 0; }
  Nanos host_now() const override { return {}; }
  Bytes budget() const override { return {}; }
  Bytes allocated() const override { return {}; }
  Bytes outgoing() const override { return {}; }
  Bytes size(Slot s) const override { return program_.bytes[index(s)]; }
  StorageClass storage_class(Slot s) const override { return program_.cls[index(s)]; }
  Residency residency(Slot) const override { return Residency::device; }
  bool host_copy_valid(Slot) const override { return false; }
  bool evictable(Slot) const override { return true; }
  std::uint32_t last_use(Slot) const override { return 0; }
  Slot oldest() const override { return kNoSlot; }
  Slot newer(Slot) const override { return kNoSlot; }
  const Program& program() const override { return program_; }
  const AccessIndex& accesses() const override { return accesses_; }
  std::uint32_t next_use(Slot) const override { return kNever; }
  Nanos device_time(std::uint32_t) const override { throw Error(ErrorKind::policy, "not declared"); }
  const Machine& machine() const override { throw Error(ErrorKind::policy, "not declared"); }
  void evict(Slot) override { throw Error(ErrorKind::policy, "a planner only plans"); }
  void copy_out(Slot) override { throw Error(ErrorKind::policy, "a planner only plans"); }
  bool prefetch(Slot) override { throw Error(ErrorKind::policy, "a planner only plans"); }
  void spend_host_time(Nanos) override {}

 private:
  const Program& program_;
  AccessIndex accesses_;
};

std::unique_ptr<Policy> make(const std::string& text) {
  const auto specs = parse_policies(text);
  return specs.at(0).factory->make(specs[0].values);
}

// "1:out(1) 2:evict(1) 6:in(1)": position, action, slot.
std::string plan_of(const std::string& parameters, const Program& program) {
  PlannerView view(program);
  const Plan plan = make("offload-activations:" + parameters)->start(view, view);
  std::ostringstream text;
  std::uint32_t before = 0;
  for (const PlanStep& step : plan.steps) {
    CHECK(step.position >= before);
    before = step.position;
    const char* action = step.action == PlanAction::evict      ? "evict"
                         : step.action == PlanAction::copy_out ? "out"
                                                               : "in";
    if (text.tellp() > 0) text << ' ';
    text << step.position << ':' << action << '(' << index(step.slot) << ')';
  }
  return text.str();
}

// chain(4, 1, ...): activations 1..4 are made by operators 0..3, the backward operators 4..7 use 4..1.

TEST_CASE("out after the last forward use, back k operators ahead, not before the backward pass") {
  const Program program = chain(4, 1, 1000);
  // Activation 4 is wanted by the operator after the one that makes it: it stays.
  CHECK(plan_of("min_bytes=1B,ahead=1", program) ==
        "1:evict(1) 2:evict(2) 3:evict(3) 4:in(3) 5:in(2) 6:in(1)");
  CHECK(plan_of("min_bytes=1B,ahead=2", program) ==
        "1:evict(1) 2:evict(2) 3:evict(3) 4:in(3) 4:in(2) 5:in(1)");
  CHECK(plan_of("min_bytes=1B,ahead=100", program) ==
        "1:evict(1) 2:evict(2) 3:evict(3) 4:in(3) 4:in(2) 4:in(1)");
  CHECK(plan_of("min_bytes=1B,ahead=0", program) == "1:evict(1) 2:evict(2) 3:evict(3)");
}

TEST_CASE("minimum size, storages kept, share that leaves") {
  const Program program = chain(4, 1, 1000);
  CHECK(plan_of("min_bytes=1001B", program).empty());
  CHECK(plan_of("min_bytes=1000B,ahead=0,keep_last=2", program) == "1:evict(1) 2:evict(2)");
  CHECK(plan_of("min_bytes=1B,ahead=0,keep_last=4", program).empty());
  CHECK(plan_of("min_bytes=1B,ahead=0,fraction=0.5", program) == "1:evict(1) 2:evict(2)");
  CHECK(plan_of("min_bytes=1B,ahead=0,fraction=0", program).empty());
  CHECK(plan_of("min_bytes=1B,ahead=0,fraction=50%,keep_last=2", program) == "1:evict(1)");
}

TEST_CASE("copies in flight: bytes are given up when n more were submitted or the backward pass has begun") {
  const Program program = chain(4, 1, 1000);
  // 1 goes when 3 is submitted; 2 when 4 is; 3 and 4 after the first backward operator, but 4 is used by
  // it and stays.
  CHECK(plan_of("min_bytes=1B,ahead=0,max_inflight=2", program) ==
        "1:out(1) 2:out(2) 3:evict(1) 3:out(3) 4:evict(2)");
}

TEST_CASE("preset torchtune holds five copies and brings back on demand") {
  const Program program = chain(8, 1, 1024);  // activations 1..8 made by 0..7, backward 8..15
  CHECK(plan_of("preset=torchtune", program) ==
        "1:out(1) 2:out(2) 3:out(3) 4:out(4) 5:out(5) 6:evict(1) 6:out(6) 7:evict(2) 7:out(7) 8:evict(3) "
        "9:evict(4) 9:evict(5) 9:evict(6)");
  CHECK(plan_of("preset=torchtune", chain(8, 1, 1023)).empty());
  CHECK(make("offload-activations:preset=torchtune")->release_rule() == ReleaseRule::stream_wait);
}

TEST_CASE("preset megatron keeps the last eight, reloads ahead and uses record_stream") {
  const std::int64_t two_mib = std::int64_t{2} << 20;
  CHECK(plan_of("preset=megatron", chain(10, 1, two_mib)) == "1:evict(1) 2:evict(2) 10:in(2) 10:in(1)");
  CHECK(plan_of("preset=megatron,ahead=3", chain(10, 1, two_mib)) ==
        "1:evict(1) 2:evict(2) 15:in(2) 16:in(1)");
  CHECK(plan_of("preset=megatron", chain(10, 1, two_mib - 1)).empty());
  CHECK(make("offload-activations:preset=megatron")->release_rule() == ReleaseRule::event_polled);
  CHECK(make("offload-activations:preset=megatron,max_inflight=2")->release_rule() ==
        ReleaseRule::stream_wait);
}

TEST_CASE("explicit parameters override the preset wherever they stand, and the echo repeats the run") {
  const auto first = parse_policies("offload-activations:preset=megatron,ahead=3");
  CHECK(first[0].text() ==
        "offload-activations:preset=megatron,min_bytes=2MiB,ahead=3,keep_last=8,fraction=1,max_inflight=0,"
        "release=record_stream,fallback=none");
  CHECK(parse_policies("offload-activations:ahead=3,preset=megatron")[0].text() == first[0].text());
  CHECK(parse_policies(first[0].text())[0].text() == first[0].text());
}

TEST_CASE("each micro-batch is a pass of its own; keep_last counts in each") {
  // Two chains of 3: activations 1..3 (operators 0..5), 4..6 (6..11).
  CHECK(plan_of("min_bytes=1B,ahead=0,keep_last=1", chain(3, 2, 1000)) ==
        "1:evict(1) 2:evict(2) 7:evict(4) 8:evict(5)");
}

TEST_CASE("only what a forward pass leaves for its own backward pass") {
  ProgramWriter w;
  const Slot weight = w.initial(4096), buffer = w.initial(4096, StorageClass::buffer);
  const Slot mask = w.initial(4096, StorageClass::data);  // used by both iterations
  const auto iteration = [&](Phase forward, Phase backward, IterationKind kind) {
    const Slot saved = w.allocate(4096), passing = w.allocate(4096);
    w.op(forward, {weight, buffer, mask}, {saved});
    w.op(forward, {saved}, {passing});
    w.op(forward, {passing}, {});  // never used by the backward pass
    w.op(forward, {weight}, {});
    w.op(backward, {weight}, {});
    w.op(backward, {saved, buffer, mask}, {});
    w.free(saved);
    w.free(passing);
    w.end_iteration(kind);
    return saved;
  };
  iteration(Phase::forward, Phase::backward, IterationKind::train);            // saved 3, operators 0..5
  iteration(Phase::evaluation, Phase::evaluation, IterationKind::validation);  // 6..11
  iteration(Phase::forward, Phase::recompute, IterationKind::train);           // saved 7, operators 12..17
  CHECK(plan_of("min_bytes=1B,ahead=0", w.finish()) == "1:evict(2) 2:evict(3) 13:evict(2) 14:evict(7)");
}

TEST_CASE("a program without phases is a policy error, not an idle policy") {
  ProgramWriter w;
  const Slot slot = w.initial(100);
  w.op(Phase::unknown, {slot}, {});
  const Program program = w.finish();
  const RunResult result = run_policy("offload-activations", program, plain_machine(1'000'000), Bytes{100});
  CHECK(result.outcome == Outcome::policy_error);
  CHECK(result.explanation.find("forward") != std::string::npos);
}

TEST_CASE("offloading lowers what has to be on the device; without fallback a smaller budget fails") {
  const Machine machine = plain_machine(4'000'000'000);  // a copy takes a quarter of an operator
  const Program program = chain(20, 2, 1000);
  for (const char* text : {"offload-activations:min_bytes=1B,ahead=2",
                           "offload-activations:min_bytes=1B,ahead=0,release=record_stream"}) {
    CAPTURE(text);
    // Kept resident: the parameter, the activation in use, those leaving or about to be used.
    const RunResult result = run_policy(text, program, machine, Bytes{64 + 5000});
    CAPTURE(result.explanation);
    CHECK(result.outcome == Outcome::ok);
    CHECK(result.allocator.peak_allocated <= Bytes{64 + 5000});
    CHECK(result.evictions == 2 * 19);
    CHECK(run_policy(text, program, machine, Bytes{64 + 500}).outcome == Outcome::infeasible);
  }
  const std::string keeps = "offload-activations:min_bytes=1B,keep_last=10";
  CHECK(run_policy(keeps, program, machine, Bytes{64 + 5000}).outcome == Outcome::out_of_memory);
  CHECK(run_policy(keeps + ",fallback=lru", program, machine, Bytes{64 + 5000}).outcome == Outcome::ok);
}

}  // namespace
