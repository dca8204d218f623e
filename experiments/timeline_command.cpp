#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/report/timeline.hpp"
#include "experiments/sweep/machine_override.hpp"
#include "experiments/sweep/rerun.hpp"
#include "experiments/text.hpp"
#include "sim/machine_io.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

constexpr const char* kHelp = R"(swaplab timeline RESULTS --run N -o FILE
swaplab timeline --trace T --policy P --budget B [--machine M ...] -o FILE

Repeats one run and writes what every stream, copy engine and the host did: Perfetto's native format for
https://ui.perfetto.dev (FILE.pftrace), or Chrome's JSON (FILE.json); .gz compresses. Flows lead from a
decision to its copy to the stall that waited for it; the stall slices add up to the run's stalls.

examples:
  swaplab timeline results/policy-ab-1f3c --run 12 -o run-12.pftrace
  swaplab timeline --trace configs/traces/gpt_small.jsonl.gz --policy lru --budget 0.6x -o lru.pftrace

)";

Rerun single_run(const po::variables_map& values) {
  for (const char* needed : {"trace", "policy"}) {
    if (values.count(needed) == 0)
      throw Error(ErrorKind::usage,
                  "swaplab timeline needs a results folder and --run N, or --trace and --policy");
  }
  const auto policies = parse_policies(values["policy"].as<std::string>());
  const auto budgets = parse_budgets(values["budget"].as<std::string>());
  if (policies.size() != 1 || budgets.size() != 1)
    throw Error(ErrorKind::usage, "a timeline is of one policy at one budget");
  const std::string path = values["trace"].as<std::string>();
  Trace trace = read_trace(path);
  if (values.count("iterations") != 0)
    trace = extend_iterations(trace, values["iterations"].as<std::uint32_t>());
  Machine machine = load_machine(values["machine"].as<std::string>());
  if (values.count("set") != 0) {
    for (const std::string& assignment : values["set"].as<std::vector<std::string>>())
      apply_figure_assignment(machine, assignment);
  }
  RunSettings settings;
  settings.bounds = false;
  if (values.count("times") != 0) {
    const std::string times = values["times"].as<std::string>();
    if (times != "trace" && times != "model")
      throw Error(ErrorKind::usage, "--times must be trace or model, found '" + times + "'");
    settings.times = times == "trace" ? TimeSource::trace : TimeSource::model;
  }
  const std::string allocator = values["allocator"].as<std::string>();
  settings.allocator = parse_allocator(allocator);
  Rerun run;
  run.prepared = std::make_unique<const PreparedRuns>(path, std::make_shared<const Trace>(std::move(trace)),
                                                      std::move(machine), settings);
  run.schedule.keep_timeline = true;
  run.row = run.prepared->run(policies[0], budgets[0], &run.schedule);
  run.title = path + ", " + run.row.label + " at " + run.row.budget_text;
  return run;
}

}  // namespace

int timeline_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("run", po::value<std::size_t>(),
                                               "number of the run in the results")(
      "output,o", po::value<std::string>(), "file to write: .pftrace or .json, with .gz compressed")(
      "trace", po::value<std::string>(), "trace file")("policy", po::value<std::string>(), "policy")(
      "budget", po::value<std::string>()->default_value("0.6x"), "device memory")(
      "machine", po::value<std::string>()->default_value("h100-pcie5"), "name or file")(
      "set", po::value<std::vector<std::string>>()->composing(),
      "FIGURE=VALUE of the machine, e.g. links.bandwidth=2x")(
      "iterations", po::value<std::uint32_t>(), "continue the recording to this many iterations")(
      "times", po::value<std::string>(), "trace | model")(
      "allocator", po::value<std::string>()->default_value("caching"), "caching | stitching | ideal")(
      "json", "the summary as JSON")("results", po::value<std::vector<std::string>>(),
                                     "results folder (positional)");
  const po::variables_map values = parse_options(arguments, options, "results");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  if (values.count("output") == 0) throw Error(ErrorKind::usage, "swaplab timeline needs -o FILE");
  const std::string path = values["output"].as<std::string>();
  const bool json_format = path.ends_with(".json") || path.ends_with(".json.gz");
  if (!json_format && !path.ends_with(".pftrace") && !path.ends_with(".pftrace.gz"))
    throw Error(ErrorKind::usage, "-o " + path + ": expected .pftrace or .json (with .gz if you like)");
  Rerun run;
  if (values.count("results") != 0) {
    if (values.count("run") == 0) throw Error(ErrorKind::usage, "swaplab timeline RESULTS needs --run N");
    run = rerun_from(values["results"].as<std::vector<std::string>>()[0], values["run"].as<std::size_t>());
  } else {
    run = single_run(values);
  }
  const Timeline timeline = make_timeline(run.prepared->program(), run.schedule, run.title);
  write_file_atomically(
      path, compress_for(path, json_format ? chrome_trace_json(timeline) : perfetto_trace(timeline)));

  std::array<Nanos, kStallCount> slices{}, metric{};
  for (const StallSlice& slice : run.schedule.stalls)
    slices[static_cast<std::size_t>(slice.stall)] += slice.end - slice.start;
  Nanos busy{0}, total{0};
  for (const IterationMetrics& it : run.row.result.iterations) {
    busy += it.compute_busy;
    total += it.time();
    for (std::size_t s = 0; s < kStallCount; ++s) metric[s] += it.stalls[s];
  }
  if (run.row.result.outcome == Outcome::ok && slices != metric)
    throw Error(ErrorKind::invariant, "the timeline's stall slices do not add up to the run's stalls");
  if (values.count("json") != 0) {
    nlohmann::ordered_json j;
    j["file"] = path;
    j["outcome"] = outcome_name(run.row.result.outcome);
    j["events"] = timeline.events.size();
    j["total_ns"] = total.value;
    j["compute_busy_ns"] = busy.value;
    for (std::size_t s = 0; s < kStallCount; ++s)
      j["stall_" + std::string(stall_name(static_cast<Stall>(s))) + "_ns"] = slices[s].value;
    std::cout << j.dump(1) << '\n';
    return kExitOk;
  }
  std::cout << "wrote " << path << ": " << run.title << ", " << outcome_name(run.row.result.outcome) << ", "
            << timeline.events.size() << " events\n";
  TextTable table({"all iterations", "time"}, 1);
  table.add({"compute busy", human_time(busy)});
  for (std::size_t s = 0; s < kStallCount; ++s) {
    if (slices[s] > Nanos{0})
      table.add({"stall " + std::string(stall_name(static_cast<Stall>(s))), human_time(slices[s])});
  }
  table.add({"sum", human_time(total)});
  std::cout << table.text();
  return kExitOk;
}

}  // namespace swaplab
