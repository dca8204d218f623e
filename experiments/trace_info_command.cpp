#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/import/import.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

std::string letter_counts(const Trace& trace, std::uint32_t first, std::uint32_t end) {
  std::array<std::uint32_t, 9> counts{};
  for (std::uint32_t op = first; op < end; ++op) ++counts[static_cast<std::size_t>(trace.ops.phase[op])];
  std::string text;
  for (std::size_t p = 0; p < counts.size(); ++p) {
    if (counts[p] == 0) continue;
    text += (text.empty() ? "" : " ") + std::string(1, phase_letter(static_cast<Phase>(p))) +
            std::to_string(counts[p]);
  }
  return text;
}

Json report_json(const std::string& path, const Trace& trace, const ReadReport& read,
                 const TraceReport& report) {
  Json j;
  j["file"] = path;
  j["format"] = read.format;
  j["model"] = trace.header.model;
  j["source"] = trace.header.source;
  j["operators"] = report.operators;
  j["storages"] = report.storages;
  j["peak_bytes"] = report.peak_bytes.value;
  j["live_at_end_bytes"] = report.live_bytes.value;
  j["streams"] = report.streams;
  j["views"] = report.views;
  j["syncs"] = report.syncs;
  j["has_device_times"] = trace.has_device_times();
  j["problems"] = report.problems;
  j["iterations"] = Json::array();
  for (const IterationSummary& it : report.iterations) {
    Json i;
    i["number"] = it.iteration.number;
    i["kind"] = it.iteration.kind == IterationKind::train ? "train" : "val";
    i["step_skipped"] = it.iteration.step_skipped;
    i["operators"] = it.iteration.end_op - it.iteration.first_op;
    i["allocations"] = it.allocations;
    i["peak_bytes"] = it.peak_bytes.value;
    i["live_at_end_bytes"] = it.live_at_end.value;
    i["device_time_ns"] = it.device_time.value;
    j["iterations"].push_back(std::move(i));
  }
  return j;
}

void print_check(const std::string& path, const TraceReport& report) {
  std::printf("%s: %s\n  operators %llu  storages %llu  peak %s  live at end %s\n", path.c_str(),
              report.problems.empty() ? "ok" : "NOT CONSISTENT",
              static_cast<unsigned long long>(report.operators),
              static_cast<unsigned long long>(report.storages), exact_bytes(report.peak_bytes).c_str(),
              exact_bytes(report.live_bytes).c_str());
  for (const std::string& problem : report.problems) std::printf("  problem: %s\n", problem.c_str());
}

void print_info(const Trace& trace, const ReadReport& read, const TraceReport& report) {
  std::printf(
      "  format %s, model %s, recorded by torch %s (%s)\n  %u stream(s), %llu views, %llu host reads, device "
      "times: %s\n",
      read.format.c_str(), trace.header.model.c_str(), trace.header.torch.c_str(),
      trace.header.source.c_str(), report.streams, static_cast<unsigned long long>(report.views),
      static_cast<unsigned long long>(report.syncs),
      trace.has_device_times() ? "in the trace" : "none (use --times model)");
  std::printf("  in memory %s, %llu B per operator\n",
              human_bytes(Bytes{static_cast<std::int64_t>(trace.memory_bytes())}).c_str(),
              static_cast<unsigned long long>(trace.memory_bytes() / report.operators));
  std::printf("  at the peak (operator %u):", report.peak_op);
  static constexpr const char* names[] = {"activation/other", "param", "grad", "opt", "buffer", "data"};
  for (std::size_t c = 0; c < 6; ++c) {
    if (report.bytes_by_class_at_peak[c] > Bytes{0})
      std::printf(" %s %s", names[c], human_bytes(report.bytes_by_class_at_peak[c]).c_str());
  }
  std::printf("\n\n");
  TextTable table(
      {"iteration", "kind", "operators", "allocations", "peak", "live at end", "device time", "by phase"}, 2);
  for (const IterationSummary& it : report.iterations) {
    table.add({std::to_string(it.iteration.number),
               std::string(it.iteration.kind == IterationKind::train ? "train" : "val") +
                   (it.iteration.step_skipped ? " (step skipped)" : ""),
               std::to_string(it.iteration.end_op - it.iteration.first_op), std::to_string(it.allocations),
               human_bytes(it.peak_bytes), human_bytes(it.live_at_end),
               it.operators_without_time == 0 ? human_time(it.device_time) : "-",
               letter_counts(trace, it.iteration.first_op, it.iteration.end_op)});
  }
  std::printf("%s\n", table.text().c_str());
  TextTable names_table({"operator", "calls"}, 1);
  for (const auto& [name, count] : report.top_operators) names_table.add({name, std::to_string(count)});
  std::fputs(names_table.text().c_str(), stdout);
}

int trace_report(const Arguments& arguments, bool with_info) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("json", "JSON instead of text")(
      "file", po::value<std::vector<std::string>>(), "trace files (positional)");
  const po::variables_map values = parse_options(arguments, options, "file");
  const std::string name = with_info ? "info" : "check";
  if (values.count("help") != 0) {
    std::cout << "swaplab trace " << name << " FILE... [--json]\n\n"
              << (with_info ? "What a trace holds: operators, storages, peak, iterations, device times.\n"
                            : "Replays every allocation and free and compares with the end record.\n")
              << "\nexample:\n  swaplab trace " << name << " configs/traces/gpt_small.jsonl.gz\n\n"
              << options;
    return kExitOk;
  }
  if (values.count("file") == 0)
    throw Error(ErrorKind::usage, "swaplab trace " + name + " needs a trace file");
  Json all = Json::array();
  bool consistent = true;
  for (const std::string& file : values["file"].as<std::vector<std::string>>()) {
    ReadReport read;
    ImportReport import;
    const Trace trace = read_any_trace(file, &read, &import);
    print_warnings(read);
    const TraceReport report = examine_trace(trace);
    consistent &= report.problems.empty();
    if (values.count("json") != 0) {
      all.push_back(report_json(file, trace, read, report));
      if (!import.format.empty()) all.back()["import"] = Json::parse(report_json_text(import));
      continue;
    }
    print_check(file, report);
    if (with_info && !import.format.empty()) print_import_report(import);
    if (with_info) print_info(trace, read, report);
  }
  if (values.count("json") != 0) std::cout << all.dump(1) << '\n';
  return consistent ? kExitOk : kExitInput;
}

}  // namespace

int trace_info_command(const Arguments& arguments) {
  return trace_report(arguments, true);
}
int trace_check_command(const Arguments& arguments) {
  return trace_report(arguments, false);
}

}  // namespace swaplab
