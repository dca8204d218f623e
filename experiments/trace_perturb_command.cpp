#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"
#include "trace/perturb/perturb.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp =
    R"(swaplab trace perturb FILE -o OUT --apply 'KIND:PARAMETER=VALUE,...@ITERATIONS' ... [--seed N] [--iterations N]
swaplab trace perturb --list

Changes single iterations of a trace the way training changes them, each time with its ground truth: the
header of OUT lists kind, iteration, first and last operator of every change. Policies never see that list.
Several --apply work one after the other. The same input, requests and seed give the same bytes.

ITERATIONS (numbers of the input, after --iterations):
  @3  @5-9  @1,4-6   these           @every=4   the 4th, 8th, ... that the kind applies to
  @rate=0.1          each with that probability            @all   every one (default)

examples:
  swaplab trace perturb configs/traces/gpt_small.jsonl.gz -o varied.jsonl.gz --iterations 20 --seed 7 \
      --apply validation@every=5 --apply skip_step@rate=0.1 --apply sequence_length:to=96@8-11
  swaplab trace perturb configs/traces/moe.jsonl.gz -o rerouted.jsonl.gz --apply moe_routing:shift=0.3

)";

void print_list(bool json) {
  if (json) {
    Json all = Json::array();
    for (const PerturbationKind* kind : perturbation_list()) {
      Json parameters = Json::array();
      for (const auto& row : kind->describe())
        parameters.push_back(
            {{"name", row.name}, {"range", row.range}, {"default", row.value}, {"about", row.description}});
      all.push_back(
          {{"name", kind->info().name}, {"summary", kind->info().summary}, {"parameters", parameters}});
    }
    std::cout << all.dump(1) << '\n';
    return;
  }
  for (const PerturbationKind* kind : perturbation_list()) {
    std::printf("%-16s %s\n", std::string(kind->info().name).c_str(),
                std::string(kind->info().summary).c_str());
    for (const auto& row : kind->describe()) {
      std::printf("  %-14s %s (%s, default %s)\n", row.name.c_str(), row.description.c_str(),
                  row.range.c_str(), row.value.c_str());
    }
  }
}

void print_report(const Trace& before, const Trace& after, const PerturbationReport& report) {
  for (const auto& applied : report.applied) {
    std::printf("%s: changed %u of %u scheduled iteration%s\n", applied.text.c_str(), applied.changed,
                applied.scheduled, applied.scheduled == 1 ? "" : "s");
    if (applied.changed == 0)
      std::fprintf(stderr, "warning: '%s' found nothing to change\n", applied.text.c_str());
  }
  std::printf("operators %zu -> %zu, peak %s -> %s, iterations %zu -> %zu\n\n", before.ops.size(),
              after.ops.size(), human_bytes(before.peak_bytes).c_str(), human_bytes(after.peak_bytes).c_str(),
              before.iterations.size(), after.iterations.size());
  if (report.marks.empty()) return;
  TextTable table({"change", "iteration", "first operator", "last operator", "new or altered", "removed"}, 1);
  constexpr std::size_t kShown = 20;
  for (std::size_t i = 0; i < report.marks.size() && i < kShown; ++i) {
    const PerturbationMark& m = report.marks[i];
    table.add({m.kind, std::to_string(m.iteration), std::to_string(m.first_op), std::to_string(m.last_op),
               std::to_string(m.changed), std::to_string(m.removed)});
  }
  std::fputs(table.text().c_str(), stdout);
  if (report.marks.size() > kShown)
    std::printf("... and %zu more (--json lists all)\n", report.marks.size() - kShown);
}

Json report_json(const std::string& output, const Trace& before, const Trace& after,
                 const PerturbationReport& report) {
  Json j;
  j["output"] = output;
  j["operators_before"] = before.ops.size();
  j["operators_after"] = after.ops.size();
  j["peak_bytes_before"] = before.peak_bytes.value;
  j["peak_bytes_after"] = after.peak_bytes.value;
  j["applied"] = Json::array();
  for (const auto& a : report.applied)
    j["applied"].push_back({{"request", a.text}, {"scheduled", a.scheduled}, {"changed", a.changed}});
  j["changes"] = Json::array();
  for (const PerturbationMark& m : report.marks) {
    j["changes"].push_back({{"kind", m.kind},
                            {"iteration", m.iteration},
                            {"first_op", m.first_op},
                            {"last_op", m.last_op},
                            {"changed", m.changed},
                            {"removed", m.removed}});
  }
  return j;
}

}  // namespace

int trace_perturb_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("list", "the kinds and their parameters")(
      "output,o", po::value<std::string>(),
      "file to write; format by extension (.swt, .jsonl, .jsonl.gz, .jsonl.zst)")(
      "apply", po::value<std::vector<std::string>>()->composing(), "one perturbation; may be repeated")(
      "seed", po::value<std::uint64_t>()->default_value(0), "seed of all random choices")(
      "iterations", po::value<std::uint32_t>(), "continue the recording to this many iterations first")(
      "json", "JSON instead of tables")("file", po::value<std::vector<std::string>>(), "trace (positional)");
  const po::variables_map values = parse_options(arguments, options, "file");
  if (values.count("help") != 0) {
    std::cout << kHelp << options << "\nkinds:\n" << std::flush;
    print_list(false);
    return kExitOk;
  }
  if (values.count("list") != 0) {
    print_list(values.count("json") != 0);
    return kExitOk;
  }
  if (values.count("file") == 0 || values["file"].as<std::vector<std::string>>().size() != 1 ||
      values.count("output") == 0 || values.count("apply") == 0) {
    throw Error(ErrorKind::usage, "swaplab trace perturb needs one file, -o OUT and at least one --apply");
  }
  check_trace_output(values["output"].as<std::string>(), values["file"].as<std::vector<std::string>>());
  std::vector<PerturbationRequest> requests;
  for (const std::string& text : values["apply"].as<std::vector<std::string>>())
    requests.push_back(parse_perturbation(text));
  ReadReport read;
  Trace before = read_trace(values["file"].as<std::vector<std::string>>()[0], &read);
  print_warnings(read);
  if (values.count("iterations") != 0)
    before = extend_iterations(before, values["iterations"].as<std::uint32_t>());
  PerturbationReport report;
  const Trace after = perturb_trace(before, requests, values["seed"].as<std::uint64_t>(), &report);
  const TraceReport examined = examine_trace(after);
  if (!examined.problems.empty()) {
    throw Error(ErrorKind::invariant, "the perturbed trace is not consistent: " + examined.problems.front());
  }
  const std::string output = values["output"].as<std::string>();
  write_trace(after, output);
  if (values.count("json") != 0) {
    std::cout << report_json(output, before, after, report).dump(1) << '\n';
  } else {
    print_report(before, after, report);
  }
  return kExitOk;
}

}  // namespace swaplab
