// `swaplab trace synth`: eager traces from a description.
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "sim/cost_model.hpp"
#include "sim/machine_io.hpp"
#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/io.hpp"
#include "trace/synth/synth.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp = R"(swaplab trace synth CONFIG [-o OUT] [KEY=VALUE ...] [--machine NAME] [--json]

Makes the eager trace of a training program from its description: every ATen operator of forward pass,
backward pass and optimizer, with the storages and frees that PyTorch would produce. CONFIG is a file or one
of the names that --list shows; KEY=VALUE overrides a key of it (--keys explains all of them).

A .swt is written while it is generated, in bounded memory however many iterations there are.

Signatures carry FLOP and bytes, so that `--times model` replays the trace on any machine; --machine NAME writes
that machine's device times into it.

examples:
  swaplab trace synth --list
  swaplab trace synth gpt2-medium -o gpt2.jsonl.gz
  swaplab trace synth gpt2-medium -o long.jsonl.zst training.sequence=1024,768,512 training.validation_every=2
  swaplab trace synth llama3-8b parallel.data=8 parallel.zero=3 training.recompute=full --machine h100-pcie5

)";

struct ClassWork {
  std::int64_t kernels = 0, flop = 0, bytes = 0, device_time_ns = 0;
};

// Work of one iteration by operator class; collectives by kind, bytes, ranks and group.
Json work_json(const Trace& trace, const Iteration& iteration) {
  std::map<std::string, ClassWork> classes;
  std::map<std::pair<std::string, std::string>, std::int64_t> collectives;
  std::int64_t views = 0;
  for (std::uint32_t op = iteration.first_op; op < iteration.end_op; ++op) {
    const auto i = index(trace.ops.signature[op]);
    const std::string_view name = trace.op_name(op);
    if (trace.signatures.view[i] != 0) {
      ++views;
      continue;
    }
    const bool collective = name.starts_with("c10d.");
    if (collective) ++collectives[{std::string(name), std::string(trace.names[trace.signatures.detail[i]])}];
    ClassWork& work =
        classes[collective ? "collective" : std::string(op_class_name(classify_operator(name)))];
    ++work.kernels;
    work.flop += trace.signatures.flop[i];
    work.bytes += (trace.signatures.read[i] + trace.signatures.written[i]).value;
    if (trace.has_device_times()) work.device_time_ns += trace.ops.device_time[op].value;
  }
  Json j;
  j["views"] = views;
  for (const auto& [name, work] : classes) {
    Json& c = j["classes"][name];
    c["kernels"] = work.kernels;
    c["flop"] = work.flop;
    c["bytes"] = work.bytes;
    if (trace.has_device_times()) c["device_time_ns"] = work.device_time_ns;
  }
  static constexpr const char* groups[] = {"tensor", "data", "pipeline", "expert"};
  j["collectives"] = Json::array();
  for (const auto& [key, count] : collectives) {
    const Json attributes = Json::parse(key.second)["attr"];
    j["collectives"].push_back({{"operator", key.first},
                                {"bytes", attributes[0]},
                                {"ranks", attributes[1]},
                                {"group", groups[attributes[2].get<std::size_t>()]},
                                {"count", count}});
  }
  return j;
}

// Both limits of the roofline at 100 % efficiency, by signature: what fitting efficiencies needs.
Json roofline_json(const Trace& trace, const Machine& machine) {
  Machine compute = machine, memory = machine;
  compute.efficiency.fill(Efficiency{});
  memory.efficiency.fill(Efficiency{});
  compute.kernel_floor = memory.kernel_floor = Nanos{0};
  constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;
  compute.hbm_bytes_per_second = kNoLimit;
  memory.flop_rates = {kNoLimit, kNoLimit, kNoLimit, kNoLimit, kNoLimit};
  Json rows = Json::array();
  for (auto it = trace.iterations.rbegin(); it != trace.iterations.rend(); ++it) {
    if (it->kind != IterationKind::train) continue;
    std::vector<std::int64_t> count(trace.signatures.size());
    for (std::uint32_t op = it->first_op; op < it->end_op; ++op) ++count[index(trace.ops.signature[op])];
    for (std::uint32_t i = 0; i < count.size(); ++i) {
      const std::string_view name = trace.names[trace.signatures.name[i]];
      if (count[i] == 0 || trace.signatures.view[i] != 0 || name.starts_with("c10d.")) continue;
      rows.push_back({{"class", op_class_name(classify_operator(name))},
                      {"count", count[i]},
                      {"compute_ns", model_device_time(trace, SigId{i}, compute).value},
                      {"memory_ns", model_device_time(trace, SigId{i}, memory).value}});
    }
    break;
  }
  return rows;
}

// The machine's roofline as each operator's device time.
void bake_times(Trace& trace, const Machine& machine) {
  std::vector<Nanos> by_signature;
  for (std::uint32_t s = 0; s < trace.signatures.size(); ++s)
    by_signature.push_back(model_device_time(trace, SigId{s}, machine));
  std::vector<Nanos> times;
  times.reserve(trace.ops.size());
  for (const SigId signature : trace.ops.signature) times.push_back(by_signature[index(signature)]);
  trace.ops.device_time = Column<Nanos>(std::move(times));
}

Json summary_json(const std::string& output, const Trace& trace, const TraceReport& report) {
  static constexpr const char* classes[] = {"activation_or_other", "param", "grad", "opt", "buffer", "data"};
  Json j;
  j["file"] = output;
  j["workload"] = trace.header.model;
  j["operators"] = report.operators;
  j["storages"] = report.storages;
  j["peak_bytes"] = report.peak_bytes.value;
  j["live_at_end_bytes"] = report.live_bytes.value;
  for (std::size_t c = 0; c < 6; ++c) j["at_peak_bytes"][classes[c]] = report.bytes_by_class_at_peak[c].value;
  for (const IterationSummary& it : report.iterations) {
    Json i;
    i["number"] = it.iteration.number;
    i["kind"] = it.iteration.kind == IterationKind::train ? "train" : "val";
    i["operators"] = it.iteration.end_op - it.iteration.first_op;
    i["peak_bytes"] = it.peak_bytes.value;
    if (trace.has_device_times()) i["device_time_ns"] = it.device_time.value;
    j["iterations"].push_back(std::move(i));
  }
  for (auto it = trace.iterations.rbegin(); it != trace.iterations.rend(); ++it) {
    if (it->kind != IterationKind::train) continue;
    j["last_training_iteration"] = work_json(trace, *it);
    break;
  }
  return j;
}

void print_summary(const std::string& output, const Trace& trace, const TraceReport& report) {
  std::printf("%s%s%llu operators, %llu storages, peak %s, live at end %s\n", output.c_str(),
              output.empty() ? "" : ": ", static_cast<unsigned long long>(report.operators),
              static_cast<unsigned long long>(report.storages), human_bytes(report.peak_bytes).c_str(),
              human_bytes(report.live_bytes).c_str());
  TextTable table({"iteration", "kind", "operators", "peak", "live at end", "device time"}, 2);
  constexpr std::size_t kShown = 40;
  const std::size_t shown = report.iterations.size() <= kShown + 1 ? report.iterations.size() : kShown;
  for (const IterationSummary& it : std::span(report.iterations).first(shown)) {
    table.add({std::to_string(it.iteration.number),
               std::string(it.iteration.kind == IterationKind::train ? "train" : "val") +
                   (it.iteration.step_skipped ? " (step skipped)" : ""),
               std::to_string(it.iteration.end_op - it.iteration.first_op), human_bytes(it.peak_bytes),
               human_bytes(it.live_at_end), trace.has_device_times() ? human_time(it.device_time) : "-"});
  }
  std::fputs(table.text().c_str(), stdout);
  if (shown < report.iterations.size())
    std::printf("... and %zu more iterations (--json has all)\n", report.iterations.size() - shown);
}

int list(bool json) {
  Json all = Json::array();
  TextTable table({"workload", "summary"}, 2);
  for (const synth::WorkloadListing& w : synth::list_workloads()) {
    all.push_back({{"name", w.name}, {"summary", w.summary}, {"path", w.path}});
    table.add({w.name, w.summary});
  }
  if (json)
    std::cout << all.dump(1) << '\n';
  else
    std::fputs(table.text().c_str(), stdout);
  return kExitOk;
}

}  // namespace

int trace_synth_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("output,o", po::value<std::string>(),
                                               "file to write; without it only the summary is printed")(
      "machine", po::value<std::string>(), "writes this machine's modelled device times into the trace")(
      "list", "the workloads that are known by name")("keys", "every key with default, form and meaning")(
      "roofline", "with --machine and --json: both limits of each kernel at 100 % efficiency")(
      "show", "the resolved description as JSON, nothing is generated")("json", "JSON instead of text")(
      "words", po::value<std::vector<std::string>>(), "CONFIG and KEY=VALUE (positional)");
  const po::variables_map values = parse_options(arguments, options, "words");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  if (values.count("list") != 0) return list(values.count("json") != 0);
  if (values.count("keys") != 0) {
    std::cout << synth::workload_reference();
    return kExitOk;
  }
  std::string config_name;
  std::vector<std::string> overrides;
  if (values.count("words") != 0) {
    for (const std::string& word : values["words"].as<std::vector<std::string>>()) {
      if (word.find('=') != std::string::npos)
        overrides.push_back(word);
      else if (config_name.empty())
        config_name = word;
      else
        throw Error(ErrorKind::usage, "one CONFIG at a time; found '" + config_name + "' and '" + word + "'");
    }
  }
  if (config_name.empty())
    throw Error(ErrorKind::usage, "swaplab trace synth needs a CONFIG (--list shows those known by name)");
  if (values.count("output") != 0) check_trace_output(values["output"].as<std::string>(), {config_name});
  const synth::WorkloadConfig config = synth::load_workload(config_name, overrides);
  if (values.count("show") != 0) {
    std::cout << Json::parse(synth::workload_json(config)).dump(1) << '\n';
    return kExitOk;
  }
  std::string output;
  if (values.count("output") != 0) output = values["output"].as<std::string>();
  // Without times to add, a .swt grows on disk: such a trace may be larger than memory.
  const bool streamed = output.ends_with(".swt") && values.count("machine") == 0;
  MappedTrace mapped;
  if (streamed) {
    synth::synthesize_to_swt(config, output);
    mapped = map_trace(output);
  }
  Trace trace = streamed ? mapped.trace : synth::synthesize(config);
  Json roofline;
  if (values.count("machine") != 0) {
    const Machine machine = load_machine(values["machine"].as<std::string>());
    bake_times(trace, machine);
    if (values.count("roofline") != 0) roofline = roofline_json(trace, machine);
  } else if (values.count("roofline") != 0) {
    throw Error(ErrorKind::usage, "--roofline needs --machine");
  }
  if (!output.empty() && !streamed) write_trace(trace, output);
  const TraceReport report = examine_trace(trace, mapped.forget_pages);
  if (values.count("json") != 0) {
    Json summary = summary_json(output, trace, report);
    if (!roofline.is_null()) summary["roofline"] = std::move(roofline);
    std::cout << summary.dump(1) << '\n';
  } else {
    print_summary(output, trace, report);
  }
  return kExitOk;
}

}  // namespace swaplab
