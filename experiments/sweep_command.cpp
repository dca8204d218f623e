#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/progress.hpp"
#include "experiments/sweep/sweep_session.hpp"
#include "experiments/sweep/sweep_slurm.hpp"
#include "experiments/text.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp = R"(swaplab sweep FILE [options] [key.path=value ...]

Runs every combination that a sweep file describes and keeps the results in a folder named by the content
of configuration and inputs. A run counts as finished when its line is on disk: after a crash or Ctrl-C,
--resume goes on from there and ends with the same results.

examples:
  swaplab sweep configs/sweeps/policy_ab.yaml --dry-run        # numbered list of the runs
  swaplab sweep configs/sweeps/policy_ab.yaml -j 8
  swaplab sweep configs/sweeps/policy_ab.yaml --resume         # after an interruption
  swaplab sweep configs/sweeps/policy_ab.yaml parameters.budget='{values: [0.5x, 0.7x]}' name=two-budgets
  swaplab sweep big.yaml --executor slurm --partition batch --shards 64 --slurm-option=--time=2:00:00

Next: swaplab compare FOLDER --baseline lru --candidate foresight; swaplab report FOLDER -o report.html
The file's keys: swaplab config schema; a checked file with every default: swaplab config show FILE

)";

void print_dry_run(const SweepPlan& plan, const std::string& folder, bool json) {
  // Only what varies is worth a column.
  std::vector<std::string> names;
  for (const auto& [name, value] : plan.runs[0].factors) {
    const std::string& factor = name;
    const std::string& first = value;
    if (std::any_of(plan.runs.begin(), plan.runs.end(),
                    [&](const PlannedRun& run) { return run.factor(factor) != first; }))
      names.push_back(factor);
  }
  if (json) {
    Json j;
    j["schema"] = "swaplab/plan@1";
    j["folder"] = folder;
    j["excluded"] = plan.excluded;
    j["runs"] = Json::array();
    for (const PlannedRun& run : plan.runs) {
      Json one;
      one["index"] = run.index;
      one["key"] = run.key;
      for (const auto& [name, value] : run.factors) one["factors"][name] = value;
      j["runs"].push_back(std::move(one));
    }
    std::cout << j.dump(1) << '\n';
    return;
  }
  std::vector<std::string> header{"run", "key"};
  header.insert(header.end(), names.begin(), names.end());
  TextTable table(header, header.size());
  for (const PlannedRun& run : plan.runs) {
    std::vector<std::string> row{std::to_string(run.index), run.key};
    for (const std::string& name : names) row.push_back(run.factor(name));
    table.add(std::move(row));
  }
  std::cout << table.text() << plan.runs.size() << " runs, " << plan.excluded << " excluded, "
            << plan.group_begin.size() - 1 << " prepared programs; results would go to " << folder << '\n';
}

void print_result(const SweepPlan& plan, const SessionResult& result, bool json) {
  std::map<std::string, std::size_t> statuses;
  std::map<std::string, std::map<std::string, std::size_t>> by_policy;
  std::vector<std::string> policies;
  for (const RunRecord& record : result.records) {
    ++statuses[record.status];
    const std::string& policy = record.factor("policy");
    if (!by_policy.contains(policy)) policies.push_back(policy);
    ++by_policy[policy][record.status];
  }
  if (json) {
    Json j;
    j["schema"] = "swaplab/sweep-result@1";
    j["folder"] = result.folder;
    j["runs"] = plan.runs.size();
    j["finished"] = result.records.size();
    j["found_finished"] = result.found;
    j["status"] = Json::object();
    for (const auto& [status, count] : statuses) j["status"][status] = count;
    j["result_sha256"] = result.result_sha256;
    std::cout << j.dump(1) << '\n';
    return;
  }
  std::vector<std::string> header{"policy"};
  for (const auto& [status, count] : statuses) header.push_back(status);
  TextTable table(header, 1);
  for (const std::string& policy : policies) {
    std::vector<std::string> row{policy};
    for (const auto& [status, count] : statuses) row.push_back(std::to_string(by_policy[policy][status]));
    table.add(std::move(row));
  }
  std::cout << table.text() << '\n'
            << result.records.size() << " of " << plan.runs.size() << " runs finished";
  if (result.found > 0) std::cout << ", " << result.found << " of them before";
  std::cout << "; results " << result.result_sha256.substr(0, 16) << " in " << result.folder
            << "\n  results.csv, results.sqlite, results.jsonl; failures.jsonl says why runs did not end\n";
  const std::string baseline = plan.config.baseline.empty() ? "POLICY" : plan.config.baseline;
  std::cout << "next: swaplab compare " << result.folder << " --baseline " << baseline
            << "\n      swaplab report " << result.folder << " -o report.html\n";
}

}  // namespace

int sweep_task_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("generation", po::value<unsigned>(),
                                               "submission of the sweep")(
      "task", po::value<unsigned>(), "array task")("jobs", po::value<unsigned>()->default_value(1),
                                                   "threads")("folder", po::value<std::vector<std::string>>(),
                                                              "results folder (positional)");
  const po::variables_map values = parse_options(arguments, options, "folder");
  if (values.count("help") != 0) {
    std::cout << "swaplab sweep-task FOLDER --generation G --task T\n\nOne task of the job array that "
                 "'swaplab sweep "
                 "--executor slurm' submits.\n\n"
              << options;
    return kExitOk;
  }
  if (values.count("folder") == 0 || values.count("generation") == 0 || values.count("task") == 0)
    throw Error(ErrorKind::usage, "swaplab sweep-task needs FOLDER, --generation and --task");
  run_slurm_task(values["folder"].as<std::vector<std::string>>()[0], values["generation"].as<unsigned>(),
                 values["task"].as<unsigned>(), jobs_of(values));
  return kExitOk;
}

int sweep_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("jobs,j", po::value<unsigned>(), kJobsHelp)(
      "executor", po::value<std::string>()->default_value("local"),
      "local, or slurm: a job array on this cluster")(
      "shards", po::value<unsigned>()->default_value(0),
      "slurm: array tasks (default: one per 8 runs, at most 64)")("partition", po::value<std::string>(),
                                                                  "slurm: partition")(
      "slurm-option", po::value<std::vector<std::string>>()->composing(),
      "slurm: an option for sbatch, e.g. --slurm-option=--time=2:00:00; repeatable")(
      "detach", "slurm: return after submission; --resume merges the results later")(
      "resume", "go on where an interrupted sweep stopped")(
      "retry-failed", "with --resume: repeat runs that ended as error, timeout, memory_limit or crashed")(
      "any-build", "resume what another build of swaplab began")("dry-run", "list the runs and stop")(
      "yes", "run more than the file's run_cap")(
      "output,o", po::value<std::string>()->default_value("results"), "where results folders go")(
      "json", "JSON instead of tables")("words", po::value<std::vector<std::string>>(),
                                        "FILE and key.path=value (positional)");
  const po::variables_map values = parse_options(arguments, options, "words");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  std::string file;
  std::vector<std::string> overrides;
  if (values.count("words") != 0) {
    for (const std::string& word : values["words"].as<std::vector<std::string>>()) {
      if (word.find('=') != std::string::npos) {
        overrides.push_back(word);
      } else if (file.empty()) {
        file = word;
      } else {
        throw Error(ErrorKind::usage,
                    "'" + word + "' is a second sweep file; one at a time (or key.path=value)");
      }
    }
  }
  if (file.empty())
    throw Error(ErrorKind::usage, "swaplab sweep needs a sweep file; see 'swaplab sweep --help'");
  const std::string executor = values["executor"].as<std::string>();
  if (executor != "local" && executor != "slurm")
    throw Error(ErrorKind::usage, "--executor must be local or slurm, found '" + executor + "'");
  for (const char* only : {"partition", "slurm-option", "detach"}) {
    if (executor == "local" && values.count(only) != 0)
      throw Error(ErrorKind::usage, std::string("--") + only + " needs --executor slurm");
  }
  const SweepPlan plan = make_plan(load_sweep_config(file, overrides), values.count("yes") != 0);
  SessionOptions session;
  session.output = values["output"].as<std::string>();
  const bool json = values.count("json") != 0;
  if (values.count("dry-run") != 0) {
    print_dry_run(plan, session.output + "/" + results_folder_name(plan), json);
    return kExitOk;
  }
  session.jobs = jobs_of(values);
  session.resume = values.count("resume") != 0;
  session.retry_failed = values.count("retry-failed") != 0;
  session.any_build = values.count("any-build") != 0;
  session.arguments = arguments;
  session.overrides = overrides;
  ProgressLine progress;
  session.progress = [&](std::size_t done, std::size_t total) { progress.update(done, total); };
  SessionResult result;
  if (executor == "slurm") {
    SlurmOptions slurm;
    slurm.shards = values["shards"].as<unsigned>();
    slurm.detach = values.count("detach") != 0;
    if (values.count("partition") != 0)
      slurm.options.push_back("--partition=" + values["partition"].as<std::string>());
    if (values.count("slurm-option") != 0) {
      for (const std::string& option : values["slurm-option"].as<std::vector<std::string>>())
        slurm.options.push_back(option);
    }
    if (values.count("jobs") != 0) slurm.options.push_back("--cpus-per-task=" + std::to_string(session.jobs));
    result = run_slurm_sweep(plan, session, slurm);
    if (slurm.detach && result.result_sha256.empty()) {
      std::cout << "submitted; results will be in " << result.folder << " (--resume merges them)\n";
      return kExitOk;
    }
  } else {
    result = run_local_sweep(plan, session);
  }
  progress.finish();
  print_result(plan, result, json);
  return kExitOk;
}

}  // namespace swaplab
