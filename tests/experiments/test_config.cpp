#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "experiments/sweep/factors.hpp"
#include "experiments/sweep/machine_override.hpp"
#include "sim/machine_io.hpp"
#include "tests/experiments/sweep_cases.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using test::plan_of;

std::string with(const std::string& more) {
  return "schema: swaplab/sweep@1\nname: t\nparameters:\n  trace: " + test::bundled_trace("gpt_small") +
         "\n  policy: lru\n" + more;
}

std::string error_of(const std::string& text) {
  try {
    plan_of(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("malformed sweep files: one line each, with place and suggestion") {
  const std::string trace = test::bundled_trace("gpt_small");
  struct Case {
    std::string text, place, says;
  };
  const std::vector<Case> cases{
      {with("polcy: lru\n"), "test.yaml:6", "unknown key"},
      {with("  buget: 0.5x\n"), "test.yaml:6", "did you mean 'budget'"},
      {with("  budget: 0.5\n"), "test.yaml:6", "share of the peak (0.5x)"},
      {with("  budget: [0.5x, 0.6x]\n"), "test.yaml:6", "{values: [...]}"},
      {with("  budget: {values: []}\n"), "test.yaml:6", "the list is empty"},
      {with("  budget: {values: [0.5x, 0.5x]}\n"), "test.yaml:6", "listed twice"},
      {with("  budget: {range: {start: 0.5x, stop: 16GiB, points: 3}}\n"), "test.yaml:6", "both be factors"},
      {with("  budget: {range: {start: 0.9x, stop: 0.5x, points: 3}}\n"), "test.yaml:6",
       "stop is below start"},
      {with("  budget: {range: {start: 0.3x, stop: 0.5x}}\n"), "test.yaml:6", "missing key 'points'"},
      {with("  machine: h100-pcie4\n"), "test.yaml:6", "did you mean 'h100-pcie5'"},
      {with("  machine.links.h2d.bandwith: 2x\n"), "test.yaml:6", "did you mean"},
      {with("  machine.links.h2d.bandwidth: 24\n"), "test.yaml:6", "24"},
      {with("  machine.hbm.bandwidth: 0 GB/s\n"), "test.yaml:6", "above 0"},
      {with("  times: tracee\n"), "test.yaml:6", "did you mean 'trace'"},
      {with("  iterations: 0\n"), "test.yaml:6", "integer from 1"},
      {with("  alloc_conf: \"expandable_segment:True\"\n"), "test.yaml:6", "expandable_segment"},
      {with("  seed: {values: [1, 2]}\n"), "test.yaml:6", "nothing in these runs is random"},
      {with("method: gird\n"), "test.yaml:6", "did you mean 'grid'"},
      {with("method: zip\n").insert(0, ""), "", ""},  // fine: one run
      {with("  budget: {values: [0.5x, 0.6x]}\n  iterations: {values: [2, 3, 4]}\nmethod: zip\n"),
       "test.yaml", "method zip"},
      {with("runs: [{budget: 0.5x}]\n"), "test.yaml:6", "only method list"},
      {with("exclude: [{budget: 0.5x}]\n"), "test.yaml:6", "matches no run"},
      {with("exclude: [{}]\n"), "test.yaml:6", "empty exclusion"},
      {with("exclude: [{policy: lru}]\n"), "test.yaml", "every run is excluded"},
      {with("baseline: lry\n"), "test.yaml:6", "did you mean 'lru'"},
      {with("metric: iter_time\n"), "test.yaml:6", "did you mean 'iter_time_ns'"},
      {with("threshold: 1 percent\n"), "test.yaml:6", "fraction"},
      {with("limits: {time: 10}\n"), "test.yaml:6", "limits.time"},
      {with("limits: {tmie: 10 s}\n"), "test.yaml:6", "did you mean 'time'"},
      {with("bounds: maybe\n"), "test.yaml:6", "neither yes nor no"},
      {with("run_cap: many\n"), "test.yaml:6", "not an integer"},
      {with("uncertainty: {samples: 3, figures: {machine.links.bandwidth: {distribution: gauss}}}\n"),
       "test.yaml:6", "unknown distribution"},
      {with("uncertainty: {samples: 3, figures: {operator_tiem: {distribution: normal, deviation: 0.1x}}}\n"),
       "test.yaml:6", "operator_time"},
      {with("uncertainty: {figures: {operator_time: {distribution: normal, deviation: 0.1x}}}\n"),
       "test.yaml:6", "asks for nothing"},
      {"schema: swaplab/sweep@2\nname: t\n", "test.yaml:1", "expected swaplab/sweep@1"},
      {"schema: swaplab/sweep@1\nname: a/b\n", "test.yaml:2", "letters, digits"},
      {"schema: swaplab/sweep@1\nname: t\nparameters: {policy: lru}\n", "test.yaml", "missing 'trace'"},
      {"schema: swaplab/sweep@1\nname: t\nparameters: {trace: nowhere.jsonl, policy: lru}\n", "test.yaml:3",
       "cannot be read"},
      {"schema: swaplab/sweep@1\nname: t\nparameters: {trace: {glob: \"nowhere/*.gz\"}, policy: lru}\n",
       "test.yaml:3", "no file matches"},
      {"schema: swaplab/sweep@1\nname: t\nparameters: {trace: " + trace + ", policy: lruu}\n", "test.yaml:3",
       "did you mean 'lru'"},
      {"schema: swaplab/sweep@1\nname: t\nparameters: {trace: " + trace +
           ", policy: \"lru:min_byte=1MiB\"}\n",
       "test.yaml:3", "did you mean 'min_bytes'"},
      {"schema: swaplab/sweep@1\nname: t\nparameters: {trace: " + trace +
           ", policy: {name: lru, min_bytes: 1}}\n",
       "test.yaml:3", "bytes with a unit"},
      {"schema: swaplab/sweep@1\nname: t\nname: u\n", "test.yaml:3", "stands twice"},
      {"schema: swaplab/sweep@1\nname: [a\n", "test.yaml", "not readable as YAML"},
      {"- a\n", "test.yaml:1", "expected a mapping"},
      {"", "test.yaml:1", "expected a mapping"},
  };
  std::size_t refused = 0;
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const std::string error = error_of(c.text);
    if (c.says.empty()) {
      CHECK(error.empty());
      continue;
    }
    ++refused;
    CAPTURE(error);
    CHECK(error.starts_with(c.place));
    CHECK(error.find(c.says) != std::string::npos);
    if (c.says.find("lru'") == std::string::npos && error.find("parameters:") == std::string::npos)
      CHECK(error.find('\n') == std::string::npos);
  }
  CHECK(refused >= 40);
}

TEST_CASE("the resolved configuration reads back to itself and to the same runs") {
  const SweepPlan plan = plan_of(with(
      "  budget: {range: {start: 0.4x, stop: 0.6x, points: 3}}\n  machine.links.bandwidth: {values: [1x, "
      "20GB/s]}\n"
      "exclude: [{budget: 0.5x, machine.links.bandwidth: 1x}]\nlimits: {time: 5 s, memory: 1 GiB}\n"
      "uncertainty: {samples: 2, one_at_a_time: yes, figures: {operator_time: {distribution: triangular, "
      "low: 0.9x, mode: 1x, high: 1.2x}}}\n"));
  CHECK(plan.runs.size() == (3 * 2 - 1) * 5);
  CHECK(plan.excluded == 1);
  const std::string text = resolved_config_json(plan.config);
  const SweepPlan again = plan_of(text);
  CHECK(resolved_config_json(again.config) == text);
  REQUIRE(again.runs.size() == plan.runs.size());
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    CHECK(again.runs[i].key == plan.runs[i].key);
    CHECK(again.runs[i].factors == plan.runs[i].factors);
  }
  CHECK(again.identity == plan.identity);
}

TEST_CASE("overrides of the command line") {
  const SweepPlan plan =
      plan_of(with(""), {"parameters.budget={values: [0.5x, 0.6x]}",
                         "parameters.machine.links.h2d.bandwidth=30GB/s", "name=other", "limits.time=3 s"});
  CHECK(plan.config.name == "other");
  CHECK(plan.config.time_limit == Nanos{3'000'000'000});
  REQUIRE(plan.runs.size() == 2);
  CHECK(plan.runs[1].factor("machine.links.h2d.bandwidth") == "30GB/s");
  CHECK_THROWS_AS(plan_of(with(""), {"budget"}), Error);
  CHECK_THROWS_AS(plan_of(with(""), {"name.x=1"}), Error);
}

TEST_CASE("methods: grid, zip, list and random") {
  const std::string two = "  budget: {values: [0.5x, 0.6x, 0.7x]}\n  iterations: {values: [2, 3, 4]}\n";
  CHECK(plan_of(with(two)).runs.size() == 9);
  const SweepPlan zip = plan_of(with(two + "method: zip\n"));
  REQUIRE(zip.runs.size() == 3);
  for (const PlannedRun& run : zip.runs) {
    const bool pair = (run.factor("budget") == "0.5x" && run.factor("iterations") == "2") ||
                      (run.factor("budget") == "0.6x" && run.factor("iterations") == "3") ||
                      (run.factor("budget") == "0.7x" && run.factor("iterations") == "4");
    CHECK(pair);
  }
  const SweepPlan list =
      plan_of(with("method: list\nruns: [{budget: 0.5x}, {policy: size, iterations: 3}]\n"));
  REQUIRE(list.runs.size() == 2);
  CHECK(list.runs[0].factor("policy") == "lru");
  CHECK(list.runs[1].factor("policy") == "size");
  CHECK(list.runs[1].factor("budget") == "0.6x");
  const SweepPlan random = plan_of(with(two + "method: random\nsamples: 4\n"));
  CHECK(random.runs.size() == 4);
  CHECK(plan_of(with(two + "method: random\nsamples: 4\n")).runs[2].key == random.runs[2].key);
  CHECK(plan_of(with(two + "method: random\nsamples: 100\n")).runs.size() == 9);
  CHECK(error_of(with(two + "run_cap: 8\n")).find("9 runs, more than the run_cap of 8") != std::string::npos);
}

TEST_CASE("ranges end exactly and stay exact in between") {
  const auto values = [](const std::string& range) {
    std::vector<std::string> texts;
    const SweepPlan plan = plan_of(with("  budget: {range: " + range + "}\n"));
    for (const PlannedRun& run : plan.runs) texts.push_back(run.factor("budget"));
    return texts;
  };
  CHECK(values("{start: 0.5x, stop: 0.9x, points: 5}") ==
        std::vector<std::string>{"0.5x", "0.6x", "0.7x", "0.8x", "0.9x"});
  CHECK(values("{start: 1GiB, stop: 3GiB, points: 3}") == std::vector<std::string>{"1GiB", "2GiB", "3GiB"});
  CHECK(values("{start: 0.1x, stop: 1.6x, points: 3, scale: log}") ==
        std::vector<std::string>{"0.1x", "0.4x", "1.6x"});
}

TEST_CASE("the JSON Schema names every key that the reader takes, and no other") {
  const auto schema = nlohmann::json::parse(sweep_json_schema());
  CHECK(schema.at("additionalProperties") == false);
  std::set<std::string> parameters;
  for (const auto& [key, value] : schema.at("properties").at("parameters").at("properties").items())
    parameters.insert(key);
  std::set<std::string> known;
  for (const FactorKind& kind : factor_kinds()) known.insert(kind.name);
  for (const OverridableFigure& figure : overridable_figures()) known.insert("machine." + figure.path);
  CHECK(parameters == known);
  const auto resolved = nlohmann::json::parse(resolved_config_json(plan_of(with("")).config));
  for (const auto& [key, value] : resolved.items()) CHECK(schema.at("properties").contains(key));
}

TEST_CASE("machine figures change exactly") {
  const Machine base = load_machine("h100-pcie5");
  Machine m = base;
  override_figure(m, "links.h2d.bandwidth", "2x");
  CHECK(m.link(Direction::host_to_device).bytes_per_second() == 100'000'000'000);
  CHECK(m.link(Direction::device_to_host).bytes_per_second() == 50'000'000'000);
  CHECK(m.link(Direction::host_to_device).points()[0].time == Nanos{2500});
  override_figure(m, "links.latency", "4us");
  CHECK(m.link(Direction::device_to_host).points()[0].time == Nanos{4000});
  override_figure(m, "hbm.capacity", "40 GiB");
  CHECK(m.hbm_capacity == Bytes{std::int64_t{40} << 30});
  override_figure(m, "interference.d2h_during_h2d", "90%");
  CHECK(m.interference.d2h_during_h2d == 900'000);
  CHECK_THROWS_AS(override_figure(m, "interference.d2h_during_h2d", "110%"), Error);
  // Every figure: factor 1 changes nothing, and the text of its value sets the same value again.
  for (const OverridableFigure& figure : overridable_figures()) {
    CAPTURE(figure.path);
    Machine same = base;
    scale_figure(same, figure.path, kUnchanged);
    CHECK(machine_json(same) == machine_json(base));
  }
  // A link that is described by a table: twice the rate halves the time of large copies.
  Machine table = load_machine("v100-pcie3");
  const Nanos before = table.link(Direction::host_to_device).time(Bytes{std::int64_t{1} << 30});
  override_figure(table, "links.bandwidth", "2x");
  const Nanos after = table.link(Direction::host_to_device).time(Bytes{std::int64_t{1} << 30});
  CHECK(after.value >= before.value / 2 - 10'000);
  CHECK(after.value <= before.value / 2 + 10'000);
  CHECK(figure_text(24'000'000'000, Dimension::bandwidth) == "24GB/s");
  CHECK(figure_text(2'500, Dimension::duration) == "2.5us");
}

}  // namespace
}  // namespace swaplab
