#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/prepared_runs.hpp"
#include "experiments/text.hpp"
#include "sim/analysis/dependence.hpp"
#include "sim/analysis/live_bytes.hpp"
#include "sim/analysis/reuse.hpp"
#include "sim/machine_io.hpp"
#include "sim/program.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp =
    R"(swaplab trace analyze FILE [--machine M] [--times trace|model] [--iterations N] [--json] [--plot-data CSV]

What a trace asks of memory, before any policy:
- live bytes over the operators, and what the peak consists of, by role and by the phase that made it;
- how soon bytes are needed again (reuse distance: an LRU memory of that size would still hold them);
- how long each storage lies idle, against the time of moving it out and in on the machine's link;
- the operators' dependence graph and its critical path: what any number of streams cannot beat.

examples:
  swaplab trace analyze configs/traces/gpt2_medium.jsonl.gz --machine a100-40g-pcie4
  swaplab trace analyze configs/traces/gpt_varied.jsonl.gz --plot-data live.csv
  python3 scripts/plot_live_bytes.py live.csv -o live.png

)";

struct IterationPath {
  std::int64_t number;
  std::uint32_t operators;
  std::size_t edges;
  CriticalPath data, all;
};

struct Analysis {
  LiveBytes live;
  ReuseDistances reuse;
  std::vector<IdleInterval> intervals;
  IdleSummary idle;
  std::vector<IterationPath> paths;
};

Analysis analyse(const Program& program, const Machine& machine) {
  Analysis a;
  a.live = live_bytes(program);
  a.reuse = reuse_distances(program);
  a.intervals = idle_intervals(program, machine);
  a.idle = summarise(a.intervals, a.live.peak_op);
  for (const ProgramIteration& it : program.iterations) {
    const DependenceGraph graph = build_dependences(program, {it.first_op, it.end_op});
    a.paths.push_back({it.number, graph.size(), graph.edges.size(), critical_path(program, graph, true),
                       critical_path(program, graph, false)});
  }
  return a;
}

std::string percent(std::int64_t part, std::int64_t whole) {
  if (whole <= 0) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

constexpr std::array<char, 9> kLetters = {'-', 'I', 'Z', 'D', 'F', 'B', 'R', 'O', 'E'};

void print_peak(const Program& program, const Analysis& a) {
  std::printf("peak %s at operator %u (%s, phase %c)\n", human_bytes(a.live.peak).c_str(), a.live.peak_op,
              std::string(program.names[program.name[a.live.peak_op]]).c_str(),
              phase_letter(program.phase[a.live.peak_op]));
  std::vector<std::string> header = {"live at the peak", "bytes", "share"};
  std::vector<std::size_t> shown;
  for (std::size_t p = 0; p < 9; ++p) {
    bool any = false;
    for (std::size_t r = 0; r < kRoleCount; ++r) any |= a.live.at_peak[r][p] > Bytes{0};
    if (!any) continue;
    shown.push_back(p);
    header.push_back(p == 0 ? "from before" : std::string("made in ") + kLetters[p]);
  }
  TextTable table(header, 1);
  for (std::size_t r = 0; r < kRoleCount; ++r) {
    Bytes sum;
    for (const Bytes bytes : a.live.at_peak[r]) sum += bytes;
    if (sum == Bytes{0}) continue;
    std::vector<std::string> row = {std::string(role_name(static_cast<Role>(r))), human_bytes(sum),
                                    percent(sum.value, a.live.peak.value)};
    for (const std::size_t p : shown)
      row.push_back(a.live.at_peak[r][p] == Bytes{0} ? "" : human_bytes(a.live.at_peak[r][p]));
    table.add(std::move(row));
  }
  std::printf("%s\n", table.text().c_str());
}

void print_reuse(const Analysis& a) {
  const auto& q = a.reuse.quantiles;
  std::printf("reuse: %llu accesses are the first of their storage, %llu come again\n",
              static_cast<unsigned long long>(a.reuse.first_accesses),
              static_cast<unsigned long long>(a.reuse.reuses));
  std::printf(
      "an LRU memory still holds 50 %% of the reused bytes with %s, 90 %% with %s, 99 %% with %s, all with "
      "%s\n",
      human_bytes(q[0]).c_str(), human_bytes(q[1]).c_str(), human_bytes(q[2]).c_str(),
      human_bytes(q[3]).c_str());
  TextTable table({"reuse distance", "accesses", "bytes accessed"}, 1);
  for (const auto& bucket : a.reuse.buckets) {
    if (bucket.accesses == 0) continue;
    table.add(
        {"<= " + human_bytes(bucket.up_to), std::to_string(bucket.accesses), human_bytes(bucket.bytes)});
  }
  std::printf("%s\n", table.text().c_str());
}

void print_idle(const Program& program, const Machine& machine, const Analysis& a) {
  std::printf(
      "idle: %llu intervals between accesses, %llu of them at least as long as moving the bytes out and in "
      "(%s)\n"
      "at the peak %s lie idle (%s of it), of which %s can be away without waiting for a link of their own\n",
      static_cast<unsigned long long>(a.idle.intervals), static_cast<unsigned long long>(a.idle.hideable),
      machine.name.c_str(), human_bytes(a.idle.at_peak).c_str(),
      percent(a.idle.at_peak.value, a.live.peak.value).c_str(), human_bytes(a.idle.hideable_at_peak).c_str());
  std::vector<const IdleInterval*> at_peak;
  for (const IdleInterval& i : a.intervals) {
    if (i.from < a.live.peak_op && i.to > a.live.peak_op) at_peak.push_back(&i);
  }
  std::stable_sort(at_peak.begin(), at_peak.end(),
                   [](const auto* x, const auto* y) { return x->bytes > y->bytes; });
  TextTable table({"largest idle at the peak", "bytes", "from operator", "to", "idle", "transfer", "fits"},
                  1);
  for (std::size_t i = 0; i < at_peak.size() && i < 8; ++i) {
    const IdleInterval& interval = *at_peak[i];
    const std::uint32_t s = index(interval.slot);
    std::string name(program.names[program.slot_name[s]]);
    if (name.empty()) name = std::string(program.names[program.name[interval.from]]) + " result";
    table.add({name, human_bytes(interval.bytes), std::to_string(interval.from), std::to_string(interval.to),
               human_time(interval.idle), human_time(interval.transfer), interval.hideable() ? "yes" : "no"});
  }
  std::printf("%s\n", table.text().c_str());
}

void print_paths(const Analysis& a) {
  TextTable table({"iteration", "operators", "dependences", "work", "critical path (data)",
                   "with reuse of storages", "work / path"},
                  1);
  for (const IterationPath& p : a.paths) {
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, "%.2f",
                  p.data.length.value > 0
                      ? static_cast<double>(p.data.work.value) / static_cast<double>(p.data.length.value)
                      : 0.0);
    table.add({std::to_string(p.number), std::to_string(p.operators), std::to_string(p.edges),
               human_time(p.data.work),
               human_time(p.data.length) + " in " + std::to_string(p.data.operators.size()),
               human_time(p.all.length), ratio});
  }
  std::fputs(table.text().c_str(), stdout);
}

Json analysis_json(const std::string& file, const Program& program, const Machine& machine,
                   const Analysis& a) {
  Json j;
  j["file"] = file;
  j["machine"] = machine.name;
  j["times"] = program.times == TimeSource::trace ? "trace" : "model";
  j["peak_bytes"] = a.live.peak.value;
  j["peak_op"] = a.live.peak_op;
  Json& roles = j["live_at_peak_bytes"] = Json::object();
  for (std::size_t r = 0; r < kRoleCount; ++r) {
    Json& role = roles[std::string(role_name(static_cast<Role>(r)))] = Json::object();
    for (std::size_t p = 0; p < 9; ++p) {
      if (a.live.at_peak[r][p] > Bytes{0})
        role[p == 0 ? "before" : std::string(1, kLetters[p])] = a.live.at_peak[r][p].value;
    }
  }
  Json& reuse = j["reuse"] = Json::object();
  reuse["first_accesses"] = a.reuse.first_accesses;
  reuse["reuses"] = a.reuse.reuses;
  static constexpr const char* quantiles[] = {"p50_bytes", "p90_bytes", "p99_bytes", "max_bytes"};
  for (std::size_t q = 0; q < 4; ++q) reuse[quantiles[q]] = a.reuse.quantiles[q].value;
  reuse["histogram"] = Json::array();
  for (const auto& b : a.reuse.buckets) {
    reuse["histogram"].push_back(
        {{"up_to_bytes", b.up_to.value}, {"accesses", b.accesses}, {"accessed_bytes", b.bytes.value}});
  }
  j["idle"] = {{"intervals", a.idle.intervals},
               {"hideable", a.idle.hideable},
               {"at_peak_bytes", a.idle.at_peak.value},
               {"hideable_at_peak_bytes", a.idle.hideable_at_peak.value}};
  j["iterations"] = Json::array();
  for (const IterationPath& p : a.paths) {
    j["iterations"].push_back({{"number", p.number},
                               {"operators", p.operators},
                               {"dependences", p.edges},
                               {"work_ns", p.data.work.value},
                               {"critical_path_data_ns", p.data.length.value},
                               {"critical_path_data_operators", p.data.operators.size()},
                               {"critical_path_all_ns", p.all.length.value}});
  }
  return j;
}

// One line per operator, for plots.
std::string plot_csv(const Program& program, const Analysis& a) {
  std::string csv = "op,iteration,phase,start_ns,live_bytes";
  for (std::size_t r = 0; r < kRoleCount; ++r)
    csv += "," + std::string(role_name(static_cast<Role>(r))) + "_bytes";
  csv += '\n';
  Nanos start{0};
  std::size_t iteration = 0;
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    while (iteration + 1 < program.iterations.size() && op >= program.iterations[iteration].end_op)
      ++iteration;
    csv += std::to_string(op) + "," +
           std::to_string(program.iterations.empty() ? 0 : program.iterations[iteration].number) + "," +
           phase_letter(program.phase[op]) + "," + std::to_string(start.value) + "," +
           std::to_string(a.live.total[op].value);
    for (const Bytes bytes : a.live.by_role[op]) csv += "," + std::to_string(bytes.value);
    csv += '\n';
    start += program.device_time[op];
  }
  return csv;
}

}  // namespace

int trace_analyze_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("machine",
                                               po::value<std::string>()->default_value("h100-pcie5"),
                                               "name or file; see 'swaplab machines list'")(
      "times", po::value<std::string>(),
      "device times: trace | model (default: the trace's when recorded on a GPU, else the model's)")(
      "iterations", po::value<std::uint32_t>(), "continue the recording to this many iterations first")(
      "json", "JSON instead of tables")(
      "plot-data", po::value<std::string>(),
      "write live bytes per operator as CSV for scripts/plot_live_bytes.py")(
      "file", po::value<std::vector<std::string>>(), "trace (positional)");
  const po::variables_map values = parse_options(arguments, options, "file");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  if (values.count("file") == 0 || values["file"].as<std::vector<std::string>>().size() != 1)
    throw Error(ErrorKind::usage, "swaplab trace analyze needs one trace file");
  const std::string file = values["file"].as<std::vector<std::string>>()[0];
  const Machine machine = load_machine(values["machine"].as<std::string>());
  ReadReport read;
  Trace trace = read_trace(file, &read);
  print_warnings(read);
  if (values.count("iterations") != 0)
    trace = extend_iterations(trace, values["iterations"].as<std::uint32_t>());
  TimeSource times = choose_times({}, trace, file, machine.name, {});
  if (values.count("times") != 0) {
    const std::string text = values["times"].as<std::string>();
    if (text != "trace" && text != "model")
      throw Error(ErrorKind::usage, "--times must be trace or model, found '" + text + "'");
    times = text == "trace" ? TimeSource::trace : TimeSource::model;
  }
  const Program program = compile_program(trace, machine, times);
  const Analysis analysis = analyse(program, machine);
  if (values.count("plot-data") != 0)
    write_file_atomically(values["plot-data"].as<std::string>(), plot_csv(program, analysis));
  if (values.count("json") != 0) {
    std::cout << analysis_json(file, program, machine, analysis).dump(1) << '\n';
    return kExitOk;
  }
  std::printf("%s: %u operators, times from the %s\n\n", file.c_str(), program.op_count(),
              times == TimeSource::trace ? "trace" : "cost model");
  print_peak(program, analysis);
  print_reuse(analysis);
  print_idle(program, machine, analysis);
  print_paths(analysis);
  return kExitOk;
}

}  // namespace swaplab
