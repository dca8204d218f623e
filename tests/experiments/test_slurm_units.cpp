#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <thread>

#include "experiments/sweep/process.hpp"
#include "experiments/sweep/sweep_slurm.hpp"
#include "tests/experiments/sweep_cases.hpp"

namespace swaplab {
namespace {

TEST_CASE("units go to the least loaded task, the largest first") {
  const auto units = assign_units({{0}, {1}, {2}, {3}, {4}}, {3, 9, 4, 5, 3}, 2);
  REQUIRE(units.size() == 5);
  std::vector<std::uint64_t> load(2, 0);
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (i > 0) CHECK(units[i].size <= units[i - 1].size);
    load[units[i].task] += units[i].size;
  }
  CHECK(load[0] == 12);
  CHECK(load[1] == 12);
}

TEST_CASE("every unit is claimed once; a task takes its own first, then the largest of the others") {
  const test::TemporaryFolder folder("claims");
  const auto units = assign_units({{0}, {1}, {2}, {3}, {4}, {5}}, {6, 5, 4, 3, 2, 1}, 2);
  std::vector<std::size_t> order;
  while (const auto next = claim_next(folder.path(), units, 1)) order.push_back(*next);
  REQUIRE(order.size() == 6);
  const auto others =
      std::find_if(order.begin(), order.end(), [&](std::size_t u) { return units[u].task != 1; });
  CHECK(std::all_of(others, order.end(), [&](std::size_t u) { return units[u].task == 0; }));
  CHECK(std::is_sorted(others, order.end()));  // by size
  CHECK(others - order.begin() ==
        std::count_if(units.begin(), units.end(), [](const auto& u) { return u.task == 1; }));

  const test::TemporaryFolder contested("contested");
  std::vector<WorkUnit> many;
  for (std::size_t i = 0; i < 200; ++i) many.push_back({i});
  const auto all = assign_units(many, std::vector<std::uint64_t>(200, 1), 4);
  std::vector<int> taken(200, 0);
  std::mutex lock;
  std::vector<std::thread> tasks;
  for (unsigned t = 0; t < 4; ++t) {
    tasks.emplace_back([&, t] {
      while (const auto next = claim_next(contested.path(), all, t)) {
        const std::lock_guard guard(lock);
        ++taken[*next];
      }
    });
  }
  for (std::thread& task : tasks) task.join();
  CHECK(std::all_of(taken.begin(), taken.end(), [](int n) { return n == 1; }));
}

TEST_CASE("other programs are run with their output and exit code") {
  const ProcessResult ok = run_process({"sh", "-c", "echo out; echo err >&2; exit 3"});
  CHECK(ok.code == 3);
  CHECK(ok.output == "out\n");
  CHECK(ok.errors == "err\n");
  CHECK(run_process({"no-such-program-anywhere"}).code == 127);
}

TEST_CASE("synthetic and perturbed traces: built on demand, seeds matter") {
  const std::string base =
      "schema: swaplab/sweep@1\nname: made\nbounds: no\nparameters:\n  policy: {values: [lru, size]}\n"
      "  machine: a100-40g-pcie4\n  budget: 0.7x\n  seed: {values: [1, 2]}\n  iterations: 4\n  trace:\n    "
      "values:\n";
  const std::string file = test::bundled_trace("gpt_small");
  const SweepPlan plan = test::plan_of(base + "      - {file: " + file +
                                       ", perturb: [\"skip_step@rate=0.5\", insert:rate=0.05]}\n"
                                       "      - {synth: gpt-small, perturb: [\"extra:rate=0.05\"]}\n");
  CHECK(plan.runs.size() == 8);
  CHECK(plan.traces.size() == 2);
  const test::TemporaryFolder folder("made");
  SessionOptions options;
  options.output = folder.path();
  options.jobs = 2;
  const SessionResult result = run_local_sweep(plan, options);
  for (const RunRecord& record : result.records) {
    CAPTURE(record.explanation);
    CHECK(record.ok());
  }
  // The two seeds of the changed recording are different traces, the two policies of one seed the same.
  const auto free_time = [&](std::size_t i) {
    return *result.records[i].metric("unconstrained_iter_time_ns");
  };
  CHECK(free_time(0) == free_time(1));
  CHECK(free_time(0) != free_time(2));
  CHECK_THROWS(test::plan_of(base + "      - {file: " + file + ", perturb: [\"skip_stpe\"]}\n"));
  CHECK_THROWS(test::plan_of(base + "      - {synth: gpt-smal}\n"));
  CHECK_THROWS(test::plan_of(base + "      - {synth: gpt-small, set: {model.layer: 3}}\n"));
}

}  // namespace
}  // namespace swaplab
