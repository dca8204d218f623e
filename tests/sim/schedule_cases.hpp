// A small trace with a schedule worked out by hand, for the tests of schedule files and the checker.
#pragma once

#include <string>
#include <vector>

#include "sim/machine.hpp"
#include "sim/machine_io.hpp"
#include "sim/schedule.hpp"
#include "trace/builder.hpp"
#include "trace/io.hpp"

namespace swaplab::test {

// No API costs; both links move one byte per nanosecond.
inline Machine byte_per_ns_machine() {
  Machine machine = load_machine("ideal-55gbps");
  machine.pinned.fill(TransferTable({{Bytes{0}, Nanos{0}}}, 1'000'000'000));
  return machine;
}

class TraceMaker {
 public:
  StorageId storage(std::int64_t bytes, bool external = false, StorageClass cls = StorageClass::unknown) {
    const StorageId s = builder.alloc(Bytes{bytes}, "cuda:0", external);
    if (cls != StorageClass::unknown) builder.tag(s, cls, "w" + std::to_string(index(s)));
    return s;
  }
  StorageId parameter(std::int64_t bytes) { return storage(bytes, true, StorageClass::parameter); }
  void op(const std::vector<StorageId>& in, const std::vector<StorageId>& out,
          const std::vector<StorageId>& written = {}, std::int64_t time = 10, std::uint16_t stream = 0) {
    if (!added) {
      kernel = builder.add_signature({.name = "test.kernel"});
      view = builder.add_signature({.name = "test.view", .view = true});
      added = true;
    }
    TraceBuilder::Op op;
    op.signature = time < 0 ? view : kernel;
    op.stream = stream;
    op.device_time = Nanos{time < 0 ? 0 : time};
    op.in = in;
    op.out = out;
    op.written = written;
    builder.op(op);
  }
  void begin(std::int64_t number) { builder.mark(MarkKind::iter_begin, "train", number, Nanos{-1}); }
  void end(std::int64_t number) { builder.mark(MarkKind::iter_end, "train", number, Nanos{-1}); }

  TraceBuilder builder;
  SigId kernel{}, view{};
  bool added = false;
};

// Storages: w 0 and v 1 (parameters), a 2, b 3 (100 B each), c 4 (50 B). Two iterations.
inline Trace worked_trace() {
  TraceMaker t;
  const StorageId w = t.parameter(100), v = t.parameter(100);
  t.begin(0);
  const StorageId a = t.storage(100);
  t.op({w}, {a});
  const StorageId b = t.storage(100);
  t.op({a, v}, {b});
  t.op({a, b}, {a}, {a});
  t.end(0);
  t.begin(1);
  t.builder.free(b);
  const StorageId c = t.storage(50);
  t.op({a, w}, {c});
  t.op({c}, {c}, {}, -1);
  t.op({c, w}, {w}, {w});
  t.end(1);
  t.builder.free(a);
  t.builder.free(c);
  return t.builder.finish();
}

inline ScheduleEntry entry(ScheduleKind kind, std::uint32_t id, std::int64_t bytes, std::int64_t start,
                           std::int64_t end) {
  return {kind, 0, id, Bytes{bytes}, Nanos{start}, Nanos{end}};
}

// Budget 300 B: w leaves early and comes back, v starts on the host and leaves without a copy, a
// leaves after its last write. Times follow from 10 ns per kernel and 1 ns per byte.
inline Schedule worked_schedule(const Trace& trace) {
  using K = ScheduleKind;
  Schedule s;
  s.trace_path = "worked.jsonl";
  s.trace_hash = trace_hash(trace);
  s.times = TimeSource::trace;
  s.machine_json = machine_json(byte_per_ns_machine());
  s.policy = "by hand";
  s.allocator = "ideal";
  s.budget = Bytes{300};
  s.initial_device = {StorageId{0}};
  s.initial_host = {StorageId{1}};
  s.entries = {
      entry(K::acquire, 2, 100, 0, 0),       // 0: a, beside w
      entry(K::op, 0, 0, 0, 10),             // 1
      entry(K::copy_out, 0, 100, 0, 100),    // 2: w has its first content
      entry(K::release, 0, 100, 0, 0),       // 3
      entry(K::acquire, 3, 100, 0, 0),       // 4: b
      entry(K::acquire, 1, 100, 0, 0),       // 5: v
      entry(K::copy_in, 1, 100, 100, 200),   // 6
      entry(K::op, 1, 0, 200, 210),          // 7
      entry(K::op, 2, 0, 210, 220),          // 8: second version of a
      entry(K::release, 3, 100, 0, 0),       // 9: b is freed
      entry(K::release, 1, 100, 0, 0),       // 10: v is still valid on the host
      entry(K::acquire, 4, 50, 0, 0),        // 11: c
      entry(K::acquire, 0, 100, 0, 0),       // 12: w, into the bytes of v, free from 210 on
      entry(K::copy_in, 0, 100, 210, 310),   // 13
      entry(K::op, 3, 0, 310, 320),          // 14
      entry(K::op, 4, 0, 0, 0),              // 15: a view
      entry(K::copy_out, 2, 100, 220, 320),  // 16: a, complete since 220; only readers follow
      entry(K::release, 2, 100, 0, 0),       // 17
      entry(K::op, 5, 0, 320, 330),          // 18: second version of w
      entry(K::release, 4, 50, 0, 0),        // 19: c is freed
  };
  IterationMetrics first, second;
  first.number = 0;
  first.end = Nanos{220};
  first.compute_busy = Nanos{30};
  first.stalls[static_cast<std::size_t>(Stall::swap_in)] = Nanos{190};
  first.passive_in = 1;
  second.number = 1;
  second.begin = Nanos{220};
  second.end = Nanos{330};
  second.compute_busy = Nanos{20};
  second.stalls[static_cast<std::size_t>(Stall::memory)] = Nanos{90};
  for (IterationMetrics* it : {&first, &second}) {
    it->bytes_out = it->bytes_in = Bytes{100};
    it->copies_out = it->copies_in = 1;
    it->peak_allocated = it->peak_reserved = Bytes{300};
  }
  s.result.iterations = {first, second};
  s.result.allocator.peak_allocated = s.result.allocator.peak_reserved = Bytes{300};
  s.result.allocator.reserved_at_peak = Bytes{300};
  s.result.peak_host_pinned = Bytes{200};
  s.result.evictions = 3;
  return s;
}

}  // namespace swaplab::test
