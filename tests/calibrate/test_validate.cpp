#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/commands.hpp"
#include "experiments/validate/agreement.hpp"
#include "experiments/validate/validation_html.hpp"
#include "sim/machine_io.hpp"
#include "tests/support/shared.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

RunRecord record(const std::string& policy, std::int64_t time, const std::string& budget = "0.5x") {
  RunRecord r;
  r.key = policy + budget;
  r.status = "ok";
  r.policy = policy;
  r.factors = {
      {"trace", "traces/a.jsonl.gz"}, {"machine", "h100-pcie5"}, {"budget", budget}, {"policy", policy}};
  r.metrics = {{"iter_time_ns", time}, {"stall_swap_in_ns", time / 10}, {"peak_reserved_bytes", 1'000'000}};
  return r;
}

MeasuredRun measured(const std::string& policy, std::vector<std::int64_t> repeats,
                     const std::string& budget = "0.5x") {
  MeasuredRun m;
  for (const std::int64_t t : repeats) m.iterations.push_back({Nanos{1}, Nanos{t}, Nanos{t}});
  m.steady_first = 1;
  m.steady_end = 3;
  m.record = record(policy, repeats[0], budget);
  m.where = "m.jsonl:1";
  return m;
}

std::vector<SimulatedRun> simulated(const std::vector<std::pair<std::string, std::int64_t>>& runs) {
  std::vector<SimulatedRun> all;
  for (const auto& [policy, time] : runs)
    all.push_back({record(policy, time), {Nanos{1}, Nanos{time}, Nanos{time}}});
  return all;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("errors by hand: mean size, bias, 95th percentile, largest") {
  const std::vector<double> errors{0.1, -0.1, 0.2, 0};
  const ErrorSummary s = summarise_errors(errors);
  CHECK(s.count == 4);
  CHECK(s.mape == doctest::Approx(0.1));
  CHECK(s.signed_mean == doctest::Approx(0.05));
  CHECK(s.p95 == doctest::Approx(0.185));  // sorted 0, .1, .1, .2: place 2.85
  CHECK(s.largest == doctest::Approx(0.2));
  CHECK(summarise_errors({}).count == 0);
}

TEST_CASE("rank agreement is Kendall's tau-b, with differences inside the noise as ties on both sides") {
  AgreementOptions options;
  options.least_noise = 0;
  // x = 1, 2, 2, 3 and y = 1, 3, 2, 4: five pairs agree, one is tied in x: 5 / sqrt(5 * 6), as SciPy says.
  Validation v = compare_with_measured(
      {measured("a", {1000}), measured("b", {2000}), measured("c", {2000}), measured("d", {3000})},
      simulated({{"a", 1000}, {"b", 3000}, {"c", 2000}, {"d", 4000}}), options);
  REQUIRE(v.cells.size() == 1);
  CHECK(*v.cells[0].tau == doctest::Approx(0.9128709291752769));
  CHECK(v.cells[0].measured_ties == 1);
  CHECK(v.cells[0].simulated_ties == 0);
  // One pair of three reversed: (2 - 1) / 3.
  v = compare_with_measured({measured("a", {1000}), measured("b", {2000}), measured("c", {3000})},
                            simulated({{"a", 2000}, {"b", 1000}, {"c", 3000}}), options);
  CHECK(*v.mean_tau == doctest::Approx(1.0 / 3));
  // The model would take b, which takes twice as long.
  CHECK(v.cells[0].chosen == "b");
  CHECK(v.cells[0].best == "a");
  CHECK(v.cells[0].regret == doctest::Approx(1.0));
  CHECK(v.largest_regret == doctest::Approx(1.0));
  // The same reversal inside the noise: a tie on both sides, so the ranking is right.
  v = compare_with_measured(
      {measured("a", {1000, 1060, 940}), measured("b", {1020, 960, 1080}), measured("c", {3000})},
      simulated({{"a", 1010}, {"b", 1000}, {"c", 3000}}), options);
  CHECK(v.cells[0].measured_ties == 1);
  CHECK(v.cells[0].simulated_ties == 1);
  CHECK(*v.cells[0].tau == doctest::Approx(1.0));
  // Everything tied: no ranking at all.
  options.least_noise = 0.5;
  v = compare_with_measured({measured("a", {1000}), measured("b", {1010})},
                            simulated({{"a", 1000}, {"b", 900}}), options);
  CHECK_FALSE(v.cells[0].tau.has_value());
  CHECK_FALSE(v.mean_tau.has_value());
}

TEST_CASE("the median repeat counts; errors, peaks and stalls are those of the pair") {
  std::vector<MeasuredRun> runs{measured("a", {1000, 5000, 1100})};
  runs[0].record.metrics = {
      {"iter_time_ns", 1000}, {"stall_swap_in_ns", 220}, {"peak_reserved_bytes", 800'000}};
  const Validation v = compare_with_measured(runs, simulated({{"a", 1210}}), {});
  REQUIRE(v.points.size() == 1);
  CHECK(v.points[0].measured == Nanos{1100});
  CHECK(v.points[0].error() == doctest::Approx(0.1));
  CHECK(v.runs.signed_mean == doctest::Approx(0.1));
  CHECK(v.iterations.count == 2);
  CHECK(v.iterations.mape == doctest::Approx(0.1));
  CHECK(v.peaks.mape == doctest::Approx(0.25));
  REQUIRE(v.stalls.size() == 1);
  CHECK(v.stalls[0].measured_share == doctest::Approx(0.2));
  CHECK(v.stalls[0].simulated_share == doctest::Approx(0.11));
  CHECK(v.stalls[0].mean_difference == doctest::Approx(-0.09));
  CHECK(v.stalls[0].mean_absolute_difference == doctest::Approx(0.09));
  CHECK_FALSE(v.held());
  CHECK_FALSE(v.checks[0].held);
  CHECK_FALSE(v.checks[1].held);
}

TEST_CASE("what cannot be compared is dropped with its reason, and a disagreement about fitting fails") {
  std::vector<MeasuredRun> runs{measured("a", {1000}), measured("b", {1000}), measured("c", {1000}),
                                measured("d", {1000}), measured("a", {1000}), measured("e", {1000}),
                                measured("g", {1000})};
  runs[1].record.status = "out_of_memory";
  runs[2].wrong_words = 3;
  runs[5].record.status = "infeasible";
  std::vector<SimulatedRun> sim =
      simulated({{"a", 1000}, {"b", 1000}, {"c", 1000}, {"e", 1000}, {"f", 1000}, {"g", 1000}});
  sim[3].record.status = "infeasible";
  sim[5].record.status = "error";
  sim[5].record.explanation = "no such trace";
  const Validation v = compare_with_measured(runs, sim, {});
  CHECK(v.points.size() == 1);
  std::vector<std::string> reasons;
  for (const DroppedPoint& d : v.dropped) reasons.push_back(d.what + ": " + d.reason);
  CHECK(reasons == std::vector<std::string>{
                       "a 0.5x b: measured out_of_memory, simulated ok",
                       "a 0.5x c: its bytes were wrong (3 words): no valid run",
                       "a 0.5x d: not simulated",
                       "a 0.5x a (m.jsonl:1): measured before; the first line counts",
                       "a 0.5x e: both sides: infeasible",
                       "a 0.5x g: measured ok, simulated error (no such trace)",
                       "a 0.5x f: not measured",
                   });
  CHECK(v.outcomes_differ == 1);
  CHECK_FALSE(v.held());
  CHECK(error_of([&] { compare_with_measured({runs[1]}, sim, {}); }) ==
        "no measured run has a simulated counterpart that ran; for example a 0.5x b: measured out_of_memory, "
        "simulated ok");
}

TEST_CASE("runs that pair ambiguously are refused") {
  std::vector<SimulatedRun> sim = simulated({{"a", 1000}, {"a", 1100}});
  CHECK(error_of([&] {
          compare_with_measured({measured("a", {1000})}, sim, {});
        }).starts_with("two simulated runs fit a 0.5x a and differ"));
}

TEST_CASE(
    "a machine as a scaled replay sees it: copies of n move n / divisor, time is divided by the scale") {
  const Machine m = load_machine("v100-pcie3");
  CHECK(machine_json(as_replayed(m, 1, kUnchanged)) == machine_json(m));
  const Machine r = as_replayed(m, 4, kUnchanged / 2);
  for (const std::int64_t n : {4'096, 400'000, 64 << 20}) {
    const Nanos before = m.link(Direction::device_to_host).time(Bytes{n / 4});
    CHECK(static_cast<double>(r.link(Direction::device_to_host).time(Bytes{n}).value) ==
          doctest::Approx(2.0 * static_cast<double>(before.value)).epsilon(1e-4));
  }
  CHECK(r.host.event_record == m.host.event_record * 2);
  // Stretched copies take the profile's time whatever the scales.
  const Machine s = as_replayed(m, 4, kUnchanged / 2, true);
  CHECK(s.link(Direction::device_to_host).time(Bytes{400'000}) ==
        m.link(Direction::device_to_host).time(Bytes{400'000}));
  CHECK(s.host.event_record == r.host.event_record);
  CHECK(r.host.op_dispatch == m.host.op_dispatch);
  CHECK(r.interference.d2h_during_h2d == m.interference.d2h_during_h2d);
}

struct Folder {
  fs::path path = fs::temp_directory_path() / "swaplab-test-validate";
  Folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path / name).string(); }
};

struct Outcome2 {
  int code = 0;
  std::string out, error;
};
Outcome2 validate(const Arguments& arguments) {
  std::ostringstream out;
  std::streambuf* const before = std::cout.rdbuf(out.rdbuf());
  Outcome2 result;
  try {
    result.code = validate_command(arguments);
  } catch (const Error& error) {
    result.error = error.what();
  }
  std::cout.rdbuf(before);
  result.out = out.str();
  return result;
}

// Lines as a replay writes them, made by simulating: `stretch` says how much slower the "device" is.
std::string replay_lines(const std::string& trace, std::int64_t stretch_ppm) {
  std::vector<MeasuredRun> wanted;
  for (const char* policy : {"lru", "next-use", "size"}) {
    MeasuredRun m;
    m.record.index = wanted.size();
    m.record.key = policy;
    m.record.factors = {{"trace", trace},  {"machine", "h100-pcie5"}, {"iterations", "recorded"},
                        {"times", "auto"}, {"budget", "0.7x"},        {"policy", policy}};
    wanted.push_back(m);
  }
  std::string lines;
  for (const SimulatedRun& run : simulate_measured(wanted, "", {})) {
    REQUIRE(run.record.status == "ok");
    Json j = Json::parse(record_line(run.record, false));
    j["measured"] = true;
    j["device"] = {{"kind", "host"}, {"name", "test threads"}, {"driver", "-"}, {"runtime", "-"}};
    Json times = Json::array();
    for (const Nanos t : run.iterations) times.push_back(t.value + t.value * stretch_ppm / 1'000'000);
    j["iterations_ns"] = {times, times, times};
    j["steady_iterations"] = {0, 1};
    const std::size_t count = run.iterations.size();
    if (count > 1) j["steady_iterations"] = {count - 1, count};
    j["decisions_differ"] = "";
    j["integrity"] = {
        {"operands", 1}, {"swap_ins", 1}, {"words", 1}, {"wrong_words", 0}, {"findings", Json::array()}};
    lines += j.dump() + "\n";
  }
  return lines;
}

TEST_CASE(
    "the command simulates the measured runs itself, judges them and writes a report that fetches nothing") {
  const Folder folder;
  const std::string trace = test::source_path("configs/traces/gpt_small.jsonl.gz");
  const std::string path = folder.file("measured.jsonl"), html = folder.file("report.html");
  write_file_atomically(path, replay_lines(trace, 0));
  const Outcome2 exact = validate({"--measured", path, "--json", "--html", html});
  REQUIRE(exact.error == "");
  CHECK(exact.code == kExitOk);
  const Json j = Json::parse(exact.out);
  CHECK(j.at("held") == true);
  CHECK(j.at("points").size() == 3);
  CHECK(j.at("single_iterations").at("mape").get<double>() == 0);
  CHECK(j.at("peak_reserved").at("mape").get<double>() == 0);
  CHECK(j.at("mean_tau_b").get<double>() == doctest::Approx(1));
  const std::string page = test::read_file(html);
  std::size_t circles = 0;
  for (std::size_t at = page.find("<circle"); at != std::string::npos; at = page.find("<circle", at + 1))
    ++circles;
  CHECK(circles == 3);
  for (const char* outside : {"http:", "https:", "<script", "@import", "url("})
    CHECK(page.find(outside) == std::string::npos);
  CHECK(page.find("Within every stated tolerance.") != std::string::npos);

  // A device 20 % slower than the model: beyond 5 %, within 25 %.
  write_file_atomically(path, replay_lines(trace, 200'000));
  const Outcome2 slow = validate({"--measured", path});
  CHECK(slow.error == "");
  CHECK(slow.code == kExitVerdict);
  CHECK(slow.out.find("DOES NOT HOLD") != std::string::npos);
  CHECK(validate({"--measured", path, "--tolerance", "iteration=25%"}).code == kExitOk);
  // Against another machine the same runs are off, too.
  CHECK(validate({"--measured", path, "--machine", "v100-pcie3", "--tolerance", "iteration=1%"}).code ==
        kExitVerdict);

  // Results of a sweep serve as the other side; here the lines themselves.
  CHECK(validate({"--measured", path, "--simulated", path, "--tolerance", "iteration=25%"}).code == kExitOk);
}

TEST_CASE("calibration and test sets must be disjoint, by name and by content") {
  const Folder folder;
  const std::string trace = test::source_path("configs/traces/gpt_small.jsonl.gz");
  const std::string path = folder.file("measured.jsonl"), copy = folder.file("renamed.jsonl.gz");
  write_file_atomically(path, replay_lines(trace, 0));
  fs::copy_file(trace, copy);
  CHECK(validate({"--measured", path, "--calibrated-on", "elsewhere/gpt_small.jsonl.gz"})
            .error.starts_with("calibration and test sets overlap: "));
  CHECK(validate({"--measured", path, "--calibrated-on", copy})
            .error.starts_with("calibration and test sets overlap: "));
  const std::string list = folder.file("used.txt");
  write_file_atomically(list, "# probe only\n" + test::source_path("configs/traces/moe.jsonl.gz") + "\n");
  CHECK(validate({"--measured", path, "--calibrated-on", "@" + list}).code == kExitOk);
}

TEST_CASE("wrong usage and wrong files are said with their place") {
  const Folder folder;
  const std::string path = folder.file("m.jsonl");
  const auto error = [&](const std::string& text) {
    write_file_atomically(path, text);
    return validate({"--measured", path}).error;
  };
  const std::string line = record_line(record("a", 1000), false);
  CHECK(error(line + "\n") == path +
                                  ":1: is a simulated run; --measured takes results of 'swaplab-gpu replay' "
                                  "(\"measured\": true)");
  CHECK(error("") == path + ": holds no run");
  CHECK(error("{\"schema\": 1}\n") == path + ":1: not a run record: \"schema\": expected a text");
  CHECK(error("{}\n") == path + ":1: not a run record: missing \"schema\"");
  CHECK(error("[]\n") == path + ":1: not a run record: expected an object of swaplab/result@1");
  const std::string torn =
      error(line.substr(0, line.size() - 1) + ",\"measured\":true}\n" + line.substr(0, 40) + "\n");
  CHECK(torn.starts_with(path + ":2: not a run record: byte "));
  CHECK(torn.find("expected ") != std::string::npos);
  CHECK(torn.find("json.exception") == std::string::npos);
  CHECK(error(line.substr(0, line.find("\"key\"")) + "\"key\":7" + line.substr(line.find(",\"status\"")) +
              "\n") == path + ":1: not a run record: \"key\": expected a text");
  const auto with = [&](const char* more) {
    return line.substr(0, line.size() - 1) + ",\"measured\":true," + more + "}\n";
  };
  CHECK(error(with("\"iterations_ns\":[[1,2]]")) ==
        path + ":1: iterations_ns needs steady_iterations: [first, one past the last]");
  CHECK(error(with("\"iterations_ns\":[[1,-2]],\"steady_iterations\":[0,1]")) ==
        path + ":1: iterations_ns[0]: expected an integer from 0 to 4503599627370496");
  CHECK(error(with("\"bytes_divisor\":0")) ==
        path + ":1: bytes_divisor: expected an integer from 1 to 1048576");
  RunRecord negative = record("a", 1000);
  negative.metrics.back().second = -5;
  const std::string wrong = record_line(negative, false);
  CHECK(error(wrong.substr(0, wrong.size() - 1) + ",\"measured\":true}\n") ==
        path + ":1: metric 'peak_reserved_bytes': expected an integer from 0, found -5");
  write_file_atomically(path, line.substr(0, line.size() - 1) + ",\"measured\":true}\n");
  write_file_atomically(folder.file("s.jsonl"), wrong + "\n");
  CHECK(validate({"--measured", path, "--simulated", folder.file("s.jsonl")}).error ==
        folder.file("s.jsonl") +
            ": run a0.5x: metric 'peak_reserved_bytes': expected an integer from 0, found -5");
  CHECK(validate({}).error == "swaplab validate needs --measured RESULTS.jsonl");
  write_file_atomically(path, with("\"device\":{\"name\":\"x\"}"));
  CHECK(validate({"--measured", path, "--tolerance", "itration=5%"}).error ==
        "--tolerance: expected iteration=, peak=, tau= or regret=, got 'itration=5%' (did you mean "
        "'iteration'?)");
  CHECK(validate({"--measured", path, "--machine", "a", "--simulated", "b"})
            .error.starts_with("--simulated and"));
}

}  // namespace
}  // namespace swaplab
