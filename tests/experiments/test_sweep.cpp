#include <doctest/doctest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include "experiments/study.hpp"
#include "experiments/sweep/machine_override.hpp"
#include "experiments/sweep/rerun.hpp"
#include "experiments/sweep/sweep_engine.hpp"
#include "sim/machine_io.hpp"
#include "sim/schedule_checker.hpp"
#include "sim/schedule_io.hpp"
#include "tests/experiments/sweep_cases.hpp"
#include "trace/error.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

using test::plan_of;
using test::TemporaryFolder;

SessionOptions into(const TemporaryFolder& folder, unsigned jobs = 1) {
  SessionOptions options;
  options.output = folder.path();
  options.jobs = jobs;
  return options;
}

TEST_CASE("results do not depend on the number of threads, and equal those of `run`") {
  const SweepPlan plan = plan_of(test::small_sweep_text(), {"bounds=yes"});
  REQUIRE(plan.runs.size() == 24);
  const TemporaryFolder one("one"), three("three");
  const SessionResult a = run_local_sweep(plan, into(one, 1));
  const SessionResult b = run_local_sweep(plan, into(three, 3));
  CHECK(a.result_sha256 == b.result_sha256);
  CHECK(test::read_file(a.folder + "/results.csv") == test::read_file(b.folder + "/results.csv"));
  REQUIRE(a.records.size() == 24);
  StudyRequest request;
  request.traces = {test::bundled_trace("gpt_small"), test::bundled_trace("resnet50_b256")};
  request.policies = parse_policies("none,lru,size");
  request.budgets = parse_budgets("0.1x,0.5x,0.7x,0.9x");
  request.machine = load_machine("a100-40g-pcie4");
  const Study study = run_study(request);
  std::map<std::string, std::size_t> statuses;
  for (std::size_t i = 0; i < 24; ++i) {
    const RunRecord& record = a.records[i];
    const StudyRow& row = study.rows[i];
    CAPTURE(i);
    CHECK(record.index == i);
    CHECK(record.status == outcome_name(row.result.outcome));
    CHECK(record.explanation == row.result.explanation);
    CHECK(record.metrics == result_metrics(study.traces[row.trace], row));
    if (record.ok()) CHECK(record.metric("steady_total_ns") == row.steady_total.value);
    ++statuses[record.status];
  }
  CHECK(statuses["ok"] > 8);
  CHECK(statuses["infeasible"] >= 4);  // the sweep keeps failures as results
}

TEST_CASE("killed at random moments and resumed, a sweep ends with the same results") {
  const std::string text = test::small_sweep_text();
  const std::vector<std::string> wide{"parameters.budget={range: {start: 0.3x, stop: 0.9x, points: 40}}"};
  const SweepPlan plan = plan_of(text, wide);
  const TemporaryFolder whole("whole"), killed("killed");
  const auto begin = std::chrono::steady_clock::now();
  const SessionResult expected = run_local_sweep(plan, into(whole, 2));
  const auto took =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  SplitMix64 random(11);
  std::size_t kills = 0, progressed = 0, last = 0;
  const std::string log = killed.path() + "/" + results_folder_name(plan) + "/runs.jsonl";
  // A busy machine may give the first ones no time to get anywhere: then they get more.
  std::int64_t longest = std::max<std::int64_t>(2'000, took.count() / 4);
  for (int attempt = 0; attempt < 40 && (kills < 10 || progressed == 0); ++attempt) {
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      SessionOptions options = into(killed, 2);
      options.resume = true;
      try {
        run_local_sweep(plan, options);
      } catch (...) {
        ::_exit(9);
      }
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(static_cast<std::uint64_t>(longest))));
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) ++kills;
    CHECK((WIFSIGNALED(status) || WEXITSTATUS(status) == 0));
    const std::size_t done = read_run_log(log, false).size();
    CHECK(done >= last);  // nothing that was finished is lost
    if (done > last) ++progressed;
    if (progressed == 0 && attempt % 3 == 2) longest *= 2;
    last = done;
  }
  CHECK(kills >= 5);
  CHECK(progressed >= 1);
  SessionOptions options = into(killed, 2);
  options.resume = true;
  const SessionResult resumed = run_local_sweep(plan, options);
  CHECK(resumed.records.size() == plan.runs.size());
  CHECK(resumed.result_sha256 == expected.result_sha256);
  CHECK(test::read_file(resumed.folder + "/results.jsonl") ==
        test::read_file(expected.folder + "/results.jsonl"));
  MESSAGE("killed " << kills << " times; " << plan.runs.size() << " runs");
}

TEST_CASE("a torn last line is repaired, anything else is refused") {
  const SweepPlan plan = plan_of(test::small_sweep_text());
  const TemporaryFolder folder("torn");
  const SessionResult whole = run_local_sweep(plan, into(folder));
  const std::string log = whole.folder + "/runs.jsonl";
  const std::string text = test::read_file(log);
  CHECK_THROWS_AS(run_local_sweep(plan, into(folder)), Error);  // finished, and --resume was not asked for
  SessionOptions resume = into(folder);
  resume.resume = true;
  CHECK(run_local_sweep(plan, resume).found == plan.runs.size());
  const auto rewrite = [&](const std::string& content) { std::ofstream(log, std::ios::binary) << content; };
  const std::size_t second_last = text.rfind('\n', text.size() - 2);
  for (const std::size_t cut : {second_last + 2, second_last + 100, text.size() - 1}) {
    rewrite(text.substr(0, cut));
    const SessionResult again = run_local_sweep(plan, resume);
    CHECK(again.found == plan.runs.size() - 1);
    CHECK(again.result_sha256 == whole.result_sha256);
  }
  rewrite("{\"schema\":\"swaplab/result@1\"}\n" + text);
  CHECK_THROWS_WITH_AS(run_local_sweep(plan, resume), doctest::Contains("runs.jsonl:1"), Error);
  std::string changed = text;
  const std::size_t at = changed.find("\"iter_time_ns\":") + 15;
  changed[at] = changed[at] == '9' ? '8' : '9';
  rewrite(text + changed.substr(0, changed.find('\n') + 1));
  if (changed.substr(0, changed.find('\n')) != text.substr(0, text.find('\n')))
    CHECK_THROWS_WITH_AS(run_local_sweep(plan, resume), doctest::Contains("recorded twice"), Error);
}

TEST_CASE("a folder of another build or in use is not touched") {
  const SweepPlan plan = plan_of(test::small_sweep_text());
  const TemporaryFolder folder("manifest");
  const SessionResult whole = run_local_sweep(plan, into(folder));
  std::string manifest = test::read_file(whole.folder + "/manifest.json");
  const std::size_t at = manifest.find("\"commit\": \"") + 11;
  manifest.replace(at, 4, "zzzz");
  std::ofstream(whole.folder + "/manifest.json", std::ios::binary) << manifest;
  SessionOptions resume = into(folder);
  resume.resume = true;
  CHECK_THROWS_WITH_AS(run_local_sweep(plan, resume), doctest::Contains("--any-build"), Error);
  resume.any_build = true;
  CHECK(run_local_sweep(plan, resume).found == 24);
  const FolderLock lock(whole.folder);
  CHECK_THROWS_WITH_AS(run_local_sweep(plan, resume), doctest::Contains("another sweep"), Error);
}

TEST_CASE("limits: a run in a process of its own can be stopped and cannot harm the sweep") {
  CHECK(run_limited({}, [] { return std::string(300'000, 'x'); }).text.size() == 300'000);
  const LimitedOutcome late = run_limited({Nanos{50'000'000}, Bytes{0}}, [] {
    std::this_thread::sleep_for(std::chrono::seconds(30));
    return std::string();
  });
  CHECK(late.status == "timeout");
  const LimitedOutcome crashed = run_limited({}, [] {
    ::raise(SIGKILL);
    return std::string();
  });
  CHECK(crashed.status == "crashed");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("skipped: the memory limit, since sanitizers need address space of their own");
#else
  const LimitedOutcome large = run_limited({Nanos{0}, Bytes{std::int64_t{64} << 20}}, [] {
    std::string text(std::size_t{512} << 20, 'x');
    return text.substr(text.size() - 1);
  });
  CHECK(large.status == "memory_limit");
#endif
  // In a sweep: the same results as without limits when they are generous, failures when they are not.
  const TemporaryFolder folder("limits");
  const SweepPlan free_plan = plan_of(test::small_sweep_text());
  const SweepPlan plan = plan_of(test::small_sweep_text(), {"limits.time=60 s"});
  const SessionResult free_run = run_local_sweep(free_plan, into(folder, 2));
  const SessionResult limited = run_local_sweep(plan, into(folder, 2));
  REQUIRE(limited.records.size() == free_run.records.size());
  CHECK(limited.result_sha256 == free_run.result_sha256);
  const SweepPlan hasty = plan_of(test::small_sweep_text(), {"limits.time=1 ns"});
  const SessionResult failed = run_local_sweep(hasty, into(folder, 2));
  CHECK(failed.records.size() == 24);
  for (const RunRecord& record : failed.records) CHECK(record.status == "timeout");
}

TEST_CASE("records, CSV and SQLite keep integers beyond 2^53") {
  RunRecord record;
  record.index = 3;
  record.key = "0123456789abcdef";
  record.status = "ok";
  record.factors = {{"trace", "a,\"b\".gz"}, {"policy", "lru"}};
  record.policy = "lru:min_bytes=0B";
  record.metrics = {{"iter_time_ns", 9'007'199'254'740'993}, {"policy.x", -1}};
  record.wall_time = Nanos{5};
  const RunRecord back = parse_record(record_line(record, true), "line 1");
  CHECK(record_line(back, true) == record_line(record, true));
  CHECK(back.metric("iter_time_ns") == 9'007'199'254'740'993);
  CHECK(records_csv({record}) ==
        "index,key,status,trace,policy,policy_resolved,iter_time_ns,policy.x,explanation\r\n"
        "3,0123456789abcdef,ok,\"a,\"\"b\"\".gz\",lru,lru:min_bytes=0B,9007199254740993,-1,\r\n");
  const TemporaryFolder folder("sqlite");
  const std::string path = folder.path() + "/r.sqlite";
  write_sqlite({record}, path);
  sqlite3* database = nullptr;
  REQUIRE(::sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  sqlite3_stmt* statement = nullptr;
  REQUIRE(::sqlite3_prepare_v2(database, "SELECT iter_time_ns, trace FROM runs WHERE \"index\" = 3", -1,
                               &statement, nullptr) == SQLITE_OK);
  REQUIRE(::sqlite3_step(statement) == SQLITE_ROW);
  CHECK(::sqlite3_column_int64(statement, 0) == 9'007'199'254'740'993);
  CHECK(std::string(reinterpret_cast<const char*>(::sqlite3_column_text(statement, 1))) == "a,\"b\".gz");
  ::sqlite3_finalize(statement);
  ::sqlite3_close(database);
}

TEST_CASE("a trace that cannot be used is a failed run, not the end of the sweep") {
  const TemporaryFolder folder("bad");
  const std::string bad = folder.path() + "/bad.jsonl";
  std::ofstream(bad) << "{}\n";
  const SweepPlan plan =
      plan_of("schema: swaplab/sweep@1\nname: bad\nbounds: no\nparameters:\n  trace: {values: [" + bad +
              ", " + test::bundled_trace("gpt_small") + "]}\n  policy: lru\n");
  const SessionResult result = run_local_sweep(plan, into(folder, 2));
  REQUIRE(result.records.size() == 2);
  CHECK(result.records[0].status == "error");
  CHECK(result.records[0].explanation.find("bad.jsonl") != std::string::npos);
  CHECK(result.records[1].ok());
  SessionOptions retry = into(folder);
  retry.resume = retry.retry_failed = true;
  CHECK(run_local_sweep(plan, retry).found == 1);
}

TEST_CASE("kept schedules are accepted by the independent checker") {
  const SweepPlan plan =
      plan_of(test::small_sweep_text(), {"schedules=yes", "parameters.budget={values: [0.1x, 0.7x]}"});
  const TemporaryFolder folder("schedules");
  const SessionResult result = run_local_sweep(plan, into(folder, 2));
  std::size_t checked = 0;
  for (const RunRecord& record : result.records) {
    if (!record.ok()) continue;
    const Schedule schedule = read_schedule(result.folder + "/schedules/" + record.key + ".jsonl.zst");
    const ScheduleCheck check = check_schedule(schedule, read_trace(schedule.trace_path));
    CHECK(check.finding_count == 0);
    ++checked;
  }
  CHECK(checked == 4);
  // A run with its log kept gives what the sweep recorded, and stalls that add up.
  const Rerun run = rerun_from(result.folder, result.records.back().index);
  CHECK(result_metrics(run.prepared->info(), run.row) == result.records.back().metrics);
  Nanos stalls{0}, expected{0};
  for (const StallSlice& slice : run.schedule.stalls) stalls += slice.end - slice.start;
  for (const IterationMetrics& it : run.row.result.iterations) expected += it.time() - it.compute_busy;
  CHECK(stalls == expected);
  CHECK_THROWS_WITH_AS(rerun_from(result.folder, 99), doctest::Contains("has runs 0 to"), Error);
}

TEST_CASE("distributions have the moments that they state") {
  const auto moments = [](const Distribution& d) {
    SplitMix64 random(5);
    double sum = 0, squares = 0;
    constexpr int kDraws = 40'000;
    for (int i = 0; i < kDraws; ++i) {
      const double x = static_cast<double>(d.draw(random)) / 1e6;
      sum += x;
      squares += x * x;
    }
    const double mean = sum / kDraws;
    return std::pair{mean, squares / kDraws - mean * mean};
  };
  Distribution d{Distribution::Kind::normal, 0, 0, 0, 100'000};
  auto [mean, variance] = moments(d);
  CHECK(mean == doctest::Approx(1.0).epsilon(0.003));
  CHECK(variance == doctest::Approx(0.01).epsilon(0.05));
  d = {Distribution::Kind::uniform, 800'000, 0, 1'400'000, 0};
  std::tie(mean, variance) = moments(d);
  CHECK(mean == doctest::Approx(1.1).epsilon(0.003));
  CHECK(variance == doctest::Approx(0.36 / 12).epsilon(0.05));
  CHECK(d.tenth_percentile(false) == 860'000);
  CHECK(d.tenth_percentile(true) == 1'340'000);
  d = {Distribution::Kind::triangular, 700'000, 1'000'000, 1'100'000, 0};
  std::tie(mean, variance) = moments(d);
  CHECK(mean == doctest::Approx((0.7 + 1.0 + 1.1) / 3).epsilon(0.003));
  CHECK(variance == doctest::Approx((0.49 + 1 + 1.21 - 0.7 - 0.77 - 1.1) / 18).epsilon(0.05));
}

TEST_CASE("samples: nominal changes nothing, the same draw for every policy, one figure at a time") {
  const std::string uncertain =
      "uncertainty={samples: 3, one_at_a_time: yes, figures: {machine.links.bandwidth: {distribution: "
      "uniform, low: "
      "0.5x, high: 0.9x}, operator_time.each: {distribution: normal, deviation: 0.1x}}}";
  const SweepPlan plan =
      plan_of(test::small_sweep_text(),
              {"parameters.budget=0.6x", "parameters.policy={values: [lru, size]}", uncertain});
  CHECK(plan.runs.size() == 2 * 2 * (1 + 3 + 4));
  const TemporaryFolder folder("samples");
  const SessionResult result = run_local_sweep(plan, into(folder, 2));
  const SweepPlan plain = plan_of(test::small_sweep_text(),
                                  {"parameters.budget=0.6x", "parameters.policy={values: [lru, size]}"});
  const SessionResult nominal = run_local_sweep(plain, into(folder, 2));
  std::map<std::string, std::int64_t> free_time;  // trace + sample -> unconstrained time
  std::size_t same = 0;
  for (const RunRecord& record : result.records) {
    REQUIRE(record.ok());
    const std::string where = record.factor("trace") + record.factor("sample");
    const std::int64_t time = *record.metric("unconstrained_iter_time_ns");
    CHECK(free_time.try_emplace(where, time).first->second == time);
    if (record.factor("sample") != "nominal") continue;
    for (const RunRecord& other : nominal.records) {
      if (other.factor("trace") != record.factor("trace") ||
          other.factor("policy") != record.factor("policy"))
        continue;
      CHECK(other.metrics == record.metrics);
      ++same;
    }
  }
  CHECK(same == 4);
  const std::string trace = test::bundled_trace("gpt_small");
  CHECK(free_time[trace + "nominal"] == free_time[trace + "machine.links.bandwidth@p10"]);
  CHECK(free_time[trace + "nominal"] > free_time[trace + "operator_time.each@p10"]);
  CHECK(free_time[trace + "nominal"] < free_time[trace + "operator_time.each@p90"]);
}

}  // namespace
}  // namespace swaplab
