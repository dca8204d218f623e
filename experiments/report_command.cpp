#include <algorithm>
#include <cmath>
#include <iostream>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/report/report.hpp"
#include "experiments/sweep/rerun.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

constexpr const char* kHelp = R"(swaplab report RESULTS -o report.html

One self-contained HTML file: verdicts, every pair, slowdown over the budget beside the bound, memory
against time, where the time goes, device bytes of one run, failures, a sortable table of runs with the
command that repeats each, the manifest. It opens offline and asks for nothing.

examples:
  swaplab report results/policy-ab-1f3c -o report.html
  swaplab report results/policy-ab-1f3c -o report.html --timeline-run 12 --title "Policies at 70 % memory"

)";

// The run to draw: the baseline's at its middle budget, if nothing is asked for.
std::size_t default_run(const Results& results, const std::string& baseline) {
  std::vector<const RunRecord*> fit;
  for (const RunRecord& r : results.records) {
    if (r.ok() && (baseline.empty() || r.factor("policy") == baseline)) fit.push_back(&r);
  }
  if (fit.empty()) return results.records.front().index;
  return fit[fit.size() / 2]->index;
}

}  // namespace

int report_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("output,o", po::value<std::string>(), "HTML file to write")(
      "title", po::value<std::string>(), "title (default: the sweep's name)")(
      "baseline", po::value<std::string>(), "policy to compare with (default: the sweep file's)")(
      "metric", po::value<std::string>(),
      "figure to compare: a tag of the results' metrics.json (default: the sweep file's)")(
      "timeline-run", po::value<std::size_t>(), "run whose device bytes are drawn (it is repeated for that)")(
      "no-timeline", "leave that part out")("results", po::value<std::vector<std::string>>(),
                                            "results folder (positional)");
  const po::variables_map values = parse_options(arguments, options, "results");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  if (values.count("results") == 0 || values["results"].as<std::vector<std::string>>().size() != 1)
    throw Error(ErrorKind::usage, "swaplab report needs one results folder");
  if (values.count("output") == 0) throw Error(ErrorKind::usage, "swaplab report needs -o FILE.html");
  ReportInput input;
  input.results = load_results(values["results"].as<std::vector<std::string>>()[0]);
  input.title = values.count("title") != 0 ? values["title"].as<std::string>() : input.results.config.name;
  if (input.title.empty()) input.title = "swaplab report";
  input.baseline = values.count("baseline") != 0
                       ? resolve_policy(input.results.records, values["baseline"].as<std::string>())
                       : input.results.config.baseline;
  input.compare.metric =
      values.count("metric") != 0 ? values["metric"].as<std::string>() : input.results.config.metric;
  input.compare.threshold = static_cast<double>(input.results.config.threshold_ppm) / 1e6;
  if (values.count("no-timeline") == 0 && !input.results.folder.empty()) {
    const std::size_t index = values.count("timeline-run") != 0 ? values["timeline-run"].as<std::size_t>()
                                                                : default_run(input.results, input.baseline);
    try {
      const Rerun run = rerun_from(input.results.folder, index);
      ReportTimeline timeline;
      timeline.title = run.title;
      timeline.command = "swaplab timeline " + input.results.folder + " --run " + std::to_string(index) +
                         " -o run-" + std::to_string(index) + ".pftrace";
      timeline.budget = run.row.budget;
      timeline.curve = device_byte_curve(run.prepared->program(), run.schedule, 2'000);
      input.timeline = std::move(timeline);
    } catch (const Error& error) {
      // Results outlive their traces; the rest of the report does not need them.
      if (values.count("timeline-run") != 0 || error.kind() == ErrorKind::invariant) throw;
      std::cerr << "warning: no timeline in the report: " << error.what() << '\n';
    }
  }
  const std::string path = values["output"].as<std::string>();
  write_file_atomically(path, report_html(input));
  std::cout << "wrote " << path << ": " << input.results.records.size() << " runs\n";
  return kExitOk;
}

}  // namespace swaplab
