// No schedule that exhaustive search finds is faster than the bound.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "sim/bounds/brute_force.hpp"
#include "sim/bounds/swap_path.hpp"
#include "tests/sim/bound_programs.hpp"

using namespace swaplab;
using namespace swaplab::test;
using namespace swaplab::unit_literals;

namespace {

constexpr std::int64_t kRates[] = {1'000'000'000, 500'000'000, 333'333'333, 2'000'000'000};

SwapRates random_rates(Dice& dice) {
  return {kRates[dice.in(0, 3)], kRates[dice.in(0, 3)]};
}

// Between the largest working set and the largest sum of bytes that must exist.
Bytes random_budget(Dice& dice, const SwapPathBound& bound) {
  const std::int64_t least = bound.at(0_B).smallest_budget.value;
  return Bytes{dice.in(least, std::max(least, bound.required_peak().value))};
}

struct Tally {
  int instances = 0, stalled = 0, infeasible = 0, violations = 0, tight = 0;
  double ratios = 0, worst = 1;  // of the stalled ones, optimum / bound

  void add(const SwapBound& bound, std::optional<Nanos> optimum) {
    ++instances;
    if (!optimum) {  // whole buffers may need more room than single operators do
      ++infeasible;
      return;
    }
    violations += *optimum < bound.total ? 1 : 0;
    if (*optimum == bound.compute || bound.total == 0_ns) return;
    ++stalled;
    tight += *optimum == bound.total ? 1 : 0;
    const double ratio = static_cast<double>(optimum->value) / static_cast<double>(bound.total.value);
    ratios += ratio;
    worst = std::max(worst, ratio);
  }
  double mean() const { return ratios / stalled; }
};

// No violation, and enough instances that say something: stalled ones, and some where the bound is the
// optimum.
void check_tallies(const Tally& whole, const Tally& windows, int least_tight) {
  for (const Tally* tally : {&whole, &windows}) {
    const std::string kind = tally == &whole ? " runs, " : " windows, ";
    MESSAGE(tally->instances, kind, tally->stalled, " slower than the spine; optimum/bound mean ",
            tally->mean(), ", worst ", tally->worst, ", ", tally->tight, " equal");
    CHECK(tally->violations == 0);
    CHECK(tally->stalled > 200);
    CHECK(tally->tight > least_tight);
  }
}

// Every storage of b bytes as b storages of one byte with the same accesses: bytes may move one by one.
Program split_into_bytes(const Program& program) {
  ProgramBuilder b;
  std::vector<std::vector<std::uint32_t>> parts(program.slot_count());
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
    for (std::int64_t i = 0; i < program.bytes[s].value; ++i) {
      parts[s].push_back(b.storage(1, program.initial[s] != 0));
    }
  }
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    std::vector<ProgramBuilder::Use> uses;
    for (const Access& access : program.accesses_of(op)) {
      for (const std::uint32_t part : parts[index(access.slot)]) uses.push_back({part, access.flags});
    }
    b.op(program.device_time[op].value, uses);
  }
  b.end_iteration();
  return b.finish();
}

// Storages that must leave behind kernels that use something else, for as many new ones, and return the same
// way.
Program hidden_copies(Dice& dice) {
  ProgramBuilder b;
  const auto pairs = dice.in(1, 2);
  std::vector<ProgramBuilder::Use> made, others, read;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int64_t bytes = dice.in(2, 6);
    const auto old = b.storage(bytes), fresh = b.storage(bytes);
    made.push_back({old, kWrite | kCreate});
    others.push_back({fresh, kWrite | kCreate});
    read.push_back({old, kRead});
  }
  const auto small = b.storage(1);
  made.push_back({small, kWrite | kCreate});
  const auto kernels = [&] {
    for (std::int64_t i = dice.in(1, 2); i > 0; --i) b.op(dice.in(2, 9), {{small, kRead}});
  };
  b.op(dice.in(0, 2), made);
  kernels();
  b.op(dice.in(0, 2), others);
  kernels();
  b.op(dice.in(0, 2), read);
  b.end_iteration();
  return b.finish();
}

}  // namespace

TEST_CASE("exhaustive search reproduces the hand-worked schedule") {
  // As in the hand-worked bound, but whole buffers: 10 + 6 (out) + 10 + 3 (in) + 10.
  ProgramBuilder b;
  const auto A = b.storage(6), B = b.storage(6);
  b.op(10, {{A, kWrite | kCreate}});
  b.op(10, {{B, kWrite | kCreate}});
  b.op(10, {{A, kRead}});
  const Program program = b.finish();
  const SwapRates rates{1'000'000'000, 2'000'000'000};
  CHECK(brute_force_swap_time(program, 0, 3, 8_B, rates) == 39_ns);
  CHECK(brute_force_swap_time(program, 0, 3, 12_B, rates) == 30_ns);
  CHECK_FALSE(brute_force_swap_time(program, 0, 3, 5_B, rates));
  CHECK(brute_force_swap_time(program, 2, 3, 8_B, rates) == 13_ns);
  // Byte by byte, at 1 ns per byte each way, the bound of 10 + 4 + 10 + 4 + 10 is met exactly.
  CHECK(brute_force_swap_time(split_into_bytes(program), 0, 3, 8_B, {1'000'000'000, 1'000'000'000}) == 38_ns);
}

TEST_CASE("no schedule of a whole run beats the bound") {
  Dice dice(2024);
  Tally tally;
  while (tally.instances < 3000) {
    const Program program = tiny_program(dice);
    const SwapRates rates = random_rates(dice);
    const SwapPathBound path(program, 0, program.op_count(), rates, {0, 0});
    const SwapBound bound = path.at(random_budget(dice, path));
    if (bound.budget == path.required_peak() && dice.chance(80)) continue;  // nothing to move: few suffice
    REQUIRE(bound.feasible);
    tally.add(bound, brute_force_swap_time(program, 0, program.op_count(), bound.budget, rates));
  }
  MESSAGE(tally.instances, " runs, ", tally.stalled, " with stalls, ", tally.infeasible,
          " without a whole-buffer schedule; optimum/bound mean ", tally.mean(), ", worst ", tally.worst,
          ", ", tally.tight, " equal");
  CHECK(tally.violations == 0);
  CHECK(tally.stalled > 1000);
  CHECK(tally.tight > 100);
  CHECK(tally.mean() < 1.3);
}

TEST_CASE("no schedule of a window inside a run beats the bound") {
  Dice dice(77);
  Tally tally;
  while (tally.instances < 3000) {
    const Program program = tiny_program(dice);
    const SwapRates rates = random_rates(dice);
    const auto first = static_cast<std::uint32_t>(dice.in(1, program.op_count() - 2));
    const auto end = static_cast<std::uint32_t>(dice.in(first + 1, program.op_count()));
    const SwapPathBound path(program, first, end, rates, {0, 0});
    const SwapBound bound = path.at(random_budget(dice, path));
    if (bound.budget == path.required_peak() && dice.chance(80)) continue;
    tally.add(bound, brute_force_swap_time(program, first, end, bound.budget, rates));
  }
  MESSAGE(tally.instances, " windows, ", tally.stalled, " with stalls; optimum/bound mean ", tally.mean(),
          ", worst ", tally.worst, ", ", tally.tight, " equal");
  CHECK(tally.violations == 0);
  CHECK(tally.stalled > 500);
  CHECK(tally.tight > 50);
}

TEST_CASE("no schedule on several streams beats the bound; the bound of one stream would be caught") {
  Dice dice(31);
  Tally whole, windows;
  int caught = 0;
  while (whole.instances + windows.instances < 4000) {
    const Program program = tiny_program(dice, {5, 8, 5, 6, dice.in(2, 3)});
    const SwapRates rates = random_rates(dice);
    const bool inside = dice.chance(40);
    const auto first = inside ? static_cast<std::uint32_t>(dice.in(1, program.op_count() - 2)) : 0U;
    const auto end =
        inside ? static_cast<std::uint32_t>(dice.in(first + 1, program.op_count())) : program.op_count();
    const SwapPathBound path(program, first, end, rates, {0, 0});
    const SwapBound bound = path.at(random_budget(dice, path));
    const auto optimum = brute_force_swap_time(program, first, end, bound.budget, rates);
    (inside ? windows : whole).add(bound, optimum);
    Program one_stream = program;  // over-tight: kernels one after the other
    std::fill(one_stream.stream.begin(), one_stream.stream.end(), std::uint16_t{0});
    const SwapBound wrong = SwapPathBound(one_stream, first, end, rates, {0, 0}).at(bound.budget);
    caught += optimum && *optimum < wrong.total ? 1 : 0;
  }
  check_tallies(whole, windows, 5);
  MESSAGE("the bound of one stream is too high ", caught, " times");
  CHECK(caught > 500);
}

TEST_CASE(
    "no schedule beats the bound where the host counts; that of an idle device at the window's start would "
    "be") {
  Dice dice(91);
  Tally whole, windows;
  int raised = 0, caught = 0;
  while (whole.instances + windows.instances < 2500) {
    Program program = tiny_program(dice, {5, 7, 5, 6, dice.in(1, 2), dice.in(1, 12)});
    SwapRates rates = random_rates(dice);
    const bool inside = dice.chance(50);
    const auto first = inside ? static_cast<std::uint32_t>(dice.in(1, program.op_count() - 2)) : 0U;
    const auto end =
        inside ? static_cast<std::uint32_t>(dice.in(first + 1, program.op_count())) : program.op_count();
    const SwapPathBound deaf(program, first, end, rates, {0, 0});
    rates.host = {true, 0_ns, Nanos{dice.in(0, 3)}, Nanos{dice.in(0, 2)}, dice.in(0, 3)};
    const SwapPathBound path(program, first, end, rates, {0, 0});
    const SwapBound bound = path.at(random_budget(dice, path));
    CHECK(bound.total >= deaf.at(bound.budget).total);
    raised += bound.total > deaf.at(bound.budget).total ? 1 : 0;
    Nanos sum{0};
    for (const ChainLink& link : bound.chain) sum += link.time;
    CHECK(sum == bound.total);
    const auto optimum = brute_force_swap_time(program, first, end, bound.budget, rates);
    (inside ? windows : whole).add(bound, optimum);
    // Over-tight: the host has not run ahead when the window begins.
    const HostClock clock(program);
    const std::int64_t spent = clock.spent(end - 1, rates.host) - clock.spent(first, rates.host);
    caught += inside && optimum && program.op_flags[end - 1] != 0 && optimum->value < spent ? 1 : 0;
  }
  check_tallies(whole, windows, 50);
  MESSAGE("the host raises ", raised, " bounds; what it spends in a window is no bound ", caught, " times");
  CHECK(raised > 500);
  CHECK(caught > 20);
}

TEST_CASE("moving single bytes does not beat the bound either") {
  Dice dice(5);
  Tally tally;
  double freedom = 0;
  int compared = 0;
  while (tally.instances < 300) {
    const Program program = tiny_program(dice, {4, 7, 3, 4});
    std::int64_t bytes = 0;
    for (const Bytes b : program.bytes) bytes += b.value;
    if (bytes > 8) continue;
    const SwapRates rates = random_rates(dice);
    const SwapPathBound path(program, 0, program.op_count(), rates, {0, 0});
    const SwapBound bound = path.at(random_budget(dice, path));
    if (bound.budget == path.required_peak()) continue;
    const Program split = split_into_bytes(program);
    CHECK(SwapPathBound(split, 0, split.op_count(), rates, {0, 0}).at(bound.budget).total == bound.total);
    const auto bytewise = brute_force_swap_time(split, 0, split.op_count(), bound.budget, rates);
    // Bytes can always move where an operator fits at all.
    REQUIRE(bytewise);
    tally.add(bound, bytewise);
    const auto whole = brute_force_swap_time(program, 0, program.op_count(), bound.budget, rates);
    // One byte takes a whole number of nanoseconds only at some rates; there splitting never costs time.
    const auto whole_ns = [](std::int64_t rate) { return 1'000'000'000 % rate == 0; };
    if (whole && whole_ns(rates.out) && whole_ns(rates.in)) {
      CHECK(*bytewise <= *whole);
      freedom += static_cast<double>(whole->value) / static_cast<double>(bytewise->value);
      ++compared;
    }
  }
  MESSAGE(tally.instances, " runs, ", tally.stalled, " with stalls; byte-wise optimum/bound mean ",
          tally.mean(), ", worst ", tally.worst, "; whole buffers / bytes ", freedom / compared);
  CHECK(tally.violations == 0);
  CHECK(tally.stalled > 150);
}

TEST_CASE("no schedule beats the bound where the directions slow each other down") {
  // Shares of the rates: time-sharing, worse, coupled evenly, one direction only, and a mild coupling.
  constexpr Ppm kShares[][2] = {{500'000, 500'000},   {250'000, 500'000},   {750'000, 750'000},
                                {1'000'000, 500'000}, {500'000, 1'000'000}, {834'000, 834'000}};
  Dice dice(4242);
  Tally tally;
  int raised = 0;
  while (tally.instances < 4000) {
    const Program program = tiny_program(dice);
    SwapRates rates = random_rates(dice);
    const auto& shares = kShares[dice.in(0, 5)];
    rates.out_beside_in = shares[0];
    rates.in_beside_out = shares[1];
    const bool inside = dice.chance(40);
    const auto first = inside ? static_cast<std::uint32_t>(dice.in(1, program.op_count() - 2)) : 0U;
    const auto end =
        inside ? static_cast<std::uint32_t>(dice.in(first + 1, program.op_count())) : program.op_count();
    const SwapPathBound path(program, first, end, rates, {0, 0});
    const SwapBound bound = path.at(random_budget(dice, path));
    if (bound.budget == path.required_peak() && dice.chance(80)) continue;
    const SwapBound apart =
        SwapPathBound(program, first, end, {rates.out, rates.in}, {0, 0}).at(bound.budget);
    CHECK(bound.total >= apart.total);
    raised += bound.total > apart.total ? 1 : 0;
    Nanos sum{0};
    for (const ChainLink& link : bound.chain) sum += link.time;
    CHECK(sum == bound.total);
    tally.add(bound, brute_force_swap_time(program, first, end, bound.budget, rates));
  }
  MESSAGE(tally.instances, " runs and windows, ", tally.stalled, " with stalls, ", raised,
          " with a higher bound than at independent rates; optimum/bound mean ", tally.mean(), ", worst ",
          tally.worst, ", ", tally.tight, " equal");
  CHECK(tally.violations == 0);
  CHECK(tally.stalled > 1000);
  CHECK(raised > 100);
}

TEST_CASE("no schedule beats the bound where copies slow kernels down; a bound for slower ones would be") {
  // Shares that keep times to few fractions of a nanosecond, or the search would not end.
  constexpr Ppm kShares[] = {500'000, 250'000, 1'000'000};
  constexpr Ppm kDuplex[] = {1'000'000, 500'000};
  Dice dice(777);
  Tally tally;
  int raised = 0, caught = 0;
  while (tally.instances < 2500) {
    const bool hidden = dice.chance(50);
    const Program program =
        hidden ? hidden_copies(dice) : tiny_program(dice, {5, 7, 4, dice.in(6, 16), dice.chance(25) ? 2 : 1});
    SwapRates rates{kRates[dice.in(0, 1)], kRates[dice.in(0, 1)]};
    rates.out_beside_in = kDuplex[dice.in(0, 1)];
    rates.in_beside_out = kDuplex[dice.in(0, 1)];
    const SwapRates apart = rates;
    rates.kernel_beside_out = kShares[dice.in(0, 2)];
    rates.kernel_beside_in = kShares[dice.in(0, 2)];
    const bool inside = !hidden && program.stream_count == 1 && dice.chance(40);
    const auto first = inside ? static_cast<std::uint32_t>(dice.in(1, program.op_count() - 2)) : 0U;
    const auto end =
        inside ? static_cast<std::uint32_t>(dice.in(first + 1, program.op_count())) : program.op_count();
    const SwapPathBound path(program, first, end, rates, {0, 0});
    const SwapBound bound = path.at(random_budget(dice, path));
    if (bound.budget == path.required_peak() && dice.chance(80)) continue;
    const Nanos before = SwapPathBound(program, first, end, apart, {0, 0}).at(bound.budget).total;
    CHECK(bound.total >= before);
    raised += bound.total > before ? 1 : 0;
    Nanos sum{0};
    for (const ChainLink& link : bound.chain) sum += link.time;
    CHECK(sum == bound.total);
    const auto optimum = brute_force_swap_time(program, first, end, bound.budget, rates);
    tally.add(bound, optimum);
    SwapRates slower = rates;  // over-tight: twice the loss
    for (Ppm* share : {&slower.kernel_beside_out, &slower.kernel_beside_in}) {
      *share = std::max<Ppm>(1, 2 * *share - kUnchanged);
    }
    const Nanos wrong = SwapPathBound(program, first, end, slower, {0, 0}).at(bound.budget).total;
    caught += optimum && *optimum < wrong ? 1 : 0;
  }
  MESSAGE(tally.instances, " runs and windows, ", tally.stalled, " slower than the spine, ", raised,
          " with a higher bound than beside free copies; optimum/bound mean ", tally.mean(), ", worst ",
          tally.worst, ", ", tally.tight, " equal; at twice the loss ", caught, " are too high");
  CHECK(tally.violations == 0);
  CHECK(tally.stalled > 1000);
  CHECK(raised > 500);
  CHECK(caught > 100);
}

TEST_CASE("hand-worked: a copy that hides behind a kernel costs it what the machine says") {
  // A (30 B) and B (30 B) are made, C (30 B) and D (30 B) later; 60 B fit. A and B must leave beside two
  // kernels of 40 ns that use one byte: at half speed beside copies out 60 B at 1 B/ns cost them 30 ns.
  ProgramBuilder b;
  const auto A = b.storage(30), B = b.storage(30), S = b.storage(1), C = b.storage(30), D = b.storage(30);
  b.op(1, {{A, kWrite | kCreate}, {B, kWrite | kCreate}, {S, kWrite | kCreate}});
  b.op(40, {{S, kRead}});
  b.op(40, {{S, kRead}});
  b.op(1, {{C, kWrite | kCreate}, {D, kWrite | kCreate}});
  b.op(1, {{A, kRead}, {B, kRead}});
  const Program program = b.finish();
  SwapRates rates{1'000'000'000, 60'000'000'000};
  const auto bound = [&](std::uint32_t end) {
    return SwapPathBound(program, 0, end, rates, {0, 0}).at(61_B).total;
  };
  CHECK(bound(4) == 82_ns);
  rates.kernel_beside_out = 500'000;
  CHECK(bound(4) == 111_ns);  // 59 B, if bytes could leave one by one
  CHECK(brute_force_swap_time(program, 0, 4, 61_B, rates) == 112_ns);
  const SwapBound whole = SwapPathBound(program, 0, 4, rates, {0, 0}).at(61_B);
  const auto lines = chain_lines(program, whole);
  REQUIRE(lines.size() == 3);
  CHECK(lines[1] ==
        "compute, slowed down by 59 B out, between the end of operator 0 and operator 3: >= 109 ns");
}

TEST_CASE("a copy out beside a copy in costs what the machine says, and the bound knows it") {
  // V comes back from before the first operator, X goes out after the second: 31 ns each alone. Side by side
  // at three quarters of their rates V is back after 1 + 30 / 0.75 ns, and X is out just as V has been used.
  ProgramBuilder b;
  const auto V = b.storage(31, true), first = b.storage(62), X = b.storage(31), second = b.storage(62);
  b.op(1, {{first, kWrite | kCreate}});
  b.op(1, {{X, kWrite | kCreate}});
  b.op(1, {{V, kRead}});
  b.op(1, {{second, kWrite | kCreate}});
  b.op(1, {{X, kRead}});
  const Program program = b.finish();
  const auto check = [&](SwapRates rates, Nanos optimum, Nanos at_least) {
    const Nanos bound = SwapPathBound(program, 0, 5, rates, {0, 0}).at(62_B).total;
    CHECK(brute_force_swap_time(program, 0, 5, 62_B, rates) == optimum);
    CAPTURE(bound.value);
    CHECK(bound <= optimum);
    CHECK(bound >= at_least);
  };
  constexpr std::int64_t kByte = 1'000'000'000;  // a second
  check({kByte, kByte}, 66_ns, 65_ns);
  check({kByte, kByte, 750'000, 750'000}, 76_ns, 75_ns);
  check({kByte, kByte, 500'000, 500'000}, 96_ns, 95_ns);
  check({kByte, kByte, 1'000'000, 500'000}, 82_ns, 80_ns);
  check({kByte, kByte, 500'000, 1'000'000}, 81_ns, 66_ns);  // shared edges begin where copies in do
}
