// Every step of the generator on numbers worked by hand.
#include <doctest/doctest.h>

#include <algorithm>

#include "policy/chameleon/generator.hpp"
#include "policy/chameleon/need_tree.hpp"
#include "policy/chameleon/params.hpp"
#include "policy/chameleon/profile.hpp"
#include "trace/error.hpp"

using namespace swaplab;
using namespace swaplab::chameleon;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

// Operators as a text, one letter each: I F B O, "|" starts the next micro-batch. 1 s per operator.
IterationProfile stages_of(const std::string& text) {
  IterationProfile p;
  p.names = {"op", "attention"};
  std::int32_t micro_batch = 1;
  for (const char c : text) {
    if (c == '|') {
      ++micro_batch;
      continue;
    }
    const StageType type = c == 'F'   ? StageType::forward
                           : c == 'B' ? StageType::backward
                           : c == 'O' ? StageType::optimizer
                                      : StageType::init;
    p.type.push_back(type);
    p.micro_batch.push_back(type == StageType::forward || type == StageType::backward ? micro_batch : 0);
    p.name.push_back(0);
    p.active.push_back(Bytes{0});
    p.tensor_begin.push_back(0);
    p.duration += Nanos{1'000'000'000};
  }
  return p;
}

// Uses of tensors: rows[tensor] lists operators.
void set_uses(IterationProfile& p, const std::vector<std::vector<std::uint32_t>>& rows) {
  p.tensors.clear();
  p.tensor_begin.assign(1, 0);
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    for (std::uint32_t t = 0; t < rows.size(); ++t) {
      if (std::find(rows[t].begin(), rows[t].end(), op) != rows[t].end()) p.tensors.push_back(t);
    }
    p.tensor_begin.push_back(static_cast<std::uint32_t>(p.tensors.size()));
  }
}

GeneratorParams target(std::int64_t bytes, std::int64_t layers) {
  GeneratorParams g;
  g.n_layers = layers;
  g.target_mode = true;
  g.target_memory = Bytes{bytes};
  g.tensor_size_filter = Bytes{1};
  g.d2h_mib_per_s = g.h2d_mib_per_s = 1;  // a copy of n MiB takes n seconds
  return g;
}

}  // namespace

TEST_CASE("step 1 and 2: operator times and logical layers") {
  // 4 blocks: (10 div 4 + 1) * 4 = 12 layers; 30 operators: boundaries at multiples of 2.
  const auto boundaries = layer_boundaries(30, 4);
  REQUIRE(boundaries.size() == 11);
  CHECK(boundaries.front() == 2);
  CHECK(boundaries.back() == 22);
  CHECK(layer_boundaries(30, 32).size() == 31);  // (0 + 1) * 32
  CHECK(layer_boundaries(3, -1) == std::vector<std::int64_t>{0, 1, 2});
  // 2 F per layer but 3 in the first and the rest in the last: 24 F, n_layers 1 -> 11 layers of 2.
  const SwapPlan plan = generate_plan(stages_of("I" + std::string(24, 'F') + "B"), target(1, 1));
  REQUIRE(plan.stages.size() == 1 + 11 + 1);
  CHECK(plan.stages[0].name() == "INIT.0.0");
  CHECK(plan.stages[1].name() == "FWD.1.1");
  CHECK(plan.stages[1].op_count == 3);
  CHECK(plan.stages[2].op_count == 2);
  CHECK(plan.stages[11].op_count == 3);  // operators 21, 22, 23
  // One second per operator; a stage lasts from the end of its first to the end of its last operator.
  CHECK(plan.stages[1].start_s == 2.0);
  CHECK(plan.stages[1].end_s == 4.0);
  CHECK(plan.stages[1].left_s == 2.0);
  CHECK(plan.stages[0].left_s == 0.0);
  // One backward operator, fewer than layers: the first one is layer 1.
  CHECK(plan.stages[12].name() == "BWD.1.1");
}

TEST_CASE("step 2: boundaries of micro-batch 1 serve the others") {
  const SwapPlan plan =
      generate_plan(stages_of(std::string(22, 'F') + "B|" + std::string(30, 'F')), target(1, 1));
  const auto named = [&](const std::string& name) {
    return *std::find_if(plan.stages.begin(), plan.stages.end(),
                         [&](const Stage& s) { return s.name() == name; });
  };
  CHECK(named("FWD.1.11").op_count == 1);  // 22 = 3 + 9 * 2 + 1
  CHECK(named("FWD.2.1").op_count == 3);
  CHECK(named("FWD.2.11").op_count == 9);  // the longer one has a longer last layer
}

TEST_CASE("step 3 to 5: curve, target, reduction list") {
  IterationProfile p = stages_of("IFFBBO");
  const std::int64_t active[] = {90, 40, 80, 70, 30, 95};
  for (std::uint32_t op = 0; op < 6; ++op) p.active[op] = Bytes{active[op]};
  GeneratorParams g = target(50, 1);
  SwapPlan plan = generate_plan(p, g);
  CHECK(plan.max_memory == Bytes{80});  // FWD and BWD only
  REQUIRE(plan.needs.size() == 2);      // INIT is skipped, OPTIM ends the list
  CHECK(plan.needs[0].op == 2);
  CHECK(plan.needs[0].need == Bytes{30});
  CHECK(plan.needs[1].need == Bytes{20});
  CHECK_FALSE(plan.reached);
  g.target_mode = false;
  g.reduction_memory = Bytes{10};
  CHECK(generate_plan(p, g).target_memory == Bytes{70});
  p.step_out_of_memory = true;
  g.redundant_memory = Bytes{25};
  CHECK(generate_plan(p, g).target_memory == Bytes{70});  // 95 over all operators - 25
  p.step_out_of_memory = false;
  p.swaps.push_back({2, true, Bytes{5}, false, 1, 2});
  plan = generate_plan(p, g);
  CHECK(plan.target_memory == Bytes{95});  // swaps, no failed allocation
  // The swap hides 5 bytes from operator 2 on, until its peak has ended at operator 4.
  CHECK(plan.curve == std::vector<Bytes>{Bytes{90}, Bytes{40}, Bytes{85}, Bytes{75}, Bytes{35}, Bytes{95}});
  p.swaps.push_back({3, false, Bytes{5}, false, 2, 3});  // it returns
  CHECK(generate_plan(p, g).curve[3] == Bytes{70});
  // A forced swap-out: the reserve grows by the adjustment.
  p.swaps[0].out_of_memory = true;
  p.step_out_of_memory = true;
  g.adjust_memory = Bytes{7};
  plan = generate_plan(p, g);
  CHECK(plan.redundant_memory == Bytes{32});
  CHECK(plan.target_memory == Bytes{95 - 32});
}

TEST_CASE("step 6: one peak per FWD..BWD run; a BWD at the end closes none") {
  const auto peaks_of = [](const std::string& text) {
    IterationProfile p = stages_of(text);
    std::fill(p.active.begin(), p.active.end(), Bytes{10});
    return generate_plan(p, target(5, 1)).peaks;
  };
  const auto two = peaks_of("IFFB|FBBO");
  REQUIRE(two.size() == 2);
  CHECK(two[0].first_op == 1);
  CHECK(two[0].last_op == 3);
  CHECK(two[1].first_op == 4);
  CHECK(two[1].last_op == 6);
  CHECK(two[1].first_need_op == 4);
  CHECK(two[1].last_need_op == 6);
  CHECK(peaks_of("FFBB").empty());
  CHECK(peaks_of("FO").empty());
}

TEST_CASE("step 7 to 9: candidates, coverage, score") {
  // 22 F then 22 B then O: stages FWD.1.1 (op 0..2), .2 (3, 4), ... .11 (21); BWD.1.1 (22..24) ...
  IterationProfile p = stages_of(std::string(22, 'F') + std::string(22, 'B') + "OO");
  p.storages = {{10, Bytes{8 * kMiB}, TensorKind::other},  {11, Bytes{1 * kMiB}, TensorKind::other},
                {12, Bytes{8 * kMiB}, TensorKind::shared}, {13, Bytes{8 * kMiB}, TensorKind::optimizer},
                {14, Bytes{8 * kMiB}, TensorKind::model},  {15, Bytes{8 * kMiB}, TensorKind::other}};
  set_uses(p, {{0, 40}, {4, 5, 30, 41}, {0, 40}, {44, 45}, {1, 40, 45}, {3}});
  for (const std::uint32_t op : {20U, 21U, 22U, 23U}) p.active[op] = Bytes{100 * kMiB};
  const SwapPlan plan = generate_plan(p, target(99 * kMiB, 1));
  // 12 is shared, 14 is used in OPTIM, 15 by one operator only.
  REQUIRE(plan.candidates.size() == 3);
  const Candidate &large = plan.candidates[0], &small = plan.candidates[1], &state = plan.candidates[2];
  CHECK(large.out_op == 0);
  CHECK(large.in_op == 40);
  CHECK(small.out_op == 5);
  CHECK(small.in_op == 30);
  CHECK(plan.stages[state.out_stage].name() == "FWD.1.1");
  CHECK(plan.stages[state.in_stage].name() == "OPTIM.0.0");
  CHECK(large.coverage.count() == 4);
  CHECK(small.coverage.count() == 4);
  // Coverage is equal, so only sizes count: cube roots of 8 MiB and 1 MiB are 2 : 1.
  CHECK(large.score == doctest::Approx(2.0));
  CHECK(small.score == doctest::Approx(0.0));
  CHECK(cube_root(27.0) == doctest::Approx(3.0).epsilon(1e-15));
  CHECK(cube_root(static_cast<double>(27LL << 30)) == doctest::Approx(3072.0).epsilon(1e-15));
}

TEST_CASE("step 10 to 13: selection, delay, placement, free points") {
  // 33 F and 33 B, 11 layers of 3 (the first of 4, the last of 2): budgets 3, 2, ..., 2, 1 seconds.
  IterationProfile p = stages_of(std::string(33, 'F') + std::string(33, 'B') + "O");
  for (std::uint32_t op = 30; op < 36; ++op) p.active[op] = Bytes{10 * kMiB};
  p.storages = {{1, Bytes{2 * kMiB}, TensorKind::other},
                {2, Bytes{2 * kMiB}, TensorKind::other},
                {3, Bytes{2 * kMiB}, TensorKind::other}};
  // Out of FWD.1.1 and back for BWD.1.9 (operators 58, 59, 60), .10, .11.
  set_uses(p, {{3, 59}, {2, 62}, {1, 65}});
  const SwapPlan plan = generate_plan(p, target(5 * kMiB, 1));
  // Need 5 MiB. Round 1: all three pass, because budgets stand still within a round: 2 s <= 3 s.
  REQUIRE(plan.rounds.size() == 1);
  CHECK(plan.rounds[0].need_before == Bytes{5 * kMiB});
  CHECK(plan.rounds[0].covering == 3);
  CHECK(plan.rounds[0].selected == 3);
  CHECK_FALSE(plan.rounds[0].with_delay);
  CHECK(plan.reached);
  CHECK(plan.stages[0].left_s == 3.0 - 3 * 2.0);  // jointly they delay after all
  const Selection& first = plan.selected[0];
  CHECK(plan.stages[first.in_stage_use].name() == "BWD.1.9");
  CHECK(plan.stages[first.in_stage].name() == "BWD.1.8");
  CHECK(plan.stages[first.in_stage].left_s == 2.0 - 2.0);
  // Sorted by the operator after which they leave: ids 3, 2, 1.
  CHECK(plan.selected[plan.emitted[0]].tensor == 2);
  CHECK(plan.selected[plan.emitted[2]].tensor == 0);
  // FWD.1.1 starts at 1 s; the copies end at 3, 5, 7 s. Stages end at 4, 7, 10: the third copy ends with
  // FWD.1.2, so the first stage to end after it is FWD.1.3. Bytes are free 4 stages later.
  CHECK(plan.selected[plan.emitted[0]].free_stage == 0 + 4);
  CHECK(plan.selected[plan.emitted[1]].free_stage == 1 + 4);
  CHECK(plan.selected[plan.emitted[2]].free_stage == 2 + 4);
}

TEST_CASE("step 10 and 12: with delay, one at a time, placed where the link catches up") {
  IterationProfile p = stages_of(std::string(33, 'F') + std::string(33, 'B') + "O");
  for (std::uint32_t op = 30; op < 36; ++op) p.active[op] = Bytes{10 * kMiB};
  // 5 s do not fit into any stage: no candidate is without delay.
  p.storages = {{1, Bytes{5 * kMiB}, TensorKind::other}, {2, Bytes{5 * kMiB}, TensorKind::other}};
  set_uses(p, {{3, 59}, {2, 62}});
  const SwapPlan plan = generate_plan(p, target(3 * kMiB, 1));
  REQUIRE(plan.rounds.size() == 2);
  CHECK(plan.rounds[0].selected == 1);
  CHECK(plan.rounds[0].with_delay);
  CHECK(plan.rounds[1].with_delay);
  CHECK(plan.selected[0].delayed);
  // No stage ever has more than 5 s: it comes back in the stage before its use.
  CHECK(plan.selected[0].in_stage == plan.selected[0].in_stage_use - 1);
  CHECK(plan.reached);
  // One layer per direction, as published at HEAD: coverage 0, nothing is ever selected.
  GeneratorParams single = target(3 * kMiB, 1);
  single.layer_rule = LayerRule::single;
  const SwapPlan wide = generate_plan(p, single);
  CHECK(wide.selected.empty());
  CHECK_FALSE(wide.reached);
}

TEST_CASE("v2: pattern layers") {
  const auto starts = [](const std::string& text, std::int64_t count) {
    std::vector<std::uint32_t> names;
    std::vector<std::uint8_t> attention;
    for (const char c : text) {
      names.push_back(static_cast<std::uint32_t>(c));
      attention.push_back(c == 'A' ? 1 : 0);
    }
    return pattern_layer_starts(names, attention, count);
  };
  CHECK(starts("xpAqpAqpAqy", 3) == std::vector<std::int64_t>{4, 7});
  CHECK(starts("AqAqAq", 3) == std::vector<std::int64_t>{2, 4});
  CHECK(starts("pAqxpAqypAqz", 3) == std::vector<std::int64_t>{4, 8});
  CHECK(starts("pAq", 1).empty());                                // one layer: nothing to start
  CHECK(starts("pqpq", 2).empty());                               // no attention operator
  CHECK(starts("pAqpAqpAq", 2) == std::vector<std::int64_t>{3});  // "pAqp", overlapping itself
  CHECK(starts("", 1).empty());
}

TEST_CASE("v2: pattern layers against counting every sequence") {
  // Exhaustive reference: the definition, tried length by length and position by position.
  const auto slow = [](const std::vector<std::uint32_t>& names, const std::vector<std::uint8_t>& attention,
                       std::size_t count) {
    const std::size_t n = names.size();
    for (std::size_t length = n / count; length > 0; --length) {
      for (std::size_t at = 0; at + length <= n; ++at) {
        if (std::find(attention.begin() + static_cast<std::ptrdiff_t>(at),
                      attention.begin() + static_cast<std::ptrdiff_t>(at + length),
                      1) == attention.begin() + static_cast<std::ptrdiff_t>(at + length)) {
          continue;
        }
        std::vector<std::int64_t> found;
        for (std::size_t other = 0; other + length <= n; ++other) {
          if (std::equal(names.begin() + static_cast<std::ptrdiff_t>(at),
                         names.begin() + static_cast<std::ptrdiff_t>(at + length),
                         names.begin() + static_cast<std::ptrdiff_t>(other))) {
            found.push_back(static_cast<std::int64_t>(other));
          }
        }
        if (found.size() == count) {
          found.erase(found.begin());
          return found;
        }
      }
    }
    return std::vector<std::int64_t>{};
  };
  std::uint64_t state = 7;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::uint32_t> names;
    std::vector<std::uint8_t> attention;
    const auto next = [&] { return (state = state * 6364136223846793005ULL + 1442695040888963407ULL) >> 33; };
    const std::size_t n = 1 + next() % 30;
    const std::uint32_t letters = 1 + static_cast<std::uint32_t>(next() % 4);
    for (std::size_t i = 0; i < n; ++i) names.push_back(static_cast<std::uint32_t>(next() % letters));
    for (const std::uint32_t name : names) attention.push_back(name == 0 ? 1 : 0);
    const std::size_t count = 1 + next() % std::min<std::size_t>(n, 5);
    CHECK(pattern_layer_starts(names, attention, static_cast<std::int64_t>(count)) ==
          slow(names, attention, count));
  }
}

TEST_CASE("need tree against a plain list") {
  std::uint64_t state = 3;
  const auto next = [&] { return (state = state * 6364136223846793005ULL + 1442695040888963407ULL) >> 33; };
  for (int round = 0; round < 200; ++round) {
    std::vector<NeedEntry> needs(1 + next() % 40);
    for (NeedEntry& entry : needs) entry.need = Bytes{static_cast<std::int64_t>(next() % 20)};
    NeedTree tree(needs);
    for (int step = 0; step < 20; ++step) {
      const auto begin = static_cast<std::uint32_t>(next() % needs.size());
      const auto end = begin + static_cast<std::uint32_t>(next() % (needs.size() - begin + 1));
      const auto amount = static_cast<std::int64_t>(next() % 9) - 6;
      for (std::uint32_t i = begin; i < end; ++i) needs[i].need += Bytes{amount};
      tree.add(begin, end, amount);
      if (begin < end) {
        const auto at = std::max_element(needs.begin() + begin, needs.begin() + end,
                                         [](const auto& a, const auto& b) { return a.need < b.need; });
        CHECK(tree.first_maximum(begin, end).entry == at - needs.begin());
        CHECK(tree.first_maximum(begin, end).need == at->need.value);
        CHECK(tree.at(begin) == needs[begin].need.value);
      }
    }
  }
}

TEST_CASE("profiles that do not fit together are refused") {
  IterationProfile p = stages_of("FB");
  p.storages = {{5, Bytes{1}, TensorKind::other}, {5, Bytes{1}, TensorKind::other}};
  CHECK_THROWS_AS(generate_plan(p, GeneratorParams{}), Error);
  p.storages.clear();
  p.tensors = {3};
  CHECK_THROWS_AS(generate_plan(p, GeneratorParams{}), Error);
  CHECK_THROWS_AS(generate_plan(IterationProfile{}, GeneratorParams{}), Error);
}

TEST_CASE("parameters: public keys, shares of the budget, suggestions") {
  const ChameleonParams p =
      parse_chameleon("chameleon:n_layers=4,tensor_size_filter=64KiB,duration_s=0.006187");
  CHECK(p.n_layers == 4);
  CHECK(p.duration_ns == 6'187'000);
  const GeneratorParams g = generator_params(p, Bytes{64LL << 30});
  CHECK(g.tensor_size_filter == Bytes{65536});
  CHECK(g.redundant_memory == Bytes{2LL << 30});  // 3.125 % of 64 GiB
  const GeneratorParams half = generator_params(parse_chameleon("chameleon"), Bytes{32LL << 30});
  CHECK(half.redundant_memory == Bytes{1LL << 30});
  const GeneratorParams published =
      generator_params(parse_chameleon("chameleon:adjust_memory=1MiB,preset=public"), Bytes{1});
  CHECK(published.tensor_size_filter == Bytes{20LL << 20});
  CHECK(published.adjust_memory == Bytes{1LL << 20});  // explicit values win wherever they stand
  CHECK_THROWS_WITH_AS(parse_chameleon("chameleon:n_layer=4"), doctest::Contains("did you mean 'n_layers'"),
                       Error);
  CHECK_THROWS_AS(parse_chameleon("chameleon:n_layers"), Error);
  CHECK_THROWS_AS(parse_chameleon("chameleon:redundant_memory=2"), Error);
  CHECK_THROWS_AS(parse_chameleon("chameleon:duration_s=0.0000000001"), Error);
  CHECK_THROWS_AS(parse_chameleon("lru"), Error);
  // Every parameter prints what it would parse again.
  for (const auto& row : chameleon_parameters()) {
    ChameleonParams copy;
    CHECK(row.set(copy, row.get(ChameleonParams{})) == "");
    CHECK(row.get(copy) == row.get(ChameleonParams{}));
  }
}
