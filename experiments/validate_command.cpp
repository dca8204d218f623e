#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/stats/comparison_text.hpp"
#include "experiments/sweep/results_store.hpp"
#include "experiments/sweep/trace_source.hpp"
#include "experiments/text.hpp"
#include "experiments/validate/agreement.hpp"
#include "experiments/validate/validation_html.hpp"
#include "policy/policy.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp = R"(swaplab validate --measured RESULTS.jsonl [--machine M | --simulated RESULTS]

How far the simulator is from measured runs ('swaplab-gpu replay' writes such results): error of the
iteration time (MAPE, bias, 95th percentile), of the peak memory and of every stall class; whether policies
rank alike (Kendall's tau-b per trace and budget, differences inside the measurement's noise are ties); and
what following the model's choice would cost. Points that cannot be compared are listed with the reason.

Without --simulated the same runs are simulated here, on --machine or on the machine that each measured run
names. Traces used to calibrate that machine must not be among the measured ones: name them with
--calibrated-on, and the command refuses when the two sets overlap.

examples:
  swaplab-gpu replay gpt.jsonl.gz --policy lru,next-use,foresight --budget 0.5x,0.7x --output measured.jsonl
  swaplab validate --measured measured.jsonl --machine node7.yaml --html validation.html
  swaplab validate --measured measured.jsonl --machine node7.yaml --calibrated-on resnet50.jsonl.gz
  swaplab validate --measured measured.jsonl --simulated results/fig6 --tolerance iteration=8%,tau=0.8

exit codes: 0 within every tolerance, 1 beyond one, others as 'swaplab --help' says

)";

double share(const std::string& option, const std::string& text, Ppm high) {
  Ppm ppm = 0;
  const std::string problem = parse_fraction(text, 0, high, ppm);
  if (!problem.empty()) throw Error(ErrorKind::usage, option + ": " + problem);
  return static_cast<double>(ppm) / 1e6;
}

Tolerances parse_tolerances(const std::string& text) {
  Tolerances t;
  struct Row {
    const char* name;
    double* value;
    Ppm high;
  };
  const Row rows[] = {{"iteration", &t.iteration, 10 * kUnchanged},
                      {"peak", &t.peak, 10 * kUnchanged},
                      {"tau", &t.tau, kUnchanged},
                      {"regret", &t.regret, 10 * kUnchanged}};
  std::vector<std::string> given;
  for (const std::string& part : split_list(text, ',')) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    given.push_back(name);
    std::vector<std::string> names;
    bool found = false;
    for (const Row& row : rows) {
      names.emplace_back(row.name);
      if (name != row.name || equals == std::string::npos) continue;
      *row.value = share("--tolerance: " + name, part.substr(equals + 1), row.high);
      found = true;
    }
    if (!found)
      throw Error(ErrorKind::usage, "--tolerance: expected iteration=, peak=, tau= or regret=, got '" + part +
                                        "'" + did_you_mean(name, names));
  }
  refuse_repeats("--tolerance", given);
  return t;
}

// ---- calibration and test sets

// What a trace is called, and what is in it, where that can be read.
struct TraceIdentity {
  std::string text, name, hash;
};
TraceIdentity identity_of(const std::string& source) {
  TraceIdentity id{source, short_trace(trace_source_origin(source)), ""};
  try {
    id.hash = trace_source_hash(source);
  } catch (const Error&) {
    id.hash.clear();  // not here; its name has to do
  }
  return id;
}

std::vector<std::string> calibration_traces(const std::string& list) {
  if (!list.starts_with("@")) return split_list(list, ',');
  require_results_file(list.substr(1));
  std::ifstream in(list.substr(1));
  if (!in) throw Error(ErrorKind::input, list.substr(1) + ": cannot be read");
  std::vector<std::string> traces;
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != '#') traces.push_back(line);
  return traces;
}

void require_disjoint(const std::vector<MeasuredRun>& measured, const std::string& list) {
  std::vector<TraceIdentity> calibration;
  for (const std::string& trace : calibration_traces(list)) calibration.push_back(identity_of(trace));
  std::set<std::string> traces;
  for (const MeasuredRun& run : measured) traces.insert(run.record.factor("trace"));
  std::string overlap;
  for (const std::string& trace : traces) {
    const TraceIdentity test = identity_of(trace);
    for (const TraceIdentity& used : calibration) {
      const bool same = test.name == used.name || (!test.hash.empty() && test.hash == used.hash);
      if (same)
        overlap +=
            (overlap.empty() ? "" : ", ") + trace + (used.text == trace ? "" : " (as " + used.text + ")");
    }
  }
  if (!overlap.empty())
    throw Error(ErrorKind::usage, "calibration and test sets overlap: " + overlap +
                                      "; an error on traces that the machine was fitted to says nothing");
}

// ---- output

std::string percent(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.2f %%", 100 * value);
  return buffer;
}
std::string signed_percent(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%+.2f %%", 100 * value);
  return buffer;
}
std::string three(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3f", value);
  return buffer;
}

std::string check_value(const Check& c) {
  if (!c.value) return "-";
  if (c.limit == "none") return std::to_string(std::llround(*c.value));
  return c.limit.starts_with("at least") ? three(*c.value) : percent(*c.value);
}

void print_validation(const Validation& v) {
  TextTable errors({"figure", "points", "MAPE", "mean", "p95", "largest"}, 1);
  const auto row = [&](const char* name, const ErrorSummary& s) {
    if (s.count > 0)
      errors.add({name, std::to_string(s.count), percent(s.mape), signed_percent(s.signed_mean),
                  percent(s.p95), percent(s.largest)});
  };
  row("iteration time of runs", v.runs);
  row("single iterations", v.iterations);
  row("peak of reserved memory", v.peaks);
  std::cout << errors.text() << '\n';
  if (!v.stalls.empty()) {
    TextTable stalls({"stall class (share of iteration)", "measured", "simulated", "mean difference",
                      "mean of its absolute"},
                     1);
    for (const StallSummary& s : v.stalls)
      stalls.add({s.name, percent(s.measured_share), percent(s.simulated_share),
                  signed_percent(s.mean_difference), percent(s.mean_absolute_difference)});
    std::cout << stalls.text() << '\n';
  }
  if (!v.cells.empty()) {
    TextTable cells(
        {"trace and budget", "model's choice", "fastest measured", "regret", "tau-b", "policies", "ties"}, 3);
    for (const ValidationCell& c : v.cells)
      cells.add({c.name, c.chosen, c.best, percent(c.regret), c.tau ? three(*c.tau) : std::string("all tied"),
                 std::to_string(c.policies),
                 std::to_string(c.measured_ties) + " of " + std::to_string(c.pairs)});
    std::cout << cells.text() << '\n';
  }
  std::vector<const ValidationPoint*> worst;
  worst.reserve(v.points.size());
  for (const ValidationPoint& p : v.points) worst.push_back(&p);
  std::stable_sort(worst.begin(), worst.end(), [](const auto* a, const auto* b) {
    return std::fabs(a->error()) > std::fabs(b->error());
  });
  TextTable points({"largest errors", "budget", "policy", "measured", "simulated", "error"}, 3);
  for (std::size_t i = 0; i < worst.size() && i < 5; ++i)
    points.add({short_trace(worst[i]->trace), worst[i]->budget, worst[i]->policy,
                human_time(worst[i]->measured), human_time(worst[i]->simulated),
                signed_percent(worst[i]->error())});
  std::cout << points.text() << '\n';
  if (v.decisions_differ > 0)
    std::cout << v.decisions_differ << " of " << v.points.size()
              << " measured runs decided otherwise than their own simulation at some point\n";
  for (const DroppedPoint& d : v.dropped) std::cout << "dropped: " << d.what << ": " << d.reason << '\n';
  if (!v.dropped.empty() || v.decisions_differ > 0) std::cout << '\n';
  TextTable checks({"check", "found", "stated", "verdict"}, 1);
  for (const Check& c : v.checks)
    checks.add({c.name, check_value(c), c.limit,
                !c.value ? "not judged"
                : c.held ? "holds"
                         : "DOES NOT HOLD"});
  std::cout << checks.text();
}

Json summary_json(const ErrorSummary& s) {
  return {{"count", s.count},
          {"mape", s.mape},
          {"signed_mean", s.signed_mean},
          {"p95", s.p95},
          {"largest", s.largest}};
}

Json validation_json(const Validation& v, const std::string& subtitle) {
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  Json j;
  j["schema"] = "swaplab/validation@1";
  j["what"] = subtitle;
  j["held"] = v.held();
  j["checks"] = Json::array();
  for (const Check& c : v.checks)
    j["checks"].push_back(
        {{"name", c.name}, {"limit", c.limit}, {"value", or_null(c.value)}, {"held", c.held}});
  j["iteration_time"] = summary_json(v.runs);
  j["single_iterations"] = summary_json(v.iterations);
  j["peak_reserved"] = summary_json(v.peaks);
  j["mean_tau_b"] = or_null(v.mean_tau);
  j["mean_regret"] = v.mean_regret;
  j["largest_regret"] = v.largest_regret;
  j["outcomes_differ"] = v.outcomes_differ;
  j["decisions_differ"] = v.decisions_differ;
  j["stalls"] = Json::array();
  for (const StallSummary& s : v.stalls)
    j["stalls"].push_back({{"class", s.name},
                           {"measured_share", s.measured_share},
                           {"simulated_share", s.simulated_share},
                           {"mean_difference", s.mean_difference},
                           {"mean_absolute_difference", s.mean_absolute_difference}});
  j["cells"] = Json::array();
  for (const ValidationCell& c : v.cells)
    j["cells"].push_back({{"cell", c.name},
                          {"policies", c.policies},
                          {"pairs", c.pairs},
                          {"measured_ties", c.measured_ties},
                          {"simulated_ties", c.simulated_ties},
                          {"tau_b", or_null(c.tau)},
                          {"chosen", c.chosen},
                          {"best", c.best},
                          {"regret", c.regret}});
  j["points"] = Json::array();
  for (const ValidationPoint& p : v.points) {
    Json one = {{"trace", p.trace},
                {"budget", p.budget},
                {"policy", p.policy},
                {"measured_ns", p.measured.value},
                {"noise_ns", p.noise_ns},
                {"repeats", p.repeats},
                {"simulated_ns", p.simulated.value},
                {"error", p.error()}};
    one["peak_measured_bytes"] = p.peak_measured ? Json(p.peak_measured->value) : Json(nullptr);
    one["peak_simulated_bytes"] = p.peak_simulated ? Json(p.peak_simulated->value) : Json(nullptr);
    one["decisions_differ"] = p.decisions_differ;
    j["points"].push_back(std::move(one));
  }
  j["dropped"] = Json::array();
  for (const DroppedPoint& d : v.dropped) j["dropped"].push_back({{"run", d.what}, {"reason", d.reason}});
  return j;
}

std::string devices_text(const std::vector<MeasuredRun>& measured) {
  std::set<std::string> devices;
  for (const MeasuredRun& run : measured)
    devices.insert(run.device.empty() ? "a device not named" : run.device);
  std::string text;
  for (const std::string& device : devices) text += (text.empty() ? "" : ", ") + device;
  return text;
}

std::string command_text(const Arguments& arguments) {
  std::string text = "swaplab validate";
  for (const std::string& word : arguments)
    text += word.find_first_of(" '\"$&|;<>()*?") == std::string::npos ? " " + word : " '" + word + "'";
  return text;
}

}  // namespace

int validate_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("measured", po::value<std::string>(),
                                               "results of measured runs (results.jsonl)")(
      "simulated", po::value<std::string>(),
      "results folder or file to compare with (default: simulate here)")(
      "machine", po::value<std::string>(), "machine to simulate (default: what each measured run names)")(
      "calibrated-on", po::value<std::string>(),
      "traces that the machine was fitted to: a,b,c or @FILE with one per line")(
      "tolerance", po::value<std::string>()->default_value("iteration=5%,peak=2%,tau=0.9,regret=2%"),
      "limits; those not named keep these defaults")("noise", po::value<std::string>()->default_value("0.5%"),
                                                     "smallest difference of two policies that counts")(
      "html", po::value<std::string>(), "report file to write")(
      "title", po::value<std::string>(), "of the report")("json", "JSON instead of text");
  const po::variables_map values = parse_options(arguments, options, "");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  if (values.count("measured") == 0)
    throw Error(ErrorKind::usage, "swaplab validate needs --measured RESULTS.jsonl");
  if (values.count("simulated") != 0 && values.count("machine") != 0)
    throw Error(ErrorKind::usage,
                "--simulated and --machine exclude each other: results are there, or are made");
  AgreementOptions how;
  how.tolerances = parse_tolerances(values["tolerance"].as<std::string>());
  how.least_noise = share("--noise", values["noise"].as<std::string>(), kUnchanged);
  const std::string path = values["measured"].as<std::string>();
  if (values.count("html") != 0) {
    std::vector<std::string> inputs{path};
    if (values.count("simulated") != 0) inputs.push_back(values["simulated"].as<std::string>());
    check_output(values["html"].as<std::string>(), inputs);
  }
  const std::vector<MeasuredRun> measured = read_measured_runs(path);
  if (values.count("calibrated-on") != 0)
    require_disjoint(measured, values["calibrated-on"].as<std::string>());
  std::vector<SimulatedRun> simulated;
  std::string with;
  if (values.count("simulated") != 0) {
    with = "results of " + values["simulated"].as<std::string>();
    const std::string results = values["simulated"].as<std::string>();
    for (RunRecord& record : load_results(results).records) {
      require_possible_metrics(record, results + ": run " + record.key);
      simulated.push_back({std::move(record), {}});
    }
  } else {
    const std::string machine = values.count("machine") != 0 ? values["machine"].as<std::string>() : "";
    with = "the simulator on " + (machine.empty() ? "the machine of each run" : machine);
    simulated = simulate_measured(measured, machine,
                                  [](const std::string& text) { std::cerr << "warning: " << text << '\n'; });
  }
  const Validation v = compare_with_measured(measured, simulated, how);
  const std::string subtitle = std::to_string(measured.size()) + " runs measured on " +
                               devices_text(measured) + " (" + path + "), against " + with;
  if (values.count("html") != 0) {
    const std::string title =
        values.count("title") != 0 ? values["title"].as<std::string>() : "Simulated against measured";
    write_file_atomically(values["html"].as<std::string>(),
                          validation_html(v, how.tolerances, {title, subtitle, command_text(arguments)}));
  }
  if (values.count("json") != 0) {
    std::cout << validation_json(v, subtitle).dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
  } else {
    std::cout << subtitle << "\n\n";
    print_validation(v);
    if (values.count("html") != 0) std::cout << "\nwrote " << values["html"].as<std::string>() << '\n';
  }
  return v.held() ? kExitOk : kExitVerdict;
}

}  // namespace swaplab
