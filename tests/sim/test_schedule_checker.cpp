// One schedule that is right, and for every rule of the checker at least one that breaks it.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "sim/schedule_checker.hpp"
#include "tests/sim/schedule_cases.hpp"

namespace swaplab {
namespace {

using K = ScheduleKind;
using test::entry;

std::string all_messages(const ScheduleCheck& check) {
  std::string text;
  for (const CheckFinding& f : check.findings) text += std::to_string(f.entry) + ": " + f.message + "\n";
  return text;
}

void shift(ScheduleEntry& e, std::int64_t by) {
  e.start += Nanos{by};
  e.end += Nanos{by};
}

void erase(Schedule& s, std::ptrdiff_t at) {
  s.entries.erase(s.entries.begin() + at);
}
void insert(Schedule& s, std::ptrdiff_t at, const ScheduleEntry& e) {
  s.entries.insert(s.entries.begin() + at, e);
}

struct Mutation {
  std::string expected;  // part of one message
  std::function<void(Schedule&)> apply;
};

void check_mutations(const Trace& trace, const Schedule& accepted, const std::vector<Mutation>& mutations) {
  const ScheduleCheck good = check_schedule(accepted, trace);
  CHECK_MESSAGE(good.finding_count == 0, all_messages(good));
  CHECK(good.rules_checked > accepted.entries.size());
  for (const Mutation& mutation : mutations) {
    Schedule broken = accepted;
    mutation.apply(broken);
    const std::string found = all_messages(check_schedule(broken, trace));
    CHECK_MESSAGE(found.find(mutation.expected) != std::string::npos, "expected: ", mutation.expected,
                  "\nfound:\n", found);
  }
}

TEST_CASE("schedule checker: physical peak of the worked schedule") {
  const Trace trace = test::worked_trace();
  CHECK(check_schedule(test::worked_schedule(trace), trace).peak_occupied == Bytes{300});
}

TEST_CASE("schedule checker: an acquire entry may repeat the initial placement") {
  const Trace trace = test::worked_trace();
  Schedule s = test::worked_schedule(trace);
  insert(s, 0, entry(K::acquire, 0, 100, 0, 0));
  CHECK(check_schedule(s, trace).finding_count == 0);
}

TEST_CASE("schedule checker: header, placement and order of operators") {
  const Trace trace = test::worked_trace();
  check_mutations(
      trace, test::worked_schedule(trace),
      {
          {"trace: the schedule was made for hash", [](Schedule& s) { ++s.trace_hash; }},
          {"storage 0 'w0' is placed twice", [](Schedule& s) { s.initial_host.push_back(StorageId{0}); }},
          {"'w1' lives before the first operator but is placed nowhere",
           [](Schedule& s) { s.initial_host.clear(); }},
          {"storage 2 is not a device storage that lives before",
           [](Schedule& s) { s.initial_device.push_back(StorageId{2}); }},
          {"storage 77 is not a device storage",
           [](Schedule& s) { s.initial_host.push_back(StorageId{77}); }},
          {"acquire of storage 0: it has bytes on the device already",  // once may be said
           [](Schedule& s) {
             insert(s, 0, entry(K::acquire, 0, 100, 0, 0));
             insert(s, 0, entry(K::acquire, 0, 100, 0, 0));
           }},
          {"initial placement: 100 B on the device, more than the budget of 99 B",
           [](Schedule& s) { s.budget = Bytes{99}; }},
          {"from -1 ns to 10 ns is no interval", [](Schedule& s) { s.entries[1].start = Nanos{-1}; }},
          {"is no interval", [](Schedule& s) { s.entries[8].end = Nanos{209}; }},
          {"operator 6 does not exist", [](Schedule& s) { s.entries[18].index = 6; }},
          {"storage 5 does not exist", [](Schedule& s) { s.entries[0].index = 5; }},
          {"host order: starts at 0 ns, but the host issued it after an entry at 5 ns",
           [](Schedule& s) { shift(s.entries[0], 5); }},
          {"expected operator 2, found operator 3", [](Schedule& s) { erase(s, 8); }},
          {"expected operator 3, found operator 2 (test.kernel)",
           [](Schedule& s) { insert(s, 9, s.entries[8]); }},
          {"issues all 6, found 5", [](Schedule& s) { erase(s, 18); }},
          {"expected on stream 0, found on stream 3", [](Schedule& s) { s.entries[7].stream = 3; }},
          {"operator 4 (test.view) runs no kernel but takes 7 ns",
           [](Schedule& s) { s.entries[15].end = Nanos{7}; }},
          {"operator 2 (test.kernel) starts at 209 ns, before its stream's previous kernel ends at 210 ns",
           [](Schedule& s) { shift(s.entries[8], -1); }},
          {"its kernel takes 10 ns, found 9 ns", [](Schedule& s) { s.entries[8].end -= Nanos{1}; }},
          {"its kernel takes 10 ns, found 11 ns", [](Schedule& s) { s.entries[18].end += Nanos{1}; }},
      });
}

TEST_CASE("schedule checker: content and copies") {
  const Trace trace = test::worked_trace();
  check_mutations(
      trace, test::worked_schedule(trace),
      {
          {"storage 3 has no bytes on the device when it is accessed", [](Schedule& s) { erase(s, 4); }},
          {"storage 3 is allocated before operator 1 (test.kernel) but never took",
           [](Schedule& s) { erase(s, 4); }},
          {"storage 1 'w1' is accessed, but its content (version 0) is not on the device",
           [](Schedule& s) { erase(s, 6); }},
          {"storage 1 'w1' is accessed at 200 ns, before its copy to the device ends at 201 ns",
           [](Schedule& s) { shift(s.entries[6], 1); }},
          {"storage 0 'w0' is accessed at 309 ns, before its copy to the device ends at 310 ns",
           [](Schedule& s) { shift(s.entries[14], -1); }},
          // A reader after the copy was submitted, and a writer.
          {"copy to the host of storage 2 starts at 219 ns, before the kernel that writes version 2 ends at "
           "220 ns",
           [](Schedule& s) { shift(s.entries[16], -1); }},
          {"storage 0 'w0' is written at 320 ns, while its copy to the host runs until 520 ns",
           [](Schedule& s) { insert(s, 18, entry(K::copy_out, 0, 100, 420, 520)); }},
          {"copy to the device of storage 0 'w0' starts at 50 ns, before the copy to the host ends at 100 ns",
           [](Schedule& s) { s.entries[13].start = Nanos{50}, s.entries[13].end = Nanos{150}; }},
          {"copy to the device of storage 0 'w0': the host has no copy of version 0",
           [](Schedule& s) { erase(s, 2); }},
          {"it lives on, but version 0 is neither on the host", [](Schedule& s) { erase(s, 2); }},
          {"release of storage 2: it lives on, but version 2 is neither", [](Schedule& s) { erase(s, 16); }},
          {"release of storage 0: it lives on, but version 1 is neither",  // the host's copy went stale
           [](Schedule& s) { insert(s, 20, entry(K::release, 0, 100, 0, 0)); }},
          {"copy to the host of storage 1 'w1': its content is not on the device",
           [](Schedule& s) { insert(s, 6, entry(K::copy_out, 1, 100, 100, 200)); }},
          {"copy to the host of storage 1 'w1' starts at 150 ns, before its copy to the device ends at 200 "
           "ns",
           [](Schedule& s) { insert(s, 7, entry(K::copy_out, 1, 100, 150, 250)); }},
          {"copy to the device of storage 2: its content is on the device already",
           [](Schedule& s) { insert(s, 8, entry(K::copy_in, 2, 100, 200, 300)); }},
          {"copy to the device of storage 0 starts at 199 ns, before the previous copy in its direction ends "
           "at 200",
           [](Schedule& s) { s.entries[13].start = Nanos{199}, s.entries[13].end = Nanos{299}; }},
          {"copy to the host of storage 2 starts at 99 ns, before the previous copy in its direction ends at "
           "100",
           [](Schedule& s) { s.entries[16].start = Nanos{99}, s.entries[16].end = Nanos{199}; }},
          {"copy to the device of storage 1: 100 B take 100 ns, found 99 ns",
           [](Schedule& s) { s.entries[6].end -= Nanos{1}; }},
          {"copy to the host of storage 0: 100 B take 100 ns, found 101 ns",
           [](Schedule& s) { s.entries[2].end += Nanos{1}; }},
          {"copy to the host of storage 0: expected its size of 100 B, found 99 B",
           [](Schedule& s) { s.entries[2].bytes = Bytes{99}; }},
          {"copy to the host of storage 4: it has no bytes on the device",
           [](Schedule& s) { insert(s, 20, entry(K::copy_out, 4, 50, 320, 370)); }},
          {"copy to the host of storage 3: it is not live",
           [](Schedule& s) {
             erase(s, 9);
             insert(s, 15, entry(K::copy_out, 3, 100, 220, 320));
           }},
      });
}

TEST_CASE("schedule checker: device bytes") {
  const Trace trace = test::worked_trace();
  check_mutations(
      trace, test::worked_schedule(trace),
      {
          {"acquire of storage 4: it is not live",
           [](Schedule& s) { insert(s, 2, entry(K::acquire, 4, 50, 0, 0)); }},
          {"acquire of storage 3: it is not live",
           [](Schedule& s) { insert(s, 15, entry(K::acquire, 3, 100, 0, 0)); }},
          {"acquire of storage 2: it has bytes on the device already",
           [](Schedule& s) { insert(s, 2, entry(K::acquire, 2, 100, 0, 0)); }},
          {"acquire of storage 4: expected its size of 50 B, found 51 B",
           [](Schedule& s) { s.entries[11].bytes = Bytes{51}; }},
          {"release of storage 3: it has no bytes on the device",
           [](Schedule& s) { insert(s, 10, s.entries[9]); }},
          {"release of storage 4: expected the 50 B that it acquired, found 40 B",
           [](Schedule& s) { s.entries[19].bytes = Bytes{40}; }},
          {"storage 4 died but never released", [](Schedule& s) { erase(s, 19); }},
          {"acquire of storage 1: 300 B are acquired, more than the budget of 299 B",
           [](Schedule& s) { s.budget = Bytes{299}; }},
          // v leaves at 210, so w cannot come in at 209.
          {"occupancy: storage 0 comes into use at 209 ns and makes it 400 B, more than the budget of 300 B",
           [](Schedule& s) { shift(s.entries[13], -1); }},
          // The bytes of w are still being read until 150.
          {"occupancy: storage 3 comes into use at 200 ns and makes it 400 B",
           [](Schedule& s) { s.entries[2].start = Nanos{150}, s.entries[2].end = Nanos{250}; }},
      });
}

TEST_CASE("schedule checker: the claimed result") {
  const Trace trace = test::worked_trace();
  const auto first = [](Schedule& s) -> IterationMetrics& { return s.result.iterations[0]; };
  const auto second = [](Schedule& s) -> IterationMetrics& { return s.result.iterations[1]; };
  check_mutations(
      trace, test::worked_schedule(trace),
      {
          {"the number of complete iterations is 2 by the entries, claimed 1",
           [](Schedule& s) { s.result.iterations.pop_back(); }},
          {"iteration 1: number is 1 by the entries, claimed 4", [&](Schedule& s) { second(s).number = 4; }},
          {"iteration 1: kind is 0 by the entries, claimed 1",
           [&](Schedule& s) { second(s).kind = IterationKind::validation; }},
          {"iteration 1: begin is 220 ns by the entries, claimed 219 ns",
           [&](Schedule& s) { second(s).begin = Nanos{219}; }},
          {"iteration 0: end is 220 ns by the entries, claimed 221 ns",
           [&](Schedule& s) { first(s).end = Nanos{221}; }},
          {"iteration 0: compute busy is 30 ns by the entries, claimed 31 ns",
           [&](Schedule& s) { first(s).compute_busy = Nanos{31}; }},
          {"iteration 0: busy and stalls sum to 221 ns, the iteration takes 220 ns",
           [&](Schedule& s) { first(s).stalls[0] += Nanos{1}; }},
          {"iteration 1: stall policy is negative: -1 ns",
           [&](Schedule& s) {
             second(s).stalls[static_cast<std::size_t>(Stall::policy)] = Nanos{-1};
             second(s).stalls[static_cast<std::size_t>(Stall::memory)] += Nanos{1};
           }},
          {"iteration 0: bytes to the host is 100 B by the entries, claimed 99 B",
           [&](Schedule& s) { first(s).bytes_out = Bytes{99}; }},
          {"iteration 1: bytes to the device is 100 B by the entries, claimed 200 B",
           [&](Schedule& s) { second(s).bytes_in = Bytes{200}; }},
          {"iteration 0: copies to the host is 1 by", [&](Schedule& s) { first(s).copies_out = 2; }},
          {"iteration 1: copies to the device is 1 by", [&](Schedule& s) { second(s).copies_in = 0; }},
          {"iteration 0: 2 passive copies to the device of 1 in all",
           [&](Schedule& s) { first(s).passive_in = 2; }},
          {"iteration 1: peak of allocated bytes is 300 B by the entries, claimed 299 B",
           [&](Schedule& s) { second(s).peak_allocated = Bytes{299}; }},
          {"iteration 0: peak of reserved bytes is at least 300 B",
           [&](Schedule& s) { first(s).peak_reserved = Bytes{299}; }},
          {"result: peak of allocated bytes is 300 B by the entries, claimed 301 B",
           [](Schedule& s) { s.result.allocator.peak_allocated = Bytes{301}; }},
          {"result: peak of allocated bytes is at least 300 B by the entries, claimed 299 B",
           [](Schedule& s) {
             s.allocator = "caching";  // may round up, never down
             s.result.allocator.peak_allocated = Bytes{299};
           }},
          {"result: the budget is at least 301 B by the entries, claimed 300 B",
           [](Schedule& s) { s.result.allocator.peak_reserved = Bytes{301}; }},
          {"result: peak of pinned host bytes is at least 200 B",
           [](Schedule& s) { s.result.peak_host_pinned = Bytes{199}; }},
          {"infeasible: such a run does nothing",
           [](Schedule& s) { s.result.outcome = Outcome::infeasible; }},
          {"infeasible: no operator accesses more than 300 B",
           [](Schedule& s) { s.result.outcome = Outcome::infeasible; }},
      });
}

TEST_CASE("schedule checker: no entry can be left out, and no kernel or copy stretched") {
  const Trace trace = test::worked_trace();
  const Schedule accepted = test::worked_schedule(trace);
  for (std::size_t e = 0; e < accepted.entries.size(); ++e) {
    Schedule shorter = accepted, longer = accepted;
    erase(shorter, static_cast<std::ptrdiff_t>(e));
    CHECK_MESSAGE(check_schedule(shorter, trace).finding_count > 0, "entry ", e, " is not missed");
    if (accepted.entries[e].start == accepted.entries[e].end) continue;
    longer.entries[e].end += Nanos{1};
    CHECK_MESSAGE(check_schedule(longer, trace).finding_count > 0, "entry ", e, " may be longer");
  }
}

TEST_CASE("schedule checker: runs that ended early") {
  const Trace trace = test::worked_trace();
  Schedule cut = test::worked_schedule(trace);
  cut.result.outcome = Outcome::out_of_memory;
  cut.entries.resize(11);
  cut.result.iterations.pop_back();
  const ScheduleCheck check = check_schedule(cut, trace);
  CHECK_MESSAGE(check.finding_count == 0, all_messages(check));
  cut.result.outcome = Outcome::ok;
  CHECK(all_messages(check_schedule(cut, trace)).find("issues all 6, found 3") != std::string::npos);

  Schedule nothing = test::worked_schedule(trace);
  nothing.entries.clear();
  nothing.initial_device.clear();
  nothing.initial_host.clear();
  nothing.result = {};
  nothing.result.outcome = Outcome::infeasible;
  nothing.result.smallest_budget = Bytes{300};
  nothing.budget = Bytes{299};
  CHECK(check_schedule(nothing, trace).finding_count == 0);
  nothing.result.smallest_budget = Bytes{299};
  CHECK(all_messages(check_schedule(nothing, trace)).find("largest working set is 300 B") !=
        std::string::npos);
}

TEST_CASE("schedule checker: at most 100 findings are kept, all are counted") {
  const Trace trace = test::worked_trace();
  Schedule s = test::worked_schedule(trace);
  for (int i = 0; i < 150; ++i) s.entries.push_back(entry(K::release, 3, 100, 0, 0));
  const ScheduleCheck check = check_schedule(s, trace);
  CHECK(check.findings.size() == 100);
  CHECK(check.finding_count == 150);
}

// Two streams: a is written on 0, read on 1, written again on 0.
TEST_CASE("schedule checker: kernels on different streams") {
  test::TraceMaker t;
  const StorageId a = t.storage(8);
  t.op({}, {a}, {}, 10, 0);
  t.op({a}, {a}, {}, 20, 1);
  t.op({a}, {a}, {a}, 5, 0);
  const Trace trace = t.builder.finish();
  Schedule s = test::worked_schedule(trace);
  s.initial_device.clear();
  s.initial_host.clear();
  s.entries = {entry(K::acquire, 0, 8, 0, 0), entry(K::op, 0, 0, 0, 10), entry(K::op, 1, 0, 10, 30),
               entry(K::op, 2, 0, 30, 35)};
  s.entries[2].stream = 1;
  s.result = {};
  IterationMetrics it;
  it.end = it.compute_busy = Nanos{35};
  it.peak_allocated = it.peak_reserved = Bytes{8};
  s.result.iterations = {it};
  s.result.allocator.peak_allocated = s.result.allocator.peak_reserved = Bytes{8};
  check_mutations(trace, s,
                  {
                      {"is accessed at 9 ns, before the kernel that writes version 1 ends at 10 ns",
                       [](Schedule& m) { shift(m.entries[2], -1); }},
                      {"is written at 29 ns, while an earlier kernel accesses it until 30 ns",
                       [](Schedule& m) { shift(m.entries[3], -1); }},
                  });
}

TEST_CASE("schedule checker: interference allows longer, never shorter") {
  const Trace trace = test::worked_trace();
  Schedule s = test::worked_schedule(trace);
  Machine machine = test::byte_per_ns_machine();
  machine.interference.kernel_during_h2d = 900'000;
  machine.interference.d2h_during_h2d = 900'000;
  s.machine_json = machine_json(machine);
  s.entries[18].end += Nanos{3};  // the last kernel
  s.entries[16].end += Nanos{2};  // the last copy to the host
  s.result.iterations[1].end += Nanos{3};
  s.result.iterations[1].compute_busy += Nanos{3};
  check_mutations(
      trace, s,
      {
          {"its kernel takes at least 10 ns, found 9 ns",
           [](Schedule& m) { m.entries[18].end = Nanos{329}; }},
          {"100 B take at least 100 ns, found 99 ns", [](Schedule& m) { m.entries[16].end = Nanos{319}; }},
          {"copy to the device of storage 1: 100 B take 100 ns, found 101 ns",
           [](Schedule& m) { m.entries[6].end += Nanos{1}; }},
      });
}

TEST_CASE("schedule checker: a resized storage is a new one") {
  test::TraceMaker t;
  const StorageId a = t.storage(8);
  t.op({}, {a});
  t.builder.resize(a, Bytes{8}, Bytes{20});
  t.op({a}, {a});
  t.builder.free(a);
  const Trace trace = t.builder.finish();
  Schedule s = test::worked_schedule(trace);
  s.initial_device.clear();
  s.initial_host.clear();
  s.entries = {entry(K::acquire, 0, 8, 0, 0),  entry(K::op, 0, 0, 0, 10),  entry(K::release, 0, 8, 0, 0),
               entry(K::acquire, 0, 20, 0, 0), entry(K::op, 1, 0, 10, 20), entry(K::release, 0, 20, 0, 0)};
  s.result = {};
  IterationMetrics it;
  it.end = it.compute_busy = Nanos{20};
  it.peak_allocated = it.peak_reserved = Bytes{20};
  s.result.iterations = {it};
  s.result.allocator.peak_allocated = s.result.allocator.peak_reserved = Bytes{20};
  check_mutations(
      trace, s,
      {
          {"acquire of storage 0: expected its size of 20 B, found 9 B",
           [](Schedule& m) { m.entries[3].bytes = Bytes{9}; }},
          {"storage 0 is allocated before operator 1 (test.kernel) but never took",  // the old size: the old
                                                                                     // one
           [](Schedule& m) { m.entries[3].bytes = Bytes{8}; }},
          {"acquire of storage 0: it has bytes on the device already", [](Schedule& m) { erase(m, 2); }},
      });
}

}  // namespace
}  // namespace swaplab
