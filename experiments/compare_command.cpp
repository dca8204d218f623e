#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/stats/comparison.hpp"
#include "experiments/stats/comparison_text.hpp"
#include "experiments/sweep/results_store.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

constexpr const char* kCompareHelp = R"(swaplab compare RESULTS --baseline A [--candidate B ...]

Pairs the runs of two policies by trace, budget, machine, seed and everything else that varies, and says
whether B is better: geometric mean of the ratios over traces with a bootstrap interval, Wilcoxon's
signed-rank test, Holm's correction over the candidates. Traces are the sampling unit; budgets, machines
and seeds of one trace are averaged first.

verdicts, with the threshold t (smallest difference that matters) and less being better:
  BETTER        the whole interval lies below 1/(1+t), and Wilcoxon rejects
  WORSE         the whole interval lies above 1+t, and Wilcoxon rejects
  SAME          the whole interval lies within the threshold
  CANNOT TELL   anything else: too few traces, or one of the two failed where the other ran

columns:
  ratio           candidate / baseline, geometric mean over traces; interval: where it lies, given other traces
  p (Holm)        of Wilcoxon's test that candidate and baseline are alike, corrected for the number of candidates
  traces, pairs   traces with a pair in which both ran; pairs in all
  better, same, worse   pairs beyond or within the threshold
  failed A/B/both pairs in which the baseline alone, the candidate alone or both did not run

examples:
  swaplab compare results/policy-ab-1f3c --baseline lru
  swaplab compare results/policy-ab-1f3c --baseline lru --candidate foresight --metric slowdown_ppm --pairs
  swaplab compare results/policy-ab-1f3c --baseline lru --format latex -o table.tex
  swaplab compare results/nightly-77ab --baseline lru --candidate foresight --fail-on worse    # exit code 1

)";

constexpr const char* kSensitivityHelp = R"(swaplab sensitivity RESULTS --baseline A --candidate B

Reads a sweep with 'uncertainty': bands of the metric over the Monte-Carlo draws, how often B beats A, and
what each uncertain figure does to the ratio alone, at its 10 % and its 90 % point.

example:
  swaplab sensitivity results/sensitivity-5b21 --baseline lru --candidate next-use

)";

void output(const po::variables_map& values, const std::string& text) {
  if (values.count("output") != 0) {
    write_file_atomically(values["output"].as<std::string>(), text);
  } else {
    std::cout << text;
  }
}

std::string needed_baseline(const po::variables_map& values, const Results& results, const char* command) {
  if (values.count("baseline") != 0) return values["baseline"].as<std::string>();
  if (!results.config.baseline.empty()) return results.config.baseline;
  throw Error(ErrorKind::usage, std::string("swaplab ") + command + " needs --baseline POLICY");
}

Results open_results(const po::variables_map& values, const char* command) {
  if (values.count("results") == 0 || values["results"].as<std::vector<std::string>>().size() != 1)
    throw Error(ErrorKind::usage, std::string("swaplab ") + command + " needs one results folder");
  return load_results(values["results"].as<std::vector<std::string>>()[0]);
}

CompareOptions read_options(const po::variables_map& values, const Results& results) {
  CompareOptions options;
  options.metric = values.count("metric") != 0 ? values["metric"].as<std::string>() : results.config.metric;
  Ppm threshold = results.config.threshold_ppm;
  if (values.count("threshold") != 0) {
    const std::string problem =
        parse_fraction(values["threshold"].as<std::string>(), 0, kUnchanged, threshold);
    if (!problem.empty()) throw Error(ErrorKind::usage, "--threshold: " + problem);
  }
  options.threshold = static_cast<double>(threshold) / 1e6;
  Ppm confidence = 950'000;
  const std::string problem =
      parse_fraction(values["confidence"].as<std::string>(), 500'000, 999'999, confidence);
  if (!problem.empty()) throw Error(ErrorKind::usage, "--confidence: " + problem);
  options.confidence = static_cast<double>(confidence) / 1e6;
  return options;
}

}  // namespace

int compare_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("baseline", po::value<std::string>(),
                                               "policy to compare with (default: the sweep file's)")(
      "candidate", po::value<std::vector<std::string>>()->composing(),
      "policy to judge; repeatable (default: all others)")(
      "metric", po::value<std::string>(),
      "figure to compare: a tag of the results' metrics.json (default: the sweep file's)")(
      "threshold", po::value<std::string>(), "smallest relative difference that matters, e.g. 1%")(
      "confidence", po::value<std::string>()->default_value("95%"),
      "of intervals; 1 - it is the test's level")(
      "resamples", po::value<std::uint32_t>()->default_value(10'000), "bootstrap resamples")(
      "ignore-failures", "give a verdict although one side failed where the other ran")(
      "fail-on", po::value<std::string>(), "worse | not-better: exit code 1 when a verdict is so")(
      "pairs", "show every pair")("worst", po::value<std::size_t>()->default_value(3), "worst pairs to name")(
      "format", po::value<std::string>()->default_value("text"), "text | markdown | latex | json")(
      "json", "the same as --format json")("output,o", po::value<std::string>(), "write to this file")(
      "results", po::value<std::vector<std::string>>(), "results folder (positional)");
  const po::variables_map values = parse_options(arguments, options, "results");
  if (values.count("help") != 0) {
    std::cout << kCompareHelp << options;
    return kExitOk;
  }
  const Results results = open_results(values, "compare");
  CompareOptions compare = read_options(values, results);
  compare.resamples = values["resamples"].as<std::uint32_t>();
  if (compare.resamples < 100 || compare.resamples > 10'000'000)
    throw Error(ErrorKind::usage, "--resamples must be 100 to 10000000");
  compare.ignore_failures = values.count("ignore-failures") != 0;
  std::string fail_on;
  if (values.count("fail-on") != 0) {
    fail_on = values["fail-on"].as<std::string>();
    if (fail_on != "worse" && fail_on != "not-better")
      throw Error(ErrorKind::usage, "--fail-on must be worse or not-better, found '" + fail_on + "'");
  }
  std::vector<std::string> candidates;
  if (values.count("candidate") != 0) candidates = values["candidate"].as<std::vector<std::string>>();
  const std::vector<Comparison> comparisons =
      compare_policies(results.records, needed_baseline(values, results, "compare"), candidates, compare);
  const std::string format = values.count("json") != 0 ? "json" : values["format"].as<std::string>();
  ComparisonTextOptions text;
  text.pairs = values.count("pairs") != 0;
  text.worst = values["worst"].as<std::size_t>();
  if (format == "text") {
    output(values, comparison_text(comparisons, compare, text));
  } else if (format == "markdown") {
    output(values, comparison_markdown(comparisons, compare));
  } else if (format == "latex") {
    output(values, comparison_latex(comparisons, compare));
  } else if (format == "json") {
    output(values, comparison_json(comparisons, compare));
  } else {
    throw Error(ErrorKind::usage, "--format must be text, markdown, latex or json, found '" + format + "'");
  }
  for (const Comparison& c : comparisons) {
    if (fail_on == "worse" && c.verdict == Verdict::worse) return kExitVerdict;
    if (fail_on == "not-better" && c.verdict != Verdict::better) return kExitVerdict;
  }
  return kExitOk;
}

int sensitivity_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("baseline", po::value<std::string>(),
                                               "policy to compare with (default: the sweep file's)")(
      "candidate", po::value<std::string>(), "policy to judge")(
      "metric", po::value<std::string>(),
      "figure to compare: a tag of the results' metrics.json (default: the sweep file's)")(
      "confidence", po::value<std::string>()->default_value("95%"), "width of the bands")(
      "json", "JSON instead of tables")("output,o", po::value<std::string>(), "write to this file")(
      "results", po::value<std::vector<std::string>>(), "results folder (positional)");
  const po::variables_map values = parse_options(arguments, options, "results");
  if (values.count("help") != 0) {
    std::cout << kSensitivityHelp << options;
    return kExitOk;
  }
  const Results results = open_results(values, "sensitivity");
  if (values.count("candidate") == 0)
    throw Error(ErrorKind::usage, "swaplab sensitivity needs --candidate POLICY");
  const Sensitivity s = sensitivity_of(results.records, needed_baseline(values, results, "sensitivity"),
                                       values["candidate"].as<std::string>(), read_options(values, results));
  output(values, values.count("json") != 0 ? sensitivity_json(s) : sensitivity_text(s));
  return kExitOk;
}

}  // namespace swaplab
