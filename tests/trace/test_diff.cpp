#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tests/trace/perturb_support.hpp"

namespace swaplab {
namespace {

using Tokens = std::vector<Token>;

// The textbook table, one cell at a time.
std::uint64_t slow_distance(const Tokens& a, const Tokens& b) {
  std::vector<std::uint64_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::uint64_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::uint64_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

Tokens random_tokens(std::mt19937_64& random, std::size_t length, Token alphabet) {
  Tokens tokens(length);
  for (Token& t : tokens) t = static_cast<Token>(random() % alphabet);
  return tokens;
}

// Edits that an alignment implies: a script keeps what is aligned, and between two kept elements it
// substitutes as many as it can.
std::uint64_t alignment_cost(const Tokens& a, const Tokens& b, const std::vector<std::uint32_t>& kept) {
  std::uint64_t cost = 0;
  std::size_t next_a = 0, gap_b = 0;
  const auto close = [&](std::size_t until_a) { cost += std::max(until_a - next_a, gap_b); };
  for (std::size_t j = 0; j < b.size(); ++j) {
    if (kept[j] == kNever) {
      ++gap_b;
      continue;
    }
    REQUIRE(kept[j] >= next_a);
    REQUIRE(a[kept[j]] == b[j]);
    close(kept[j]);
    next_a = kept[j] + 1;
    gap_b = 0;
  }
  close(a.size());
  return cost;
}

TEST_CASE("bit-parallel edit distance equals the table, across block borders") {
  std::mt19937_64 random(1);
  for (unsigned round = 0; round < 300; ++round) {
    const Tokens a = random_tokens(random, random() % 200, 1 + round % 7);
    Tokens b = random_tokens(random, random() % 200, 1 + round % 7);
    if (round % 3 == 0) b = a;  // near copies
    for (unsigned edit = 0; edit < round % 5 && !b.empty(); ++edit)
      b.erase(b.begin() + static_cast<int>(random() % b.size()));
    const std::uint64_t expected = slow_distance(a, b);
    CHECK(edit_distance(a, b) == expected);
    CHECK(edit_distance(b, a) == expected);
    CHECK(alignment_cost(a, b, align_sequences(a, b)) == expected);
  }
}

TEST_CASE("edit distance of the empty sequence and of itself") {
  const Tokens a = {1, 2, 3};
  CHECK(edit_distance(a, {}) == 3);
  CHECK(edit_distance({}, a) == 3);
  CHECK(edit_distance(a, a) == 0);
  CHECK(histogram_cosine_ppm({}, {}) == 1'000'000);
  CHECK(histogram_cosine_ppm(a, {}) == 0);
  CHECK(histogram_cosine_ppm(a, a) == 1'000'000);
}

TEST_CASE("cosine of counted vectors: (2,1) and (1,2) give 4/5") {
  CHECK(histogram_cosine_ppm(Tokens{0, 0, 1}, Tokens{1, 1, 0}) == 800'000);
  CHECK(histogram_cosine_ppm(Tokens{0, 0}, Tokens{1}) == 0);
}

TEST_CASE("a hundred thousand operators are compared") {
  std::mt19937_64 random(2);
  Tokens a = random_tokens(random, 100'000, 500);
  Tokens b = a;
  b.erase(b.begin() + 60'000, b.begin() + 60'040);
  b[10] += 1000;
  b[99'000] += 1000;
  CHECK(edit_distance(a, b) == 42);
}

SequenceDiff between(const Trace& trace, std::size_t a, std::size_t b) {
  return diff_operators(trace, operators_of(trace.iterations[a]), trace, operators_of(trace.iterations[b]));
}

// recording.md, section 3: the kinds of variation, on recordings of our own recorder (other sizes).
TEST_CASE("variation between recorded iterations") {
  const Trace& gpt = test::bundled("gpt_small");
  const Trace& varied = test::bundled("gpt_varied");
  const Trace& moe = test::bundled("moe");
  SUBCASE("steady iterations are equal") {
    const SequenceDiff d = between(gpt, 2, 3);
    CHECK(d.equal());
    CHECK(d.name_cosine_ppm == 1'000'000);
  }
  SUBCASE("the first iteration makes the optimizer state: three operators per parameter") {
    const SequenceDiff d = between(gpt, 0, 1);
    CHECK(d.name_edits == 156);
    CHECK(d.operators_b == 1235);
    CHECK(d.name_cosine_ppm > 930'000);
    CHECK(d.name_cosine_ppm < 950'000);
  }
  SUBCASE("the name cosine is blind to another sequence length") {
    const SequenceDiff d = between(varied, 6, 7);  // both train; the lengths go round 64, 128, 96
    CHECK(d.name_edits == 0);
    CHECK(d.name_cosine_ppm == 1'000'000);
    CHECK(d.signature_edits > 500);
    CHECK(d.signature_cosine_ppm < 950'000);
    CHECK(d.changed_bytes > Bytes{0});
  }
  SUBCASE("a skipped step") {
    REQUIRE(varied.iterations[3].step_skipped);
    const SequenceDiff d = between(varied, 1, 3);
    CHECK(d.name_cosine_ppm > 800'000);
    CHECK(d.name_cosine_ppm < 880'000);
  }
  SUBCASE("validation after training") {
    REQUIRE(varied.iterations[2].kind == IterationKind::validation);
    const SequenceDiff d = between(varied, 1, 2);
    CHECK(d.name_cosine_ppm > 400'000);
    CHECK(d.name_cosine_ppm < 600'000);
  }
  SUBCASE("routing changes hundreds of operators and hardly the cosine") {
    const SequenceDiff d = between(moe, 2, 3);
    CHECK(d.name_edits > 50);
    CHECK(d.name_cosine_ppm > 999'000);
    CHECK(d.signature_edits > d.name_edits);
  }
}

}  // namespace
}  // namespace swaplab
