#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "sim/analysis/dependence.hpp"
#include "sim/analysis/live_bytes.hpp"
#include "sim/analysis/reuse.hpp"
#include "sim/machine_io.hpp"
#include "tests/support/shared.hpp"
#include "trace/builder.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

// A small program by hand: storages a, b, ... of the device, operators with device times.
class Maker {
 public:
  Maker() {
    trace_.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
    signature_ = trace_.add_signature({.name = "aten.op",
                                       .detail = R"({"in":[],"out":[],"attr":[]})",
                                       .read = Bytes{1},
                                       .written = Bytes{1}});
  }
  StorageId external(std::int64_t bytes) { return trace_.alloc(Bytes{bytes}, "cuda:0", true); }
  StorageId run(std::int64_t time, std::vector<StorageId> in, std::int64_t out_bytes,
                Phase phase = Phase::forward, std::vector<StorageId> written = {}) {
    std::vector<StorageId> out;
    StorageId made{kNever};
    if (out_bytes > 0) out.push_back(made = trace_.alloc(Bytes{out_bytes}, "cuda:0", false));
    trace_.op({.signature = signature_,
               .phase = phase,
               .device_time = Nanos{time},
               .in = in,
               .out = out,
               .written = written});
    return made;
  }
  void free(StorageId s) { trace_.free(s); }
  Program program() {
    trace_.mark(MarkKind::iter_end, "", 0, Nanos{-1});
    machine = load_machine("ideal-55gbps");
    return compile_program(trace_.finish(), machine, TimeSource::trace);
  }
  Machine machine;

 private:
  TraceBuilder trace_;
  SigId signature_{};
};

using Kind = DependenceGraph::Kind;

TEST_CASE("a diamond: the longer arm is the critical path") {
  Maker m;
  const StorageId a = m.external(8);
  const StorageId b = m.run(10, {a}, 8);  // 0
  const StorageId c = m.run(5, {b}, 8);   // 1
  const StorageId d = m.run(7, {b}, 8);   // 2
  m.run(3, {c, d}, 8);                    // 3
  const Program p = m.program();
  const DependenceGraph g = build_dependences(p, {0, 4});
  CHECK(g.edges == std::vector<DependenceGraph::Edge>{
                       {0, 1, Kind::data}, {0, 2, Kind::data}, {1, 3, Kind::data}, {2, 3, Kind::data}});
  const CriticalPath path = critical_path(p, g, true);
  CHECK(path.length == Nanos{20});
  CHECK(path.work == Nanos{25});
  CHECK(path.operators == std::vector<std::uint32_t>{0, 2, 3});
}

TEST_CASE("writing in place waits for readers; by data alone it does not") {
  Maker m;
  const StorageId a = m.external(8);
  m.run(4, {a}, 8);                         // 0 reads a
  m.run(1, {a}, 0, Phase::optimizer, {a});  // 1 reads and writes a
  m.run(2, {a}, 8);                         // 2 reads the new a
  const Program p = m.program();
  const DependenceGraph g = build_dependences(p, {0, 3});
  CHECK(g.edges == std::vector<DependenceGraph::Edge>{{0, 1, Kind::reuse}, {1, 2, Kind::data}});
  CHECK(critical_path(p, g, false).length == Nanos{7});
  CHECK(critical_path(p, g, true).length == Nanos{4});
}

// By definition: what was accessed since, counted one by one.
TEST_CASE("reuse distances by hand and by definition") {
  Maker m;
  const StorageId a = m.external(100);
  const StorageId b = m.run(1, {a}, 10);  // a first
  const StorageId c = m.run(1, {b}, 7);   // b again: distance 10 (only itself, its last access is the newest)
  m.run(1, {a}, 0);                       // a again: 100 + 10 + 7
  m.run(1, {c, b}, 0);                    // c: 7 + 100; b: 10 + 7 + 100
  const ReuseDistances r = reuse_distances(m.program());
  CHECK(r.first_accesses == 3);
  CHECK(r.reuses == 4);
  CHECK(r.quantiles[3] == Bytes{117});
  std::map<std::int64_t, std::uint64_t> buckets;
  for (const auto& bucket : r.buckets) buckets[bucket.up_to.value] = bucket.accesses;
  CHECK(buckets[16] == 1);
  CHECK(buckets[128] == 3);
}

TEST_CASE("reuse distances of a recording equal a plain LRU stack") {
  const Machine machine = load_machine("ideal-55gbps");
  Trace trace = read_trace(test::source_path("configs/traces/gpt_small.jsonl.gz"));
  const Program p = compile_program(trace, machine, TimeSource::model);
  const ReuseDistances fast = reuse_distances(p);
  std::vector<std::uint32_t> stack;            // most recent last
  std::map<std::int64_t, std::uint64_t> slow;  // power of two at or above the distance -> accesses
  std::uint64_t reuses = 0, firsts = 0;
  std::int64_t largest = 0;
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    for (const GapEvent& e : p.gap(op)) {
      if (e.is_free) stack.erase(std::remove(stack.begin(), stack.end(), index(e.slot)), stack.end());
    }
    for (const Access& access : p.accesses_of(op)) {
      const auto found = std::find(stack.begin(), stack.end(), index(access.slot));
      if (found != stack.end()) {
        std::int64_t distance = 0;
        for (auto it = found; it != stack.end(); ++it) distance += p.bytes[*it].value;
        largest = std::max(largest, distance);
        std::int64_t power = 1;
        while (power < distance) power *= 2;
        ++slow[power];
        ++reuses;
        stack.erase(found);
      } else {
        ++firsts;
      }
      stack.push_back(index(access.slot));
    }
  }
  CHECK(fast.reuses == reuses);
  CHECK(fast.first_accesses == firsts);
  CHECK(fast.quantiles[3].value == largest);
  std::map<std::int64_t, std::uint64_t> buckets;
  for (const auto& bucket : fast.buckets) {
    if (bucket.accesses > 0) buckets[bucket.up_to.value] = bucket.accesses;
  }
  CHECK(buckets == slow);
}

TEST_CASE("an idle interval is the time of the operators between, and transfers that fit are hideable") {
  Maker m;
  const StorageId a = m.external(55'000'000);  // 1 ms each way at 55 GB/s
  m.run(10, {a}, 8);
  m.run(1'999'999, {}, 8);
  m.run(10, {a}, 8);  // idle 1 999 999 ns: one nanosecond short of out and in
  m.run(2'000'000, {}, 8);
  m.run(10, {a}, 8);  // exactly enough
  m.run(1'000'000, {}, 8);
  m.run(10, {a}, 0, Phase::optimizer, {a});  // on the host already: in only
  m.run(1'000'000, {}, 8);
  m.run(10, {a}, 8);  // written since: out and in again
  const Program p = m.program();
  std::vector<IdleInterval> of_a;
  for (const IdleInterval& i : idle_intervals(p, m.machine)) {
    if (i.bytes == Bytes{55'000'000}) of_a.push_back(i);
  }
  REQUIRE(of_a.size() == 4);
  const Nanos in = m.machine.link(Direction::host_to_device).time(Bytes{55'000'000});
  const Nanos out = m.machine.link(Direction::device_to_host).time(Bytes{55'000'000});
  CHECK(of_a[0].idle == Nanos{1'999'999});
  CHECK(of_a[0].transfer == in + out);
  CHECK(of_a[0].hideable() == (of_a[0].idle >= in + out));
  CHECK(of_a[1].idle == Nanos{2'000'000});
  CHECK(of_a[1].hideable());
  CHECK(of_a[2].transfer == in);
  CHECK(of_a[2].hideable());
  CHECK(of_a[3].transfer == in + out);
  CHECK_FALSE(of_a[3].hideable());
}

TEST_CASE("roles and the peak of a tiny training step") {
  Maker m;
  const StorageId x = m.external(1000);
  const StorageId activation = m.run(1, {x}, 300);
  const StorageId scratch = m.run(1, {activation}, 50);
  m.run(1, {scratch}, 5);
  m.free(scratch);
  const StorageId gradient = m.run(1, {activation}, 70, Phase::backward);
  m.free(activation);
  m.run(1, {gradient}, 0, Phase::optimizer, {});
  const Program p = m.program();
  const std::vector<Role> roles = storage_roles(p);
  std::map<std::int64_t, Role> by_bytes;
  for (std::uint32_t s = 0; s < p.slot_count(); ++s) by_bytes[p.bytes[s].value] = roles[s];
  CHECK(by_bytes[300] == Role::activation);
  CHECK(by_bytes[50] == Role::temporary);
  CHECK(by_bytes[70] == Role::gradient);
  const LiveBytes live = live_bytes(p);
  CHECK(live.peak == p.peak_bytes);
  CHECK(live.peak == Bytes{1375});
  CHECK(live.peak_op == 3);
}

TEST_CASE("on every recording: the curve's peak is the program's, its parts add up, and orders are valid") {
  const Machine machine = load_machine("h100-pcie5");
  for (const char* name : {"gpt_small", "gpt_varied", "gpt2_medium", "resnet50_b256", "moe"}) {
    CAPTURE(std::string(name));
    const Trace trace = read_trace(test::source_path(std::string("configs/traces/") + name + ".jsonl.gz"));
    const Program p = compile_program(trace, machine, TimeSource::model);
    const LiveBytes live = live_bytes(p);
    CHECK(live.peak == p.peak_bytes);
    bool adds_up = true;
    for (std::uint32_t op = 0; op < p.op_count(); ++op) {
      Bytes sum;
      for (const Bytes bytes : live.by_role[op]) sum += bytes;
      adds_up &= sum == live.total[op] && sum <= live.peak;
    }
    CHECK(adds_up);
    Bytes at_peak;
    for (const auto& phases : live.at_peak) {
      for (const Bytes bytes : phases) at_peak += bytes;
    }
    CHECK(at_peak == live.peak);
    const ProgramIteration& it = p.iterations[1];
    const DependenceGraph g = build_dependences(p, {it.first_op, it.end_op});
    const std::vector<std::uint32_t> order = topological_order(g);
    REQUIRE(order.size() == g.size());
    std::vector<std::uint32_t> place(g.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    bool forward = true;
    for (const DependenceGraph::Edge& e : g.edges) forward &= place[e.from] < place[e.to] && e.from < e.to;
    CHECK(forward);
    const CriticalPath data = critical_path(p, g, true), all = critical_path(p, g, false);
    CHECK(data.length <= all.length);
    CHECK(all.length <= all.work);
    Nanos along{0};
    for (const std::uint32_t op : data.operators) along += p.device_time[op];
    CHECK(along == data.length);
  }
}

TEST_CASE("most of what lies at the peak of a transformer are activations made forward") {
  const Program p = compile_program(read_trace(test::source_path("configs/traces/gpt2_medium.jsonl.gz")),
                                    load_machine("h100-pcie5"), TimeSource::model);
  const LiveBytes live = live_bytes(p);
  const auto& activations = live.at_peak[static_cast<std::size_t>(Role::activation)];
  const Bytes forward = activations[static_cast<std::size_t>(Phase::forward)];
  CHECK(forward.value > live.peak.value / 2);
  Bytes parameters;
  for (const Bytes b : live.at_peak[static_cast<std::size_t>(Role::parameter)]) parameters += b;
  CHECK(parameters > Bytes{0});
}

}  // namespace
}  // namespace swaplab
