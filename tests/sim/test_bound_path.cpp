// The swap-only bound on programs whose answer is known.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "sim/bounds/steady_bound.hpp"
#include "sim/bounds/swap_path.hpp"
#include "tests/sim/bound_programs.hpp"
#include "trace/error.hpp"

using namespace swaplab;
using namespace swaplab::test;
using namespace swaplab::unit_literals;

namespace {

constexpr SwapRates kByteRates{1'000'000'000, 2'000'000'000};  // 1 ns per byte out, half a ns back

Nanos bound_of(const Program& program, Bytes budget, SwapRates rates, SwapPathOptions options = {}) {
  return SwapPathBound(program, 0, program.op_count(), rates, options).at(budget).total;
}

Nanos sum_of(const SwapBound& bound) {
  Nanos sum{0};
  for (const ChainLink& link : bound.chain) sum += link.time;
  return sum;
}

// op 0 makes A (6 B), op 1 makes B (6 B), op 2 reads A; 10 ns each.
Program two_buffers() {
  ProgramBuilder b;
  const auto A = b.storage(6), B = b.storage(6);
  b.op(10, {{A, kWrite | kCreate}});
  b.op(10, {{B, kWrite | kCreate}});
  b.op(10, {{A, kRead}});
  b.end_iteration();
  return b.finish();
}

}  // namespace

TEST_CASE("hand-worked: 4 of 12 bytes must leave and return") {
  // Budget 8 B. W_1 = 12, so r = 4 at both points of op 1. A's version is complete only after op 0, hence
  // Y(E_0-, S_1) = 0: 4 B / (1 B/ns) = 4 ns between op 0 and op 1. A's gap closes at op 2, hence
  // X(E_1-, S_2) = 0: 4 B / (2 B/ns) = 2 ns between op 1 and op 2. Total 10 + 4 + 10 + 2 + 10 = 36 ns.
  const Program program = two_buffers();
  const SwapBound bound = SwapPathBound(program, 0, 3, kByteRates).at(8_B);
  CHECK(bound.feasible);
  CHECK(bound.compute == 30_ns);
  CHECK(bound.total == 36_ns);
  REQUIRE(bound.chain.size() == 5);
  CHECK(bound.chain[0].kind == ChainKind::compute);
  CHECK(bound.chain[0].from == kNever);
  CHECK(bound.chain[0].time == 10_ns);
  CHECK(bound.chain[1].kind == ChainKind::out);
  CHECK(bound.chain[1].from == 0);
  CHECK(bound.chain[1].from_end);
  CHECK(bound.chain[1].to == 1);
  CHECK_FALSE(bound.chain[1].to_end);
  CHECK(bound.chain[1].bytes == 4_B);
  CHECK(bound.chain[1].time == 4_ns);
  CHECK(bound.chain[3].kind == ChainKind::in);
  CHECK(bound.chain[3].bytes == 4_B);
  CHECK(bound.chain[3].time == 2_ns);
  const auto lines = chain_lines(program, bound);
  REQUIRE(lines.size() == 5);
  CHECK(lines[0] == "compute between the run's beginning and the end of operator 0: >= 10 ns");
  CHECK(lines[1] == "4 B out between the end of operator 0 and operator 1: >= 4 ns");
  CHECK(lines[3] == "4 B in between the end of operator 1 and operator 2: >= 2 ns");
}

TEST_CASE("hand-worked: what may already be on the host need not cross, what must be fetched does") {
  // Initial A (6 B) and B (6 B), budget 8 B: op 0 reads A, op 1 reads B, op 2 reads A. Nothing is ever
  // written, so nothing needs to leave. W = 12 throughout, r = 4: while op 0 runs, 4 B of B are away and must
  // be in before op 1 starts; then the same for A before op 2. Total 10 + 2 + 10 + 2 + 10 = 34 ns.
  ProgramBuilder b;
  const auto A = b.storage(6, true), B = b.storage(6, true);
  b.op(10, {{A, kRead}});
  b.op(10, {{B, kRead}});
  b.op(10, {{A, kRead}});
  const Program program = b.finish();
  CHECK(bound_of(program, 8_B, kByteRates) == 34_ns);
  // 10 times slower inwards: 10 + 20 + 10 + 20 + 10.
  CHECK(bound_of(program, 8_B, {1'000'000'000, 200'000'000}) == 70_ns);
  // The outward rate does not matter.
  CHECK(bound_of(program, 8_B, {1, 2'000'000'000}) == 34_ns);
}

TEST_CASE("hand-worked: initial content that does not fit at the run's beginning comes in before its use") {
  // A, B and C of 4 B each, D of 1 B, budget 8 B; ops of 1 ns: 0 and 1 use D, 2 reads A and B, 3 reads B and
  // C. At the end of op 1, D is there, so 12 - 7 = 5 B of A, B, C are away, at most 4 of them C's: 1 B must
  // come before op 2. While op 2 runs all of C is away: 4 B must come before op 3. 1 + 1 + (1) + 1 + (4) + 1
  // = 9 ns.
  ProgramBuilder b;
  const auto A = b.storage(4, true), B = b.storage(4, true), C = b.storage(4, true);
  const auto D = b.storage(1);
  b.op(1, {{D, kWrite | kCreate}});
  b.op(1, {{D, kRead}});
  b.op(1, {{A, kRead}, {B, kRead}});
  b.op(1, {{B, kRead}, {C, kRead}});
  CHECK(bound_of(b.finish(), 8_B, {1, 1'000'000'000}) == 9_ns);
}

TEST_CASE("hand-worked: a window begins with what the operator before it just wrote still on the device") {
  const Program program = two_buffers();
  // Window of operators 1 and 2: out 4 ns, compute 10, in 2, compute 10.
  CHECK(SwapPathBound(program, 1, 3, kByteRates).at(8_B).total == 26_ns);
  // Operator 1 alone: A's return is not needed any more.
  CHECK(SwapPathBound(program, 1, 2, kByteRates).at(8_B).total == 14_ns);
  // Operator 2 alone: A is away at the beginning, as operator 1 needed the room.
  CHECK(SwapPathBound(program, 2, 3, kByteRates).at(8_B).total == 12_ns);
  // Windows add up to no more than the run.
  CHECK(SwapPathBound(program, 0, 1, kByteRates).at(8_B).total == 10_ns);
}

TEST_CASE("rounds down: three bytes at 2 GB/s are proven to take one nanosecond") {
  ProgramBuilder b;
  const auto A = b.storage(3), B = b.storage(3);
  b.op(1, {{A, kWrite | kCreate}});
  b.op(1, {{B, kWrite | kCreate}});
  b.op(1, {{A, kRead}});
  const Program program = b.finish();
  CHECK(bound_of(program, 3_B, {2'000'000'000, 3'000'000'001}) == 4_ns);  // 3 + floor(1.5) + floor(0.99)
}

TEST_CASE("content that is overwritten unread is free memory") {
  ProgramBuilder b;
  const auto A = b.storage(6), B = b.storage(6);
  b.op(10, {{A, kWrite | kCreate}});
  b.op(10, {{B, kWrite | kCreate}});
  b.op(10, {{A, kWrite}});
  CHECK(bound_of(b.finish(), 8_B, kByteRates) == 30_ns);
}

TEST_CASE("infeasible exactly when the largest working set exceeds the budget") {
  const Program program = training_program(4, 3, 3, 1000, 100, 7);
  const SwapPathBound bound(program, 0, program.op_count(), kByteRates);
  const Bytes least = bound.at(0_B).smallest_budget;
  CHECK(least > 0_B);
  CHECK_FALSE(bound.at(least - 1_B).feasible);
  CHECK(bound.at(least).feasible);
  const SwapBound refused = bound.at(least - 1_B);
  REQUIRE(chain_lines(program, refused).size() == 1);
  CHECK(chain_lines(program, refused)[0].find("infeasible: operator " +
                                              std::to_string(refused.smallest_budget_op)) == 0);
}

TEST_CASE("equals compute time at full memory, one chain link; above it below") {
  const Program program = training_program(6, 4, 4, 100'000, 500, 3);
  const SwapPathBound bound(program, 0, program.op_count(), kByteRates);
  const SwapBound full = bound.at(bound.required_peak());
  CHECK(full.total == full.compute);
  REQUIRE(full.chain.size() == 1);
  CHECK(full.chain[0].kind == ChainKind::compute);
  CHECK(bound.at(bound.required_peak() / 2).total > full.compute);
}

TEST_CASE("monotone in budget and in either rate; the chain adds up") {
  int slower = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const Program program = training_program(5, 3, 3, 10'000, 2000, seed);
    const std::int64_t rate = 1'000'000'000;
    const SwapPathBound bound(program, 0, program.op_count(), {rate, rate});
    const Bytes peak = bound.required_peak();
    Nanos previous{-1};
    for (std::int64_t percent = 110; percent >= 20; percent -= 3) {
      const SwapBound at = bound.at(peak * percent / 100);
      if (!at.feasible) break;
      CHECK(at.total >= previous);
      CHECK(at.total >= at.compute);
      CHECK(sum_of(at) == at.total);
      slower += at.total > previous ? 1 : 0;
      previous = at.total;
    }
    Nanos by_out{-1}, by_in{-1};
    for (std::int64_t divisor = 1; divisor <= 16; divisor *= 2) {
      const Nanos out = bound_of(program, peak / 2, {rate / divisor, rate});
      const Nanos in = bound_of(program, peak / 2, {rate, rate / divisor});
      CHECK(out >= by_out);
      CHECK(in >= by_in);
      by_out = out;
      by_in = in;
    }
    CHECK(by_out > bound_of(program, peak / 2, {rate, rate}));
    CHECK(by_in > bound_of(program, peak / 2, {rate, rate}));
  }
  CHECK(slower > 100);
}

TEST_CASE("doubling the samples and widening the edges only raise it") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Program program = training_program(20, 8, 3, 1'000'000, 20'000, seed);
    const SwapRates rates{20'000'000'000, 25'000'000'000};
    const Bytes peak = SwapPathBound(program, 0, program.op_count(), rates, {1, 0}).required_peak();
    for (const std::int64_t percent : {80, 50, 30}) {
      const Bytes budget = peak * percent / 100;
      Nanos previous{0};
      for (std::uint32_t samples = 5; samples <= 640; samples *= 2) {
        const Nanos total = bound_of(program, budget, rates, {samples, 0});
        CHECK(total >= previous);
        previous = total;
      }
      const Nanos all = bound_of(program, budget, rates, {0, 0});
      CHECK(all >= previous);
      CHECK(bound_of(program, budget, rates, {100, 0}).value > all.value * 98 / 100);
      Nanos narrow{0};
      for (const std::uint32_t span : {1U, 10U, 100U, 400U, 2000U}) {
        const Nanos total = bound_of(program, budget, rates, {0, span});
        CHECK(total >= narrow);
        narrow = total;
      }
      CHECK(narrow >= all);
    }
  }
}

TEST_CASE("disjoint windows add up to no more than one window over them") {
  const Program program = training_program(10, 4, 6, 1'000'000, 20'000, 11);
  const SwapRates rates{20'000'000'000, 25'000'000'000};
  const RunBounds bounds(program, rates, {0, 0});
  for (const std::int64_t percent : {90, 70, 50, 35}) {
    const RunBound bound = bounds.at(bounds.required_peak() * percent / 100);
    REQUIRE(bound.steady.feasible);
    CHECK(bound.steady_count == 4);
    REQUIRE(bound.iterations.size() == 6);
    Nanos sum{0};
    for (std::size_t i = 1; i < 5; ++i) sum += bound.iterations[i];
    CHECK(sum <= bound.steady.total);
    // Inner iterations are alike.
    CHECK(bound.iterations[2] == bound.iterations[3]);
    CHECK(bound.per_steady_iteration() * 4 <= bound.steady.total);
    // One lap from the best start is what the average tends to: k laps hold k - 1 of them.
    const auto lap = lap_bound(program, std::make_shared<const SwapGapTable>(program), 2, bound.steady.budget,
                               rates, {0, 0});
    REQUIRE(lap);
    CHECK(lap->total >= bound.iterations[2]);
    CHECK(lap->total * 3 <= bound.steady.total);
  }
}

TEST_CASE("hand-worked: two streams, the longest chain is the spine and others add what must exist") {
  // Stream 0: op 0 makes A (6 B, 10 ns), op 2 makes C (6 B, 10 ns), op 4 reads A and B (10 ns). Stream 1: op
  // 1 makes B (1 B) of A (3 ns), op 3 reads B (20 ns), which nobody waits for. Spine 0, 2, 4: 30 ns.
  ProgramBuilder b;
  const auto A = b.storage(6), B = b.storage(1), C = b.storage(6), D = b.storage(1);
  b.op(10, {{A, kWrite | kCreate}}, 0);
  b.op(3, {{A, kRead}, {B, kWrite | kCreate}}, 1);
  b.op(10, {{C, kWrite | kCreate}}, 0);
  b.op(5, {{B, kRead}, {D, kWrite | kCreate}}, 1);
  b.op(10, {{A, kRead}, {B, kRead}}, 0);
  b.op(9, {{D, kRead}}, 1);
  b.end_iteration();
  const Program program = b.finish();
  const SwapGapTable table(program);
  CHECK(table.order.spine() == std::vector<std::uint32_t>{0, 2, 4});
  // While op 2 runs A and C exist; B may not yet (op 1 need not have run).
  CHECK(table.required[3] == 12_B);
  // Out 4 B in 4 ns, back in 2 ns, as with one stream; op 5 ends later only if op 3 did.
  CHECK(bound_of(program, 8_B, kByteRates) == 36_ns);
  // Kernels before operator 4 have surely ended when ... nothing on the spine follows op 3: blind.
  CHECK(SwapPathBound(program, 4, 6, kByteRates).blind());
  CHECK(SwapPathBound(program, 4, 6, kByteRates).at(8_B).total == 0_ns);
  // Those before operator 2: op 1 has ended when op 4 begins.
  const SwapPathBound rest(program, 2, 6, kByteRates);
  CHECK_FALSE(rest.blind());
  CHECK(rest.at(8_B).total == 10_ns);
}

TEST_CASE("streams that never meet in the steady iterations are refused with a reason") {
  ProgramBuilder b;
  const auto A = b.storage(6), B = b.storage(6);
  for (int i = 0; i < 3; ++i) {
    b.op(10, {{A, kRead | kWrite}}, 0);
    b.op(3, {{B, kRead | kWrite}}, 1);
    b.end_iteration();
  }
  b.op(1, {{A, kRead}, {B, kRead}}, 0);
  const Program program = b.finish();
  CHECK(RunBounds(program, kByteRates).refusal().find("do not meet") != std::string::npos);
  CHECK(RunBounds(two_buffers(), kByteRates).refusal().empty());
}

TEST_CASE("wrong requests are errors") {
  const Program program = two_buffers();
  CHECK_THROWS_AS(SwapPathBound(program, 0, 4, kByteRates), Error);
  CHECK_THROWS_AS(SwapPathBound(program, 2, 2, kByteRates), Error);
  CHECK_THROWS_AS(SwapPathBound(program, 0, 3, {0, 1}), Error);
  CHECK_THROWS_AS(SwapPathBound(program, 0, 3, kByteRates).at(Bytes{-1}), Error);
}

TEST_CASE("sums near the limits of 64 bits stay exact") {
  ProgramBuilder b;
  const std::int64_t big = std::int64_t{1} << 60;
  const auto A = b.storage(big), B = b.storage(big);
  b.op(10, {{A, kWrite | kCreate}});
  b.op(10, {{B, kWrite | kCreate}});
  b.op(10, {{A, kRead}});
  const Program program = b.finish();
  // 2^60 B at 2^30 * 10^9 B/s each way: 2^30 ns.
  const std::int64_t rate = (std::int64_t{1} << 30) * 1'000'000'000;
  CHECK(bound_of(program, Bytes{big}, {rate, rate}) == Nanos{30 + (std::int64_t{1} << 31)});
}
