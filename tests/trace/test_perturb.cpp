// Properties of every perturbation, over the bundled recordings.
#include "tests/trace/perturb_support.hpp"
#include "trace/builder.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"

namespace swaplab {
namespace {

using test::bundled;
using test::check_marks;
using test::perturbed;

std::string error_of(const std::string& request) {
  try {
    parse_perturbation(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Small changes everywhere: one request per kind that must change something in these recordings.
struct Case {
  const char* trace;
  const char* request;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {"gpt_small", "jitter:amplitude=0.2"},
      {"gpt_small", "drift:per_iteration=0.02"},
      {"gpt_small", "insert:rate=0.05"},
      {"moe", "insert:rate=0.2"},
      {"gpt_small", "delete:rate=0.2"},
      {"resnet50_b256", "delete:rate=0.5"},
      {"gpt_small", "reorder:rate=0.3"},
      {"gpt2_medium", "reorder:rate=0.2"},
      {"gpt_small", "elide:rate=0.2"},
      {"gpt_small", "extra:rate=0.1"},
      {"gpt_varied", "profiler_hooks:every=20"},
      {"gpt_small", "checkpoint_save:states=all"},
      {"resnet50_b256", "checkpoint_save"},
      {"gpt_small", "skip_step@2"},
      {"gpt_varied", "skip_step@4,6"},
      {"gpt2_medium", "skip_step@1"},
      {"resnet50_b256", "skip_step"},
      {"moe", "skip_step@1"},
      {"gpt_small", "validation@every=2"},
      {"resnet50_b256", "validation:batches=2@1"},
      {"gpt2_medium", "validation@2"},
      {"moe", "validation"},
      {"gpt_small", "accumulation:count=3@1-2"},
      {"gpt_varied", "accumulation:count=1"},
      {"gpt_varied", "accumulation:count=4@3"},
      {"moe", "accumulation:count=2@2"},
      {"resnet50_b256", "accumulation:count=2"},
      {"gpt_small", "layer_drop:block=1"},
      {"gpt2_medium", "layer_drop:rate=0.3"},
      {"resnet50_b256", "layer_drop:rate=0.5"},
      {"moe", "layer_drop:block=2"},
      {"gpt_varied", "early_exit:layers=1@3,4"},
      {"gpt2_medium", "early_exit:layers=20@1"},
      {"gpt_small", "frozen"},
      {"gpt2_medium", "frozen:what=all@1"},
      {"resnet50_b256", "frozen@2"},
      {"gpt_varied", "frozen@4"},
      {"moe", "frozen@3"},
      {"gpt_small", "recompute"},
      {"gpt2_medium", "recompute:every=2"},
      {"resnet50_b256", "recompute@1"},
      {"moe", "recompute@1"},
      {"gpt_varied", "recompute@3"},
      {"gpt_small", "fuse"},
      {"resnet50_b256", "fuse@2"},
      {"moe", "fuse@2"},
      {"gpt_small", "unfuse"},
      {"gpt2_medium", "unfuse"},
      {"gpt_small", "sequence_length:to=96@1-2"},
      {"gpt2_medium", "sequence_length:to=1536@1"},
      {"moe", "sequence_length:to=96@2"},
      {"gpt_small", "batch_size:to=3@3"},
      {"gpt2_medium", "batch_size:to=5@2"},
      {"resnet50_b256", "batch_size:to=100@2"},
      {"moe", "batch_size:to=17@1"},
      {"moe", "moe_routing:shift=0.5"},
      {"moe", "moe_routing:shift=0,idle=2@2"},
  };
  return list;
}

std::string with_schedule(const std::string& request, const std::string& schedule) {
  return request.substr(0, request.find('@')) + "@" + schedule;
}

std::int64_t model_bytes_at_end(const Trace& trace) {
  std::int64_t sum = 0;
  for (std::uint32_t s = 0; s < trace.storages.size(); ++s) {
    const StorageClass cls = trace.storages.cls[s];
    const bool model =
        cls == StorageClass::parameter || cls == StorageClass::optimizer_state || cls == StorageClass::buffer;
    if (model && trace.storages.death_gap[s] == kNever) sum += trace.storages.bytes[s].value;
  }
  return sum;
}

TEST_CASE("every kind is covered by a case") {
  for (const PerturbationKind* kind : perturbation_list()) {
    const bool covered = std::any_of(cases().begin(), cases().end(), [&](const Case& c) {
      const std::string request = c.request;
      return request.substr(0, request.find_first_of(":@")) == kind->info().name;
    });
    CHECK_MESSAGE(covered, kind->info().name);
  }
}

TEST_CASE("a perturbed trace is valid, its marks are exact, and equal seeds give equal traces") {
  for (const Case& c : cases()) {
    CAPTURE(std::string(c.trace));
    CAPTURE(std::string(c.request));
    const Trace& before = bundled(c.trace);
    PerturbationReport report;
    const Trace after = perturbed(before, {c.request}, 7, &report);
    const TraceReport examined = examine_trace(after);
    CHECK_MESSAGE(examined.problems.empty(), (examined.problems.empty() ? "" : examined.problems[0]));
    CHECK(report.applied.at(0).changed > 0);
    REQUIRE_FALSE(report.marks.empty());
    CHECK(trace_hash(after) != trace_hash(before));
    check_marks(before, after);
    CHECK(trace_hash(perturbed(before, {c.request}, 7)) == trace_hash(after));
    // What lives at the end is what lived at the end: nothing leaks, nothing of the model is lost. Gradients
    // of the last iteration may be missing where the perturbation takes them away. (State of an expert that
    // is first used in the last iteration is not needed by a later one.)
    if (std::string(c.trace) != "moe") CHECK(model_bytes_at_end(after) == model_bytes_at_end(before));
    CHECK(after.live_bytes.value <= before.live_bytes.value);
    const std::string kind(report.marks.front().kind);
    const bool takes_gradients =
        kind == "layer_drop" || kind == "early_exit" || kind == "frozen" || kind == "moe_routing";
    if (!takes_gradients) CHECK(after.live_bytes.value == before.live_bytes.value);
  }
}

TEST_CASE("rate 0 is the identity, header included") {
  for (const Case& c : cases()) {
    CAPTURE(std::string(c.request));
    const Trace& before = bundled(c.trace);
    const Trace after = perturbed(before, {with_schedule(c.request, "rate=0")}, 7);
    CHECK(trace_hash(after) == trace_hash(before));
    CHECK(after.header.extra_json == before.header.extra_json);
  }
  for (const char* kind : {"insert", "delete", "reorder", "elide", "extra"}) {
    CAPTURE(std::string(kind));
    const Trace after = perturbed(bundled("gpt_varied"), {std::string(kind) + ":rate=0"}, 7);
    CHECK(trace_hash(after) == trace_hash(bundled("gpt_varied")));
  }
  const Trace still = perturbed(bundled("gpt_small"), {"jitter:amplitude=0", "drift:per_iteration=0"}, 7);
  CHECK(trace_hash(still) == trace_hash(bundled("gpt_small")));
}

TEST_CASE("iterations that are not scheduled stay as they are") {
  const Trace& before = bundled("gpt_small");
  const Trace after = perturbed(before, {"insert:rate=0.1@2", "delete:rate=0.1@2", "reorder:rate=0.1@2"}, 3);
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    CHECK(diff_operators(before, operators_of(before.iterations[i]), after, operators_of(after.iterations[i]))
              .equal());
  }
  CHECK_FALSE(
      diff_operators(before, operators_of(before.iterations[2]), after, operators_of(after.iterations[2]))
          .equal());
}

TEST_CASE("another seed changes other places") {
  CHECK(trace_hash(perturbed(bundled("gpt_small"), {"insert:rate=0.1"}, 1)) !=
        trace_hash(perturbed(bundled("gpt_small"), {"insert:rate=0.1"}, 2)));
}

TEST_CASE("perturbations compose, and marks of the first follow their operators through the second") {
  const Trace& before = bundled("gpt_small");
  const Trace once = perturbed(before, {"skip_step@2"}, 5);
  const Trace twice = perturbed(once, {"validation@0", "elide:rate=0.3@1", "profiler_hooks:every=10@2"}, 5);
  const Trace together =
      perturbed(before, {"skip_step@2", "validation@0", "elide:rate=0.3@1", "profiler_hooks:every=10@2"}, 5);
  CHECK(examine_trace(twice).problems.empty());
  CHECK(examine_trace(together).problems.empty());
  check_marks(before, together);
  const std::vector<PerturbationMark> marks = perturbation_marks(twice.header);
  const auto skip =
      std::find_if(marks.begin(), marks.end(), [](const auto& m) { return m.kind == "skip_step"; });
  REQUIRE(skip != marks.end());
  CHECK(skip->iteration == 3);  // renumbered by the validation before it
  // The mark of an emptied stretch still stands where the optimizer was: at the end of the iteration.
  const Iteration& skipped = twice.iterations[3];
  CHECK(skipped.step_skipped);
  CHECK(skip->first_op > skipped.first_op);
  CHECK(skip->first_op <= skipped.end_op);
}

TEST_CASE("marks survive a file, and no policy-visible mark is added") {
  const Trace after = perturbed(bundled("gpt_small"), {"insert:rate=0.01", "validation@1"}, 9);
  const std::string path = "test_perturb_roundtrip.jsonl.gz";
  write_trace(after, path);
  const Trace read = read_trace(path);
  std::remove(path.c_str());
  CHECK(perturbation_marks(read.header) == perturbation_marks(after.header));
  // Not the hash: the writer leaves signatures out that no operator uses.
  CHECK(diff_operators(after, {0, static_cast<std::uint32_t>(after.ops.size())}, read,
                       {0, static_cast<std::uint32_t>(read.ops.size())})
            .equal());
  for (const Mark& mark : after.marks) CHECK(mark.kind != MarkKind::other);
}

TEST_CASE("a skipped step is what the recorder saw when a step was skipped") {
  const Trace& varied = bundled("gpt_varied");
  REQUIRE(varied.iterations[3].step_skipped);
  const Trace after = perturbed(varied, {"skip_step@4"}, 1);
  CHECK(after.iterations[4].step_skipped);
  const SequenceDiff d =
      diff_operators(varied, operators_of(varied.iterations[3]), after, operators_of(after.iterations[4]));
  // The recorder did not read the loss of the skipped iteration.
  CHECK(d.name_edits <= 1);
}

TEST_CASE("an inserted validation is what the recorder saw in a validation, up to three operators") {
  const Trace& varied = bundled("gpt_varied");
  REQUIRE(varied.iterations[2].kind == IterationKind::validation);
  const Trace after = perturbed(varied, {"validation@1"}, 1);
  REQUIRE(after.iterations[2].kind == IterationKind::validation);
  REQUIRE(after.iterations[3].kind == IterationKind::validation);
  const SequenceDiff d =
      diff_operators(after, operators_of(after.iterations[2]), after, operators_of(after.iterations[3]));
  CHECK(d.operators_b == 177);
  CHECK(d.name_edits <= 3);
}

TEST_CASE("repeating a micro-batch gives the recorded accumulation") {
  // gpt_varied accumulates two micro-batches; with one, then with two again, only the lengths may differ.
  const Trace& varied = bundled("gpt_varied");
  const Trace one = perturbed(varied, {"accumulation:count=1@1"}, 1);
  const Trace again = perturbed(one, {"accumulation:count=2@1"}, 1);
  const SequenceDiff d =
      diff_operators(varied, operators_of(varied.iterations[1]), again, operators_of(again.iterations[1]));
  CHECK(d.name_edits <= 4);
  CHECK(one.iterations[1].end_op - one.iterations[1].first_op <
        varied.iterations[1].end_op - varied.iterations[1].first_op);
}

struct MicroRange {
  std::uint32_t first, end;
};
std::vector<MicroRange> micro_ranges(const Trace& trace, const Iteration& iteration) {
  std::vector<MicroRange> ranges;
  for (std::uint32_t gap = iteration.first_op; gap <= iteration.end_op; ++gap) {
    for (const Event& event : trace.gap(gap)) {
      if (event.kind != EventKind::mark) continue;
      if (trace.marks[event.arg].kind == MarkKind::micro_begin) ranges.push_back({gap, gap});
      if (trace.marks[event.arg].kind == MarkKind::micro_end && !ranges.empty()) ranges.back().end = gap;
    }
  }
  return ranges;
}

// Every operator: signature, FLOP, bytes read and written, and the storages that it makes.
void check_same_work(const Trace& a, MicroRange in_a, const Trace& b, MicroRange in_b) {
  REQUIRE(in_a.end - in_a.first == in_b.end - in_b.first);
  const auto made = [](const Trace& t, std::uint32_t op) {
    std::vector<std::int64_t> bytes;
    for (const Event& event : t.gap(op)) {
      if (event.kind == EventKind::alloc_op) bytes.push_back(t.storages.bytes[event.arg].value);
    }
    return bytes;
  };
  for (std::uint32_t i = 0; i < in_a.end - in_a.first; ++i) {
    const std::uint32_t x = in_a.first + i, y = in_b.first + i;
    CAPTURE(i);
    const std::uint32_t sx = index(a.ops.signature[x]), sy = index(b.ops.signature[y]);
    CHECK(a.op_name(x) == b.op_name(y));
    CHECK(std::string(a.names[a.signatures.detail[sx]]) == std::string(b.names[b.signatures.detail[sy]]));
    CHECK(a.signatures.flop[sx] == b.signatures.flop[sy]);
    CHECK(a.signatures.read[sx].value == b.signatures.read[sy].value);
    CHECK(a.signatures.written[sx].value == b.signatures.written[sy].value);
    CHECK(made(a, x) == made(b, y));
  }
}

TEST_CASE("another sequence length gives exactly what the recorder saw at that length") {
  const Trace& varied = bundled("gpt_varied");  // iterations 4 and 7 have lengths 128, 96 and 64, 128
  const auto recorded = micro_ranges(varied, varied.iterations[7]);
  const Trace longer = perturbed(varied, {"sequence_length:to=128@4"});
  check_same_work(longer, micro_ranges(longer, longer.iterations[4])[1], varied, recorded[1]);
  const Trace shorter = perturbed(varied, {"sequence_length:to=64@4"});
  check_same_work(shorter, micro_ranges(shorter, shorter.iterations[4])[0], varied, recorded[0]);
  // Validation iterations 2, 5 and 8 have lengths 128, 64 and 96.
  const Trace validation = perturbed(varied, {"sequence_length:to=96@2"});
  check_same_work(validation, micro_ranges(validation, validation.iterations[2])[0], varied,
                  micro_ranges(varied, varied.iterations[8])[0]);
}

TEST_CASE("there and back again is the identity of every operator") {
  struct Change {
    const char *trace, *there, *back;
  };
  for (const Change& c : {Change{"gpt_small", "batch_size:to=12@1", "batch_size:to=4@1"},
                          Change{"gpt2_medium", "batch_size:to=11@1", "batch_size:to=8@1"},
                          Change{"gpt2_medium", "sequence_length:to=777@1", "sequence_length:to=1024@1"},
                          Change{"resnet50_b256", "batch_size:to=7@1", "batch_size:to=256@1"}}) {
    CAPTURE(std::string(c.there));
    const Trace& before = bundled(c.trace);
    const Trace after = perturbed(before, {c.there, c.back});
    const Iteration& a = before.iterations[1];
    const Iteration& b = after.iterations[1];
    check_same_work(before, {a.first_op, a.end_op}, after, {b.first_op, b.end_op});
  }
}

TEST_CASE("a sequence as long as a head is wide is not guessed at") {
  try {
    perturbed(bundled("gpt_varied"), {"sequence_length:to=96@1"});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("cannot be told from other dimensions") != std::string::npos);
  }
  CHECK_THROWS_AS(perturbed(bundled("resnet50_b256"), {"sequence_length:to=96"}), Error);
}

Bytes peak_of(const Trace& trace, std::size_t iteration) {
  return examine_trace(trace).iterations[iteration].peak_bytes;
}

TEST_CASE("recomputation lowers the peak and adds phase R") {
  const Trace& before = bundled("gpt2_medium");
  const Trace after = perturbed(before, {"recompute"});
  CHECK(peak_of(after, 1).value * 10 < peak_of(before, 1).value * 7);
  std::uint32_t again = 0;
  for (const Phase phase : after.ops.phase) again += phase == Phase::recompute ? 1 : 0;
  CHECK(again > 3000);
}

TEST_CASE("frozen matrices need fewer activations, no gradients and no steps") {
  const Trace& before = bundled("gpt2_medium");
  const Trace after = perturbed(before, {"frozen:what=all@1-2"});
  CHECK(peak_of(after, 1) < peak_of(before, 1));
  const Iteration& it = after.iterations[1];
  for (std::uint32_t op = it.first_op; op < it.end_op; ++op) {
    for (const StorageId s : after.written(op)) {
      CHECK(after.storages.cls[index(s)] != StorageClass::parameter);
      CHECK(after.storages.cls[index(s)] != StorageClass::optimizer_state);
    }
  }
}

TEST_CASE("a dropped layer leaves no operator on its parameters") {
  const Trace after = perturbed(bundled("gpt_small"), {"layer_drop:block=1@2"});
  const auto on_block = [&](const Iteration& it) {
    std::uint32_t count = 0;
    for (std::uint32_t op = it.first_op; op < it.end_op; ++op) {
      for (const StorageId s : after.inputs(op)) {
        count += after.names[after.storages.name[index(s)]].starts_with("blocks.1.") ? 1 : 0;
      }
    }
    return count;
  };
  CHECK(on_block(after.iterations[1]) > 0);
  CHECK(on_block(after.iterations[2]) == 0);
}

TEST_CASE("rerouting keeps the tokens of a layer") {
  const Trace& before = bundled("moe");
  const Trace after = perturbed(before, {"moe_routing:shift=0.6,idle=1@2"}, 11);
  const auto tokens = [](const Trace& t, const Iteration& it) {
    std::int64_t sum = 0;
    for (std::uint32_t op = it.first_op; op < it.end_op; ++op) {
      if (t.op_name(op) != "aten.nonzero.default" || t.ops.phase[op] != Phase::forward) continue;
      for (const StorageId s : t.outputs(op)) sum += t.storages.bytes[index(s)].value;
    }
    return sum;
  };
  CHECK(tokens(after, after.iterations[2]) == tokens(before, before.iterations[2]));
  const SequenceDiff d =
      diff_operators(before, operators_of(before.iterations[2]), after, operators_of(after.iterations[2]));
  CHECK(d.name_edits > 100);  // three idle experts, forward, backward and optimizer
  CHECK(d.name_cosine_ppm > 999'000);
  CHECK(d.signature_edits > 500);
}

TEST_CASE("requests that cannot be parsed say what was expected") {
  CHECK(error_of("skipstep").find("did you mean 'skip_step'") != std::string::npos);
  CHECK(error_of("insert:rat=0.1").find("did you mean 'rate'") != std::string::npos);
  CHECK(error_of("insert:rate=2").find("expected a fraction in 0..1") != std::string::npos);
  CHECK(error_of("insert:rate").find("expected parameter=value") != std::string::npos);
  CHECK(error_of("insert:rate=0.1,rate=0.2").find("given twice") != std::string::npos);
  CHECK(error_of("insert@").find("expected iteration numbers") != std::string::npos);
  CHECK(error_of("insert@5-3").find("expected iteration numbers") != std::string::npos);
  CHECK(error_of("insert@every=0").find("expected iteration numbers") != std::string::npos);
  CHECK(error_of("insert:rate=0.1@1,3-4") == "no error");
}

TEST_CASE("a schedule beyond the trace is an error that gives its range") {
  CHECK_THROWS_WITH_AS(perturbed(bundled("gpt_small"), {"skip_step@9"}),
                       "'skip_step@9': the trace has no iteration 9; it has 0 to 3", Error);
}

TEST_CASE("times cannot vary where there are none") {
  CHECK_THROWS_AS(perturbed(bundled("resnet50_b256"), {"jitter"}), Error);
}

TEST_CASE("schedules") {
  Random random(1);
  const IterationSchedule every = IterationSchedule::parse("every=4");
  CHECK_FALSE(every.includes(0, 0, random));
  CHECK(every.includes(30, 3, random));
  CHECK(every.includes(0, 7, random));
  const IterationSchedule some = IterationSchedule::parse("1,4-6");
  CHECK(some.includes(1, 0, random));
  CHECK(some.includes(5, 0, random));
  CHECK_FALSE(some.includes(3, 0, random));
  int hits = 0;
  for (int i = 0; i < 10'000; ++i)
    hits += IterationSchedule::parse("rate=0.25").includes(i, i, random) ? 1 : 0;
  CHECK(hits > 2350);
  CHECK(hits < 2650);
}

TEST_CASE("a trace without iteration marks is one iteration") {
  TraceBuilder builder;
  const SigId sig = builder.add_signature({.name = "aten.relu", .detail = R"({"in":[],"out":[],"attr":[]})"});
  const StorageId input = builder.alloc(Bytes{64}, "cuda:0", true);
  StorageId last = input;
  for (int i = 0; i < 20; ++i) {
    const StorageId out = builder.alloc(Bytes{64}, "cuda:0", false);
    const StorageId in[] = {last}, made[] = {out};
    builder.op({.signature = sig, .in = in, .out = made, .written = {}});
    if (last != input) builder.free(last);
    last = out;
  }
  builder.free(last);
  const Trace trace = builder.finish();
  const Trace after = perturbed(trace, {"delete:rate=0.5"});
  CHECK(after.ops.size() < trace.ops.size());
  CHECK(examine_trace(after).problems.empty());
  CHECK(perturbation_marks(after.header).front().iteration == 0);
}

}  // namespace
}  // namespace swaplab
