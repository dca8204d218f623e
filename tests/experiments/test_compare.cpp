#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/stats/comparison.hpp"
#include "experiments/stats/comparison_text.hpp"
#include "experiments/sweep/uncertainty.hpp"
#include "tests/support/shared.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::json;

void check_against(const Json& reference) {
  std::size_t exact = 0;
  for (const Json& one : reference.at("wilcoxon")) {
    const auto values = one.at("values").get<std::vector<double>>();
    CAPTURE(values.size());
    const WilcoxonResult r = wilcoxon_signed_rank(values);
    CHECK(r.exact == one.at("exact").get<bool>());
    exact += r.exact ? 1u : 0u;
    CHECK(r.statistic == doctest::Approx(one.at("statistic").get<double>()).epsilon(1e-12));
    CHECK(r.p == doctest::Approx(one.at("p").get<double>()).epsilon(1e-9));
  }
  CHECK(exact >= 30);
  for (const Json& one : reference.at("clopper_pearson")) {
    const Interval i = clopper_pearson(one.at("k"), one.at("n"), one.at("confidence"));
    CHECK(i.low == doctest::Approx(one.at("low").get<double>()).epsilon(1e-9));
    CHECK(i.high == doctest::Approx(one.at("high").get<double>()).epsilon(1e-9));
  }
  for (const Json& one : reference.at("holm")) {
    const auto adjusted = holm_adjust(one.at("p").get<std::vector<double>>());
    const auto expected = one.at("adjusted").get<std::vector<double>>();
    REQUIRE(adjusted.size() == expected.size());
    for (std::size_t i = 0; i < adjusted.size(); ++i) CHECK(adjusted[i] == doctest::Approx(expected[i]));
  }
  for (const Json& one : reference.at("quantile")) {
    const auto values = one.at("values").get<std::vector<double>>();
    CHECK(quantile(values, one.at("q")) == doctest::Approx(one.at("result").get<double>()).epsilon(1e-12));
  }
}

TEST_CASE("statistics agree with SciPy's, as frozen") {
  check_against(Json::parse(test::read_file(test::source_path("tests/experiments/scipy_reference.json"))));
}

TEST_CASE("statistics agree with SciPy's, run now") {
  const std::string command =
      "/usr/bin/python3 " + test::source_path("tests/python/scipy_reference.py") + " 2>/dev/null";
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  ::pclose(pipe);
  if (!text.starts_with("{")) {
    MESSAGE("skipped: SciPy is not installed for /usr/bin/python3");
    return;
  }
  check_against(Json::parse(text));
}

// Normal deviates without libm differences: the sum of twelve uniforms.
double normal(SplitMix64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random.next() >> 11) * 0x1p-53;
  return sum;
}

TEST_CASE("the interval covers the truth as often as it says") {
  SplitMix64 random(99);
  for (const std::size_t n : {8u, 20u}) {
    for (const bool skewed : {false, true}) {
      constexpr int kTrials = 1'000;
      int covered = 0;
      for (int t = 0; t < kTrials; ++t) {
        std::vector<double> values(n);
        for (double& v : values) {
          const double z = normal(random);
          v = skewed ? 0.02 * (z * z - 1) : 0.05 * z;  // both have mean zero
        }
        const Interval i = bootstrap_t_mean(values, 0.95, 400, static_cast<std::uint64_t>(t));
        covered += i.low <= 0 && 0 <= i.high ? 1 : 0;
      }
      CAPTURE(n);
      CAPTURE(skewed);
      MESSAGE("n=" << n << std::string(skewed ? " chi-square" : " normal") << ": covered " << covered
                   << " of " << kTrials);
      // Normal: within 2.5 % of the nominal 95 %. Chi-square with one degree of freedom, the hardest
      // textbook case: at least 85 % (percentile intervals reach about 80 % at n = 8).
      if (!skewed) {
        CHECK(covered >= 925);
        CHECK(covered <= 985);
      } else {
        CHECK(covered >= 850);
      }
    }
  }
}

RunRecord record(std::size_t index, const std::string& trace, const std::string& budget,
                 const std::string& policy, std::int64_t time, const std::string& status = "ok",
                 const std::string& sample = "nominal") {
  RunRecord r;
  r.index = index;
  r.key = std::to_string(index);
  r.status = status;
  r.factors = {{"trace", trace}, {"sample", sample}, {"budget", budget}, {"policy", policy}};
  if (status == "ok") r.metrics = {{"iter_time_ns", time}};
  return r;
}

// `traces` x 3 budgets; the candidate takes `ratio` of the baseline, with noise per trace.
std::vector<RunRecord> planted(std::size_t traces, double ratio, double noise, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<RunRecord> records;
  for (std::size_t t = 0; t < traces; ++t) {
    const double own = ratio * (1 + noise * normal(random));
    for (const char* budget : {"0.5x", "0.7x", "0.9x"}) {
      const double base = 1e8 * (1 + static_cast<double>(random.below(1000)) / 500);
      const double pair = own * (1 + noise / 4 * normal(random));
      const std::string trace = "t" + std::to_string(t);
      records.push_back(record(records.size(), trace, budget, "a", static_cast<std::int64_t>(base)));
      records.push_back(record(records.size(), trace, budget, "b", static_cast<std::int64_t>(base * pair)));
    }
  }
  return records;
}

Verdict verdict_of(const std::vector<RunRecord>& records, CompareOptions options = {}) {
  options.resamples = 2'000;
  return compare_policies(records, "a", {"b"}, options).front().verdict;
}

TEST_CASE("A/A is SAME; 3 % is found; less than the threshold is never BETTER") {
  CHECK(verdict_of(planted(12, 1.0, 0, 1)) == Verdict::same);
  std::size_t same = 0, found = 0, worse = 0, false_better = 0;
  constexpr std::uint64_t kTrials = 60;
  for (std::uint64_t seed = 1; seed <= kTrials; ++seed) {
    same += verdict_of(planted(20, 1.0, 0.005, seed)) == Verdict::same ? 1u : 0u;
    found += verdict_of(planted(20, 0.97, 0.01, seed)) == Verdict::better ? 1u : 0u;
    worse += verdict_of(planted(20, 1.03, 0.01, seed)) == Verdict::worse ? 1u : 0u;
    false_better += verdict_of(planted(20, 0.996, 0.01, seed)) == Verdict::better ? 1u : 0u;
  }
  MESSAGE("of " << kTrials << ": A/A SAME " << same << ", -3 % BETTER " << found << ", +3 % WORSE " << worse
                << ", -0.4 % called BETTER " << false_better);
  CHECK(same == kTrials);
  CHECK(found >= kTrials * 9 / 10);
  CHECK(worse >= kTrials * 9 / 10);
  CHECK(false_better == 0);
}

TEST_CASE("too little evidence is said to be so") {
  CHECK(verdict_of(planted(1, 0.8, 0.01, 3)) == Verdict::cannot_tell);
  CHECK(verdict_of(planted(5, 0.8, 0.01, 3)) == Verdict::cannot_tell);  // Wilcoxon cannot reject
  CHECK(verdict_of(planted(6, 0.8, 0.01, 3)) == Verdict::better);
  CHECK(verdict_of(planted(20, 0.99, 0.05, 3)) == Verdict::cannot_tell);
}

TEST_CASE("failures and missing partners are counted, and forbid a verdict") {
  std::vector<RunRecord> records = planted(10, 0.9, 0.005, 2);
  REQUIRE(verdict_of(records) == Verdict::better);
  records[1] = record(1, "t0", "0.5x", "b", 0, "infeasible");
  records[2].status = "timeout";
  records[4].status = records[5].status = "out_of_memory";
  records.pop_back();
  CompareOptions options;
  const Comparison c = compare_policies(records, "a", {}, options).front();
  CHECK(c.only_candidate_failed == 1);
  CHECK(c.only_baseline_failed == 1);
  CHECK(c.both_failed == 1);
  CHECK(c.unpaired == 1);
  CHECK(c.failures.size() == 3);
  CHECK(c.pairs.size() == 26);
  CHECK(c.verdict == Verdict::cannot_tell);
  options.ignore_failures = true;
  CHECK(compare_policies(records, "a", {}, options).front().verdict == Verdict::better);
}

TEST_CASE("pairs, means and texts by hand") {
  const std::vector<RunRecord> records{record(0, "x/t1.jsonl.gz", "0.5x", "a", 100),
                                       record(1, "x/t1.jsonl.gz", "0.5x", "b_1", 80),
                                       record(2, "x/t1.jsonl.gz", "0.7x", "a", 100),
                                       record(3, "x/t1.jsonl.gz", "0.7x", "b_1", 125),
                                       record(4, "t2", "0.5x", "a", 100),
                                       record(5, "t2", "0.5x", "b_1", 64)};
  CompareOptions options;
  const auto comparisons = compare_policies(records, "a", {"b_1"}, options);
  const Comparison& c = comparisons.front();
  REQUIRE(c.trace_ratios.size() == 2);
  CHECK(c.trace_ratios[0].second == doctest::Approx(1.0));
  CHECK(c.trace_ratios[1].second == doctest::Approx(0.64));
  CHECK(c.ratio == doctest::Approx(0.8));
  CHECK(c.better == 2);
  CHECK(c.worse == 1);
  const std::string text = comparison_text(comparisons, options, {true, 1});
  CHECK(text.find("worst: t1 budget=0.7x 1.250x (100 ns -> 125 ns)") != std::string::npos);
  CHECK(comparison_latex(comparisons, options).find("\\texttt{b\\_1} & 0.800") != std::string::npos);
  CHECK(comparison_markdown(comparisons, options).find("| `b_1` | CANNOT TELL | 0.800x |") !=
        std::string::npos);
  CHECK(Json::parse(comparison_json(comparisons, options)).at("candidates")[0].at("pairs").size() == 3);
  CHECK(comparison_text(compare_policies(records, "a", {"b_1"}, options), options, {true, 1}) == text);
  CHECK_THROWS_WITH_AS(compare_policies(records, "a", {"b_2"}, options),
                       doctest::Contains("did you mean 'b_1'"), Error);
  options.metric = "iter_time";
  CHECK_THROWS_WITH_AS(compare_policies(records, "a", {"b_1"}, options),
                       doctest::Contains("did you mean 'iter_time_ns'"), Error);
}

TEST_CASE("what was made from one recording is one trace") {
  std::vector<RunRecord> records;
  for (const char* trace : {"t1", "t1 | insert:rate=0.02", "t1 | skip_step@3", "t2"}) {
    records.push_back(record(records.size(), trace, "0.5x", "a", 100));
    records.push_back(record(records.size(), trace, "0.5x", "b", 50));
  }
  const Comparison c = compare_policies(records, "a", {"b"}, {}).front();
  CHECK(c.pairs.size() == 4);
  CHECK(c.traces == 2);
  CHECK(c.pairs[1].where == "| insert:rate=0.02");
}

TEST_CASE("sensitivity: how often the candidate is ahead, and which figure decides") {
  std::vector<RunRecord> records;
  const auto add = [&](const std::string& sample, std::int64_t a, std::int64_t b) {
    records.push_back(record(records.size(), "t", "0.5x", "a", a, "ok", sample));
    records.push_back(record(records.size(), "t", "0.5x", "b", b, "ok", sample));
  };
  add("nominal", 100, 90);
  for (int i = 1; i <= 8; ++i) add("draw-" + std::to_string(i), 100, i <= 6 ? 90 : 110);
  add("machine.links.bandwidth@p10", 100, 120);
  add("machine.links.bandwidth@p90", 100, 80);
  add("operator_time@p10", 100, 91);
  add("operator_time@p90", 100, 89);
  const Sensitivity s = sensitivity_of(records, "a", "b", {});
  CHECK(s.samples == 8);
  CHECK(s.candidate_wins == 6);
  CHECK(s.nominal_ratio == doctest::Approx(0.9));
  CHECK(s.low == doctest::Approx(0.9));
  CHECK(s.high == doctest::Approx(1.1));
  REQUIRE(s.effects.size() == 2);
  CHECK(s.effects[0].figure == "machine.links.bandwidth");
  CHECK(s.effects[0].low == doctest::Approx(1.2));
  CHECK(compare_policies(records, "a", {"b"}, {}).front().pairs.size() == 1);  // nominal only
  records[5].status = "timeout";
  CHECK(sensitivity_of(records, "a", "b", {}).left_out == 1);
}

}  // namespace
}  // namespace swaplab
