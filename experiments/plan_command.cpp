// `swaplab plan`: the public generator's plan for one iteration of a recording.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/study.hpp"
#include "experiments/text.hpp"
#include "policy/chameleon/params.hpp"
#include "policy/chameleon/plan_json.hpp"
#include "policy/registry.hpp"
#include "sim/machine_io.hpp"
#include "trace/error.hpp"
#include "trace/io.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using chameleon::IterationProfile;
using chameleon::SwapPlan;

constexpr const char* kHelp =
    R"(swaplab plan: what the Chameleon / SmartSwap generator would swap in one iteration

Builds the profile of one recorded iteration (operator names, operands, live bytes, whole-iteration time;
no time of a single operator) and prints the plan: which storages leave, why, when, what need is left.

examples:
  swaplab plan --trace gpt.jsonl.gz --policy chameleon:n_layers=12 --budget 0.6x
  swaplab plan --trace gpt.jsonl.gz --policy chameleon:preset=public,n_layers=4,reduction_memory=64MiB \
               --iteration 2 --json
  swaplab plan --trace gpt.jsonl.gz --policy chameleon:version=v2,tensor_size_filter=64KiB

Operator times are those of 'swaplab run': a CPU recording's come from the cost model of --machine, and the
iteration takes what it takes there without a memory limit; --times trace sums the recorded device times.

Without swaps in the recording the target is the iteration's peak - reduction_memory (target_mode=false) or
target_memory (true). Shares (preset scaled) are shares of --budget.

)";

std::string storage_text(const Trace& trace, std::int64_t id) {
  const std::string_view name = trace.names[trace.storages.name[static_cast<std::size_t>(id)]];
  return std::to_string(id) + (name.empty() ? "" : " " + std::string(name));
}

std::string operator_text(const IterationProfile& p, std::int64_t op) {
  if (op < 0) return "step";
  return std::to_string(op) + " " + p.names[p.name[static_cast<std::size_t>(op)]];
}

std::string percent(std::uint32_t part, std::size_t whole) {
  return whole == 0 ? "-" : std::to_string(part * 100ULL / whole) + "%";
}

void print_plan(const Trace& trace, const chameleon::TraceProfile& input,
                const chameleon::GeneratorParams& params, const SwapPlan& plan) {
  const IterationProfile& p = input.profile;
  const bool v1 = params.version == chameleon::GeneratorVersion::v1;
  Bytes largest{0}, left{0}, bytes{0};
  std::size_t unmet = 0;
  for (std::size_t i = 0; i < plan.needs.size(); ++i) {
    largest = std::max(largest, plan.needs[i].need);
    if (plan.needs_left[i] > Bytes{0}) ++unmet;
    left = std::max(left, plan.needs_left[i]);
  }
  for (const auto& s : plan.selected) bytes += p.storages[s.tensor].bytes;
  std::printf("iteration %lld: %u operators, %zu stages, %s assumed\n",
              static_cast<long long>(input.iteration), p.op_count(), plan.stages.size(),
              human_time(p.duration).c_str());
  std::printf("peak %s, target %s: %zu operators above it, by up to %s\n",
              human_bytes(plan.max_memory).c_str(), human_bytes(plan.target_memory).c_str(),
              plan.needs.size(), human_bytes(largest).c_str());
  if (v1) {
    std::printf("%zu candidates, %zu selected (%s) in %zu rounds; %s\n\n", plan.candidates.size(),
                plan.selected.size(), human_bytes(bytes).c_str(), plan.rounds.size(),
                plan.reached ? "every need is met"
                             : ("NOT reached: " + std::to_string(unmet) + " operators stay above by up to " +
                                human_bytes(left))
                                   .c_str());
  } else {
    std::printf("%zu storages leave (%s); v2 does not look at the needs\n\n", plan.selected.size(),
                human_bytes(bytes).c_str());
  }
  TextTable table(
      v1 ? std::vector<std::string>{"storage", "out after", "back for", "size", "out", "back", "free",
                                    "covers", "score", "round", "delayed"}
         : std::vector<std::string>{"storage", "out after", "back for", "size", "out", "back", "free"},
      3);
  for (const std::uint32_t i : plan.emitted) {
    const chameleon::Selection& s = plan.selected[i];
    std::vector<std::string> row{storage_text(trace, p.storages[s.tensor].id),
                                 s.optimizer ? "step" : operator_text(p, s.out_op),
                                 s.optimizer ? "optimizer" : operator_text(p, s.in_op),
                                 human_bytes(p.storages[s.tensor].bytes),
                                 plan.stages[s.out_stage].name(),
                                 plan.stages[s.in_stage].name(),
                                 plan.stages[s.free_stage].name()};
    if (v1) {
      char score[32];
      std::snprintf(score, sizeof score, "%.3f", plan.candidates[s.candidate].score);
      row.insert(row.end(), {percent(s.coverage.count(), plan.needs.size()), score,
                             std::to_string(s.round + 1), s.delayed ? "yes" : "no"});
    }
    table.add(std::move(row));
  }
  std::fputs(table.text().c_str(), stdout);
  std::puts(
      "\nstages are direction.micro-batch.layer; 'covers' is the share of the operators above the target");
}

// Time of the iteration when nothing limits its memory, as the two events of an online profiler measure it.
Nanos modelled_duration(const Trace& trace, const Machine& machine, std::int64_t iteration) {
  const Program program = compile_program(trace, machine, TimeSource::model);
  const auto policy = find_policy("none").make({});
  const RunResult run = run_program(program, machine, *policy, RunOptions{});
  for (const IterationMetrics& it : run.iterations) {
    if (it.number == iteration) return it.time();
  }
  throw Error(ErrorKind::input, "iteration " + std::to_string(iteration) + " has no operators to time");
}

}  // namespace

int plan_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("trace", po::value<std::string>(), "trace file")(
      "policy", po::value<std::string>()->default_value("chameleon"),
      "chameleon[:param=value,...]; parameters: policy/chameleon/README.md")(
      "iteration", po::value<std::int64_t>(),
      "number of the iteration (default: the last unskipped training iteration)")(
      "budget", po::value<std::string>()->default_value("0.5x"),
      "what shares refer to: 0.5x of the iteration's own peak, or 16GiB")(
      "machine", po::value<std::string>()->default_value("h100-pcie5"),
      "whose cost model gives the times; see 'swaplab machines list'")(
      "times", po::value<std::string>(),
      "device times: trace | model (default: trace for GPU recordings, else model)")(
      "ops", po::value<std::string>()->default_value("all"), "all | nonview: whether views are operators")(
      "json", "one JSON document in the fields of the public generator's reference outputs");
  const po::variables_map values = parse_options(arguments, options, "trace");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  if (values.count("trace") == 0) throw Error(ErrorKind::usage, "plan needs --trace FILE");
  const chameleon::ChameleonParams params = chameleon::parse_chameleon(values["policy"].as<std::string>());
  const std::string ops = values["ops"].as<std::string>();
  if (ops != "all" && ops != "nonview") {
    throw Error(ErrorKind::usage, "--ops must be all or nonview, found '" + ops + "'");
  }
  const std::vector<BudgetSpec> budgets = parse_budgets(values["budget"].as<std::string>());
  if (budgets.size() != 1) throw Error(ErrorKind::usage, "plan takes one budget");
  const std::int64_t iteration = values.count("iteration") == 0 ? -1 : values["iteration"].as<std::int64_t>();
  const std::string path = values["trace"].as<std::string>();
  ReadReport report;
  const Trace trace = read_trace(path, &report);
  print_warnings(report);
  chameleon::TraceProfile input = chameleon::profile_iteration(
      trace, iteration,
      ops == "all" ? chameleon::OperatorFilter::all : chameleon::OperatorFilter::without_views);
  IterationProfile& p = input.profile;
  p.step_out_of_memory = params.is_oom == "true";
  RunSettings settings;
  if (values.count("times") != 0) {
    const std::string times = values["times"].as<std::string>();
    if (times != "trace" && times != "model")
      throw Error(ErrorKind::usage, "--times must be trace or model, found '" + times + "'");
    settings.times = times == "trace" ? TimeSource::trace : TimeSource::model;
  }
  const std::string machine_name = values["machine"].as<std::string>();
  refuse_without_swapping(settings, trace, path);
  const TimeSource times = choose_times(settings, trace, path, machine_name, [](const std::string& text) {
    std::fprintf(stderr, "warning: %s\n", text.c_str());
  });
  if (params.duration_ns > 0) {
    p.duration = Nanos{params.duration_ns};
  } else if (times == TimeSource::model) {
    p.duration = modelled_duration(trace, load_machine(machine_name), input.iteration);
  }
  if (p.duration == Nanos{0}) {
    throw Error(ErrorKind::usage, "'" + path +
                                      "' holds no device times: give the time of one iteration with "
                                      "chameleon:duration_s=SECONDS");
  }
  Bytes peak{0};
  for (const Bytes active : p.active) peak = std::max(peak, active);
  const Bytes budget = budgets[0].resolve(peak);
  const chameleon::GeneratorParams generator = generator_params(params, budget);
  const SwapPlan plan = generate_plan(p, generator);
  if (values.count("json") == 0) {
    print_plan(trace, input, generator, plan);
    return kExitOk;
  }
  nlohmann::ordered_json config;
  config["trace"] = path;
  config["iteration"] = input.iteration;
  config["ops_filter"] = ops;
  config["times"] = params.duration_ns > 0 ? "given" : times == TimeSource::trace ? "trace" : "model";
  if (times == TimeSource::model) config["machine"] = machine_name;
  config["duration_s"] = static_cast<double>(p.duration.value) / 1e9;
  config["budget"] = budget.value;
  for (const auto& row : chameleon::chameleon_parameters()) {
    if (row.name != "duration_s") config[row.name] = row.get(params);
  }
  std::puts(plan_to_json(p, generator, plan, config.dump()).c_str());
  return kExitOk;
}

}  // namespace swaplab
