// What the executor does, on many random programs under policies that do anything legal, is accepted
// by the checker, which shares no code with it.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "sim/run.hpp"
#include "sim/schedule_checker.hpp"
#include "sim/schedule_io.hpp"
#include "tests/sim/schedule_cases.hpp"

namespace swaplab {
namespace {

using Random = std::mt19937_64;

std::uint64_t below(Random& random, std::uint64_t bound) {
  return random() % bound;
}

// Parameters (some on the device from the start), temporaries, in-place writes, views, resizes, frees
// at any time, storages of the same gap, several iterations, one or two streams.
Trace random_program(std::uint64_t seed, std::uint16_t streams, std::int64_t unit) {
  Random random(seed);
  test::TraceMaker t;
  std::vector<StorageId> live;
  std::vector<std::int64_t> size;
  const auto add = [&](StorageId s, std::int64_t bytes) {
    live.push_back(s);
    size.resize(index(s) + 1u);
    size[index(s)] = bytes;
  };
  const auto some_size = [&] { return static_cast<std::int64_t>(1 + below(random, 40)) * unit; };
  const std::size_t parameters = 1 + below(random, 5);
  for (std::size_t i = 0; i < parameters; ++i) {
    const std::int64_t bytes = some_size();
    add(t.parameter(bytes), bytes);
  }
  const std::uint64_t iterations = 1 + below(random, 3);
  for (std::uint64_t it = 0; it < iterations; ++it) {
    t.begin(static_cast<std::int64_t>(it));
    const std::uint64_t ops = below(random, 12) == 0 ? 0 : 3 + below(random, 20);  // some are empty
    for (std::uint64_t op = 0; op < ops; ++op) {
      while (live.size() > parameters && below(random, 3) == 0) {
        const std::size_t victim = parameters + below(random, live.size() - parameters);
        t.builder.free(live[victim]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
      }
      if (live.size() > parameters && below(random, 12) == 0) {
        const StorageId s = live[parameters + below(random, live.size() - parameters)];
        const std::int64_t bytes = some_size();
        t.builder.resize(s, Bytes{size[index(s)]}, Bytes{bytes});
        size[index(s)] = bytes;
      }
      if (below(random, 15) == 0) {  // comes and goes without an operator
        t.builder.free(t.storage(512, true));
      }
      std::vector<StorageId> in, out, written;
      for (std::uint64_t i = below(random, 3) + 1; i > 0; --i) in.push_back(live[below(random, live.size())]);
      if (below(random, 3) == 0) written.push_back(in.front());
      const bool view = below(random, 8) == 0;
      if (view) {
        written.clear();
        out.push_back(in.front());
      } else if (below(random, 4) != 0) {
        const std::int64_t bytes = some_size();
        add(t.storage(bytes), bytes);
        out.push_back(live.back());
      }
      const auto time = static_cast<std::int64_t>(below(random, 30'000));
      t.op(in, out, written, view ? -1 : time, static_cast<std::uint16_t>(below(random, streams)));
    }
    t.end(static_cast<std::int64_t>(it));
  }
  t.op({live.front()}, {});  // after the last iteration, and perhaps the only one
  return t.builder.finish();
}

// Evicts the oldest when room is short; before each operator does random legal things.
class Erratic : public Policy {
 public:
  Erratic(std::uint64_t seed, bool busy, ReleaseRule rule) : random_(seed), busy_(busy), rule_(rule) {}
  void before_op(std::uint32_t, const View& view, Actions& actions) override {
    if (!busy_) return;
    for (int i = 0; i < 3; ++i) {
      const Slot slot{static_cast<std::uint32_t>(below(random_, view.program().slot_count()))};
      const Residency where = view.residency(slot);
      if (where == Residency::host || where == Residency::outgoing) {
        actions.prefetch(slot);
      } else if (view.evictable(slot)) {
        below(random_, 2) == 0 ? actions.evict(slot) : actions.copy_out(slot);
      }
    }
  }
  void end_iteration(std::uint32_t, const View& view, Actions& actions) override {
    if (busy_ && view.oldest() != kNoSlot && view.evictable(view.oldest())) actions.evict(view.oldest());
  }
  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    Slot slot = view.oldest();
    while (slot != kNoSlot && shortfall > Bytes{0}) {
      const Slot next = view.newer(slot);
      if (view.evictable(slot)) {
        shortfall -= view.size(slot);
        actions.evict(slot);
      }
      slot = next;
    }
  }
  ReleaseRule release_rule() const override { return rule_; }

 private:
  Random random_;
  bool busy_;
  ReleaseRule rule_;
};

struct Counts {
  int ok = 0, ended_early = 0;
  std::int64_t copies = 0, stitches = 0;
};

void run_and_check(std::uint64_t seed, const Machine& machine, AllocatorKind allocator, std::uint16_t streams,
                   Counts& counts) {
  // Large enough for the caching allocator's large segments and the stitching one's granules to matter.
  const std::int64_t unit = allocator != AllocatorKind::ideal ? 512 * 1024 : 512;
  const Trace trace = random_program(seed, streams, unit);
  const Program program = compile_program(trace, machine, TimeSource::trace);
  Random random(seed ^ 0x5bd1e995u);
  const std::int64_t low = program.largest_working_set.value, high = program.peak_bytes.value;
  RunOptions options;
  options.allocator = allocator;
  options.needs = Needs::future | Needs::op_events;
  options.budget =
      Bytes{low + static_cast<std::int64_t>(below(random, static_cast<std::uint64_t>(high - low + 1)))};
  if (allocator == AllocatorKind::caching) options.budget += Bytes{std::int64_t{40} << 20};  // its segments
  // Rounding up to granules; and some runs stitch whatever the size.
  if (allocator == AllocatorKind::stitching) options.budget += Bytes{std::int64_t{8} << 20};
  if (seed % 2 == 0) options.stitching.frag_limit = 0;
  const bool busy = below(random, 2) == 0;
  const ReleaseRule rule = below(random, 3) == 0 ? ReleaseRule::event_polled : ReleaseRule::stream_wait;
  Erratic policy(seed, busy, rule);
  Schedule schedule;
  schedule.trace_hash = trace_hash(trace);
  schedule.machine_json = machine_json(machine);
  schedule.allocator = allocator_name(allocator);
  schedule.budget = options.budget;
  options.schedule = &schedule;
  const RunResult result = run_program(program, machine, policy, options);
  ++(result.outcome == Outcome::ok ? counts.ok : counts.ended_early);
  counts.stitches += result.allocator.stitches;
  for (const IterationMetrics& it : result.iterations) counts.copies += it.copies_out + it.copies_in;

  // Through the file's text, so that what is checked is what a reader would get.
  const ScheduleCheck check = check_schedule(parse_schedule(schedule_text(schedule), "run"), trace);
  std::string first;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, check.findings.size()); ++i) {
    first += "\n  entry " + std::to_string(check.findings[i].entry) + ": " + check.findings[i].message;
  }
  REQUIRE_MESSAGE(check.finding_count == 0, "seed ", seed, " on ", machine.name, ", ", schedule.allocator,
                  " allocator, ", streams, " streams, busy ", busy, ", event_polled ",
                  rule == ReleaseRule::event_polled, first);

  if (seed % 25 != 0) return;  // and nothing up to the last operator could be missing
  std::size_t last = schedule.entries.size();
  while (last > 0 && schedule.entries[last - 1].kind != ScheduleKind::op) --last;
  for (std::size_t e = 0; e < last; ++e) {
    const ScheduleEntry& left_out = schedule.entries[e];
    if (left_out.kind == ScheduleKind::acquire && e < schedule.initial_device.size()) {
      continue;  // may repeat the initial placement
    }
    const bool final_release =  // of a storage that stays away: keeping its bytes may be as legal
        left_out.kind == ScheduleKind::release &&
        std::none_of(schedule.entries.begin() + static_cast<std::ptrdiff_t>(e) + 1, schedule.entries.end(),
                     [&](const ScheduleEntry& later) {
                       return later.kind != ScheduleKind::op && later.index == left_out.index;
                     });
    if (final_release) continue;
    Schedule shorter = schedule;
    shorter.entries.erase(shorter.entries.begin() + static_cast<std::ptrdiff_t>(e));
    CHECK_MESSAGE(check_schedule(shorter, trace).finding_count > 0, "seed ", seed, ": entry ", e, " of kind ",
                  static_cast<int>(left_out.kind), " of ", schedule.entries.size(), " is not missed");
  }
}

TEST_CASE("schedule checker accepts the executor: one stream, ideal allocator") {
  Counts counts;
  for (const char* name : {"ideal-55gbps", "v100-pcie3", "a100-40g-pcie4", "gh200-c2c"}) {
    const Machine machine = load_machine(name);
    for (std::uint64_t seed = 1; seed <= 250; ++seed)
      run_and_check(seed, machine, AllocatorKind::ideal, 1, counts);
  }
  const Machine machine = test::byte_per_ns_machine();
  for (std::uint64_t seed = 1; seed <= 500; ++seed)
    run_and_check(seed, machine, AllocatorKind::ideal, 1, counts);
  MESSAGE(counts.ok, " runs ok, ", counts.ended_early, " ended early, ", counts.copies, " copies");
  CHECK(counts.ok > 1000);
  CHECK(counts.copies > 5000);
}

TEST_CASE("schedule checker accepts the executor: one stream, caching allocator") {
  Counts counts;
  for (const char* name : {"ideal-55gbps", "v100-pcie3", "gh200-c2c"}) {
    const Machine machine = load_machine(name);
    for (std::uint64_t seed = 1; seed <= 250; ++seed)
      run_and_check(seed, machine, AllocatorKind::caching, 1, counts);
  }
  MESSAGE(counts.ok, " runs ok, ", counts.ended_early, " ended early, ", counts.copies, " copies");
  CHECK(counts.ok > 500);
  CHECK(counts.copies > 1000);
}

TEST_CASE("schedule checker accepts the executor: one stream, stitching allocator") {
  Counts counts;
  for (const char* name : {"ideal-55gbps", "v100-pcie3", "gh200-c2c"}) {
    const Machine machine = load_machine(name);
    for (std::uint64_t seed = 1; seed <= 250; ++seed)
      run_and_check(seed, machine, AllocatorKind::stitching, 1, counts);
  }
  MESSAGE(counts.ok, " runs ok, ", counts.ended_early, " ended early, ", counts.copies, " copies, ",
          counts.stitches, " stitched ranges");
  CHECK(counts.ok > 500);
  CHECK(counts.copies > 1000);
  CHECK(counts.stitches > 100);
}

TEST_CASE("schedule checker accepts the executor: two streams") {
  Counts counts;
  for (const char* name : {"ideal-55gbps", "a100-40g-pcie4"}) {
    const Machine machine = load_machine(name);
    for (std::uint64_t seed = 1; seed <= 250; ++seed) {
      run_and_check(seed, machine, AllocatorKind::ideal, 2, counts);
      run_and_check(seed, machine, AllocatorKind::caching, 2, counts);
      run_and_check(seed, machine, AllocatorKind::stitching, 2, counts);
    }
  }
  MESSAGE(counts.ok, " runs ok, ", counts.ended_early, " ended early, ", counts.copies, " copies");
  CHECK(counts.ok > 500);
}

}  // namespace
}  // namespace swaplab
