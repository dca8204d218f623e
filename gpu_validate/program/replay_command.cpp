#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "experiments/options.hpp"
#include "experiments/sweep/digest.hpp"
#include "experiments/sweep/uncertainty.hpp"
#include "experiments/text.hpp"
#include "gpu_validate/hardware.hpp"
#include "gpu_validate/program/commands.hpp"
#include "gpu_validate/program/measured_cell.hpp"
#include "gpu_validate/replay.hpp"
#include "sim/machine_io.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

// Real memory that a host replay may take unless --bytes-scale says otherwise.
constexpr Bytes kHostMemory{std::int64_t{512} << 20};

constexpr const char* kHelp = R"(swaplab-gpu replay: run swap policies on a real device

The executor of the simulator drives the device, so the decisions that 'swaplab run' scores are the decisions
that run here: real buffers at the addresses of PyTorch's allocator, real copies from and to pinned memory,
and for each operator a kernel that takes its time. Every storage's content is a function of storage and
version; kernels and swap-ins check what they find, so a race in a schedule is found, not only slow code.

Policies are interleaved in random order; each is repeated. 'error' is simulated over measured, less one, as in
'swaplab validate'. The last column says whether the decisions were those of the simulator, call by call.

examples:
  swaplab-gpu replay --trace configs/traces/gpt_small.jsonl.gz --policy none,lru,foresight --budget 0.6x
  swaplab-gpu replay --trace a.jsonl.gz,b.jsonl.gz --policy lru,foresight --budget 0.5x,0.7x \
                     --machine measured.yaml --repeats 5 --output measured.jsonl
  swaplab-gpu replay --trace gpt.jsonl.gz --policy lru --budget 0.6x --device host --time-scale 50
  swaplab validate --measured measured.jsonl --machine measured.yaml

)";

std::int64_t in_range(const po::variables_map& values, const char* name, std::int64_t low,
                      std::int64_t high) {
  const std::int64_t n = values[name].as<std::int64_t>();
  if (n < low || n > high)
    throw Error(ErrorKind::usage, std::string("--") + name + " must be " + std::to_string(low) + " to " +
                                      std::to_string(high) + ", found " + std::to_string(n));
  return n;
}

// "1/64"; 0 for "auto".
std::int64_t parse_bytes_scale(const std::string& text) {
  if (text == "auto") return 0;
  for (std::int64_t n = 1; n <= 64; n *= 2) {
    if (text == "1/" + std::to_string(n) || (n == 1 && text == "1")) return n;
  }
  throw Error(ErrorKind::usage, "--bytes-scale must be auto, 1, 1/2, 1/4, ... or 1/64, found '" + text + "'");
}

std::uint32_t parse_verify(const std::string& text) {
  if (text == "all") return 1;
  if (text == "off") return 0;
  std::int64_t n = 0;
  if (!parse_integer(text, 1, 1'000'000, n).empty())
    throw Error(ErrorKind::usage,
                "--verify must be all, off or N (every N-th word, 1 to 1000000), found '" + text + "'");
  return static_cast<std::uint32_t>(n);
}

KernelKind parse_kind(const std::string& text) {
  std::vector<std::string> names;
  for (const KernelKind kind : {KernelKind::spin, KernelKind::compute, KernelKind::memory}) {
    names.emplace_back(kernel_kind_name(kind));
    if (names.back() == text) return kind;
  }
  throw Error(ErrorKind::usage, "unknown kind of kernel '" + text + "'" + did_you_mean(text, names) +
                                    "; expected spin, compute or memory");
}

// "auto", "spin", or "matmul=compute,elementwise=memory" on top of spin.
std::array<KernelKind, kOpClassCount> parse_kernels(const std::string& text) {
  std::array<KernelKind, kOpClassCount> kinds{};
  if (text == "auto") {
    kinds.fill(KernelKind::memory);
    for (const OpClass cls : {OpClass::matmul, OpClass::attention, OpClass::convolution})
      kinds[static_cast<std::size_t>(cls)] = KernelKind::compute;
    kinds[static_cast<std::size_t>(OpClass::other)] = KernelKind::spin;
    return kinds;
  }
  std::vector<std::string> classes;
  for (std::size_t c = 0; c < kOpClassCount; ++c)
    classes.emplace_back(op_class_name(static_cast<OpClass>(c)));
  for (const std::string& part : split_list(text)) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      kinds.fill(parse_kind(part));
      continue;
    }
    const std::string name = part.substr(0, equals);
    const auto found = std::find(classes.begin(), classes.end(), name);
    if (found == classes.end())
      throw Error(ErrorKind::usage, "unknown operator class '" + name + "'" + did_you_mean(name, classes));
    kinds[static_cast<std::size_t>(found - classes.begin())] = parse_kind(part.substr(equals + 1));
  }
  return kinds;
}

struct Request {
  std::vector<std::string> traces;
  std::vector<PolicySpec> policies;
  std::vector<BudgetSpec> budgets;
  std::string machine_name;
  Machine machine;
  RunSettings settings;
  std::string times = "auto", alloc_conf = "default";
  std::uint32_t iterations = 0, warmup = 1;
  std::int64_t repeats = 3, bytes_divisor = 0;
  std::uint64_t seed = 1;
  bool random_order = true;
  RealDeviceOptions device;
  std::string output;
};

// A trace made ready, and the cells on it.
struct PreparedTrace {
  Program program;
  StudyTrace info;
};

class ReplayRun {
 public:
  ReplayRun(const Request& request, Hardware& hardware, const std::atomic<bool>& interrupted)
      : request_(request), hardware_(hardware), interrupted_(interrupted) {
    for (const std::string& path : request.traces) prepare(path);
  }

  // True when it ran to the end.
  bool run() {
    SplitMix64 random(request_.seed);
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    const std::size_t total = cells_.size() * static_cast<std::size_t>(request_.repeats);
    std::size_t done = 0;
    for (std::int64_t round = 0; round < request_.repeats; ++round) {
      std::vector<std::size_t> order(cells_.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      if (request_.random_order) {
        for (std::size_t i = order.size(); i > 1; --i)
          std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(i))]);
      }
      for (const std::size_t i : order) {
        try {
          replay_cell(i);
        } catch (const Interrupted&) {
          save();
          return false;
        }
        ++done;
        save();
        if (terminal) std::fprintf(stderr, "\r%zu of %zu replays%s", done, total, done == total ? "\n" : "");
      }
    }
    return true;
  }

  // Cells that were replayed at least once, in the order asked for.
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      if (!cells_[i].repeats.empty()) all.push_back(measured_line(cells_[i], i, hardware_.info()));
    }
    return all;
  }
  const std::vector<MeasuredCell>& cells() const { return cells_; }

 private:
  void prepare(const std::string& path) {
    ReadReport report;
    Trace trace = read_trace(path, &report);
    print_warnings(report);
    if (request_.iterations > 0) trace = extend_iterations(trace, request_.iterations);
    const auto warn = [](const std::string& text) { std::fprintf(stderr, "warning: %s\n", text.c_str()); };
    PreparedTrace prepared;
    const TimeSource times = choose_times(request_.settings, trace, path, request_.machine.name, warn);
    prepared.program = compile_program(trace, request_.machine, times);
    Program& p = prepared.program;
    p.steady_first = std::max(p.steady_first, std::min(request_.warmup, p.steady_end - 1));
    prepared.info.path = path;
    prepared.info.times = times;
    prepared.info.peak_bytes = p.peak_bytes;
    prepared.info.largest_working_set = p.largest_working_set;
    prepared.info.steady_first = p.steady_first;
    prepared.info.steady_end = p.steady_end;
    const std::string input = sha256_file(path);
    traces_.push_back(std::make_unique<PreparedTrace>(std::move(prepared)));
    for (const BudgetSpec& budget : request_.budgets) {
      for (const PolicySpec& policy : request_.policies) add_cell(traces_.size() - 1, budget, policy, input);
    }
  }

  void add_cell(std::size_t trace, const BudgetSpec& budget, const PolicySpec& policy,
                const std::string& input) {
    const PreparedTrace& on = *traces_[trace];
    MeasuredCell cell;
    cell.trace = on.info;
    cell.label = policy_label(policy);
    cell.policy_resolved = policy.text();
    cell.is_none = policy.factory->info().name == "none";
    cell.budget = std::min(budget.resolve(on.program.peak_bytes), kUnlimitedBudget);
    cell.bytes_divisor = request_.bytes_divisor;
    if (cell.bytes_divisor == 0) {  // auto
      cell.bytes_divisor = 1;
      const Bytes need = std::min(cell.budget, on.program.peak_bytes);
      if (hardware_.info().kind == "host")
        while (cell.bytes_divisor < 64 && need / cell.bytes_divisor > kHostMemory) cell.bytes_divisor *= 2;
    }
    cell.time_scale = request_.device.time_scale;
    cell.memory = memory_mode_name(request_.device.memory);
    cell.copies_stretched = request_.device.stretch_copies && hardware_.info().stretches_copies;
    cell.factors = {
        {"trace", on.info.path},
        {"machine", request_.machine_name},
        {"iterations", request_.iterations == 0 ? "recorded" : std::to_string(request_.iterations)},
        {"times", request_.times},
        {"allocator", "caching"},
        {"alloc_conf", request_.alloc_conf},
        {"budget", budget.text},
        {"policy", cell.label}};
    Json key;
    for (const auto& [name, value] : cell.factors)
      key["factors"][name] = name == "policy" ? policy.text() : value;
    key["inputs"] = {input, sha256_hex(machine_json(request_.machine))};
    key["device"] = {hardware_.info().kind, hardware_.info().name, cell.memory, cell.bytes_divisor,
                     cell.time_scale};
    cell.key = sha256_hex(key.dump()).substr(0, 16);
    cells_.push_back(std::move(cell));
    of_.push_back({trace, &policy});
  }

  void simulate(std::size_t i, Schedule& schedule) {
    MeasuredCell& cell = cells_[i];
    const Program& program = traces_[of_[i].first]->program;
    const PolicySpec& spec = *of_[i].second;
    RunOptions options;
    options.budget = cell.budget;
    options.allocator_config = request_.settings.allocator_config;
    options.needs = spec.factory->info().needs;
    options.schedule = &schedule;
    const auto policy = spec.factory->make(spec.values);
    cell.simulated = run_program(program, request_.machine, *policy, options);
    MeasuredCell::Repeat repeat;
    repeat.result = cell.simulated;
    if (cell.simulated.outcome == Outcome::ok) cell.simulated_total = cell.steady_total(repeat);
  }

  void replay_cell(std::size_t i) {
    MeasuredCell& cell = cells_[i];
    Schedule simulated;
    simulate(i, simulated);
    const PolicySpec& spec = *of_[i].second;
    ReplaySettings settings;
    settings.budget = cell.budget;
    settings.allocator_config = request_.settings.allocator_config;
    settings.needs = spec.factory->info().needs;
    settings.device = request_.device;
    settings.device.bytes_divisor = cell.bytes_divisor;
    settings.device.interrupted = &interrupted_;
    settings.reserve_percent = hardware_.reserve_percent(request_.device.memory);
    const auto policy = spec.factory->make(spec.values);
    Replay replay =
        replay_program(traces_[of_[i].first]->program, request_.machine, *policy, settings,
                       [&](const AcceleratorOptions& options) { return hardware_.open(options); });
    // What `none` cannot run, no memory of this size can: as `swaplab run` calls it.
    if (cell.is_none && replay.result.outcome == Outcome::out_of_memory)
      replay.result.outcome = Outcome::infeasible;
    cell.repeats.push_back({std::move(replay.result), std::move(replay.integrity),
                            first_difference(simulated, replay.schedule).value_or(""), replay.device_peak});
  }

  void save() const {
    if (request_.output.empty()) return;
    std::string text;
    for (const std::string& line : lines()) text += line + "\n";
    if (text.empty()) return;  // nothing was finished: what was there before stays
    write_file_atomically(request_.output, text);
  }

  const Request& request_;
  Hardware& hardware_;
  const std::atomic<bool>& interrupted_;
  std::vector<std::unique_ptr<PreparedTrace>> traces_;
  std::vector<MeasuredCell> cells_;
  std::vector<std::pair<std::size_t, const PolicySpec*>> of_;  // trace and policy of each cell
};

std::string percent(Nanos measured, Nanos simulated) {
  if (measured <= Nanos{0}) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f%%",
                100.0 * (static_cast<double>(simulated.value) / static_cast<double>(measured.value) - 1.0));
  return text;
}

void print_tables(const ReplayRun& run, const Request& request, const AcceleratorInfo& device) {
  std::printf("device %s (%s), driver %s, runtime %s; machine profile %s\n", device.name.c_str(),
              device.kind.c_str(), device.driver.c_str(), device.runtime.c_str(),
              request.machine.name.c_str());
  std::string path, notes;
  std::optional<TextTable> table;
  const auto flush = [&] {
    if (table) std::fputs(table->text().c_str(), stdout);
    if (!notes.empty()) std::printf("\n%s", notes.c_str());
    notes.clear();
  };
  for (const MeasuredCell& cell : run.cells()) {
    if (cell.repeats.empty()) continue;
    if (!table || path != cell.trace.path) {
      flush();
      path = cell.trace.path;
      std::printf("\ntrace %s\n  peak %s, real bytes 1/%lld, time scale %s, %zu repeats\n\n", path.c_str(),
                  human_bytes(cell.trace.peak_bytes).c_str(), static_cast<long long>(cell.bytes_divisor),
                  format_fraction(cell.time_scale).c_str(), cell.repeats.size());
      table.emplace(std::vector<std::string>{"budget", "policy", "outcome", "measured", "fastest", "slowest",
                                             "simulated", "error", "swap-in", "memory", "out/iter", "in/iter",
                                             "checked", "wrong", "decisions"},
                    3);
    }
    const MeasuredCell::Repeat& shown = cell.median();
    const auto steady = static_cast<std::int64_t>(cell.trace.steady_end - cell.trace.steady_first);
    std::uint64_t checked = 0, wrong = 0;
    std::string difference;
    Nanos fastest = cell.steady_total(shown), slowest = fastest;
    for (const MeasuredCell::Repeat& repeat : cell.repeats) {
      checked += repeat.integrity.counts.operands + repeat.integrity.counts.swap_ins;
      wrong += repeat.integrity.counts.wrong_words;
      for (const std::string& finding : repeat.integrity.findings)
        notes += "  wrong data, " + cell.factors[6].second + " " + cell.label + ": " + finding + "\n";
      if (difference.empty()) difference = repeat.difference;
      fastest = std::min(fastest, cell.steady_total(repeat));
      slowest = std::max(slowest, cell.steady_total(repeat));
    }
    if (!difference.empty())
      notes += "  " + cell.factors[6].second + " " + cell.label + ": differs from the simulator at " +
               difference + "\n";
    const std::string decisions = difference.empty() ? "as simulated" : "differ";
    if (shown.result.outcome != Outcome::ok) {
      table->add({cell.factors[6].second, cell.label, std::string(outcome_name(shown.result.outcome)), "-",
                  "-", "-", "-", "-", "-", "-", "-", "-", std::to_string(checked), std::to_string(wrong),
                  decisions});
      notes += "  " + cell.factors[6].second + " " + cell.label + ": " + shown.result.explanation + "\n";
      continue;
    }
    Bytes out{0}, in{0};
    Nanos swap_in{0}, memory{0};
    for (std::uint32_t i = cell.trace.steady_first; i < cell.trace.steady_end; ++i) {
      const IterationMetrics& iteration = shown.result.iterations[i];
      out += iteration.bytes_out;
      in += iteration.bytes_in;
      swap_in += iteration.stalls[static_cast<std::size_t>(Stall::swap_in)];
      memory += iteration.stalls[static_cast<std::size_t>(Stall::memory)];
    }
    const Nanos measured = cell.steady_total(shown);
    table->add({cell.factors[6].second, cell.label, "ok", human_time(measured / steady),
                human_time(fastest / steady), human_time(slowest / steady),
                human_time(cell.simulated_total / steady), percent(measured, cell.simulated_total),
                human_time(swap_in / steady), human_time(memory / steady), human_bytes(out / steady),
                human_bytes(in / steady), std::to_string(checked), std::to_string(wrong), decisions});
  }
  flush();
}

Request parse_request(const po::variables_map& values) {
  Request request;
  if (values.count("trace") == 0) throw Error(ErrorKind::usage, "replay needs --trace FILE");
  if (values.count("policy") == 0)
    throw Error(ErrorKind::usage, "replay needs --policy NAME (see 'swaplab policies list')");
  for (const std::string& list : values["trace"].as<std::vector<std::string>>()) {
    for (const std::string& path : split_list(list)) request.traces.push_back(path);
  }
  if (request.traces.empty()) throw Error(ErrorKind::usage, "--trace names no file");
  request.policies = parse_policies(values["policy"].as<std::string>());
  request.budgets = parse_budgets(values["budget"].as<std::string>());
  request.machine_name = values["machine"].as<std::string>();
  request.machine = load_machine(request.machine_name);
  if (values.count("times") != 0) {
    request.times = values["times"].as<std::string>();
    if (request.times != "trace" && request.times != "model")
      throw Error(ErrorKind::usage, "--times must be trace or model, found '" + request.times + "'");
    request.settings.times = request.times == "trace" ? TimeSource::trace : TimeSource::model;
  }
  const std::string conf = values["alloc-conf"].as<std::string>();
  if (!conf.empty()) request.alloc_conf = conf;
  request.settings.allocator_config = parse_alloc_conf(conf);
  require_supported(request.settings.allocator_config);
  request.iterations = static_cast<std::uint32_t>(in_range(values, "iterations", 1, 100'000));
  request.warmup = static_cast<std::uint32_t>(in_range(values, "warmup", 0, 100'000));
  if (request.warmup >= request.iterations)
    throw Error(ErrorKind::usage, "--warmup must be less than --iterations");
  request.repeats = in_range(values, "repeats", 1, 10'000);
  request.seed = static_cast<std::uint64_t>(in_range(values, "seed", 0, std::int64_t{1} << 62));
  const std::string order = values["order"].as<std::string>();
  if (order != "random" && order != "given")
    throw Error(ErrorKind::usage, "--order must be random or given, found '" + order + "'");
  request.random_order = order == "random";
  request.bytes_divisor = parse_bytes_scale(values["bytes-scale"].as<std::string>());
  const std::string scale = values["time-scale"].as<std::string>();
  const std::string problem = parse_fraction(scale, 1, 100 * kUnchanged, request.device.time_scale);
  if (!problem.empty()) throw Error(ErrorKind::usage, "--time-scale '" + scale + "': " + problem);
  request.device.verify_stride = parse_verify(values["verify"].as<std::string>());
  request.device.kinds = parse_kernels(values["kernels"].as<std::string>());
  request.device.memory = parse_memory_mode(values["memory"].as<std::string>());
  request.device.stretch_copies = values.count("fast-copies") == 0;
  if (values.count("output") != 0) {
    request.output = values["output"].as<std::string>();
    check_output(request.output, request.traces);
  }
  return request;
}

}  // namespace

int gpu_replay_command(const Arguments& arguments, const std::atomic<bool>& interrupted) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("trace", po::value<std::vector<std::string>>()->composing(),
                                               "trace files, comma-separated or repeated")(
      "policy", po::value<std::string>(), "policies: NAME[:param=value,...][,NAME...]")(
      "budget", po::value<std::string>()->default_value("0.6x"),
      "device memory: 0.5x of the trace's own peak, 16GiB, or inf; comma-separated")(
      "device", po::value<std::string>()->default_value("cuda"), "cuda, cuda:N or host")(
      "machine", po::value<std::string>()->default_value("h100-pcie5"),
      "profile that planners see and that the simulation beside it uses; name or file")(
      "times", po::value<std::string>(),
      "kernel times: trace | model (default: trace for GPU recordings, else model)")(
      "iterations", po::value<std::int64_t>()->default_value(6), "length of a replay, as in 'swaplab run'")(
      "warmup", po::value<std::int64_t>()->default_value(1),
      "iterations at its start that are not measured (the last one never is)")(
      "repeats", po::value<std::int64_t>()->default_value(3), "replays of each policy")(
      "order", po::value<std::string>()->default_value("random"),
      "random: interleaved, shuffled each round | given")("seed", po::value<std::int64_t>()->default_value(1),
                                                          "of the random order")(
      "memory", po::value<std::string>()->default_value("reservation"),
      "reservation (our allocator in one block) | malloc-async | vmm (CUDA only)")(
      "kernels", po::value<std::string>()->default_value("auto"),
      "what occupies the device: auto (by operator class) | spin | compute | memory | CLASS=KIND,...")(
      "verify", po::value<std::string>()->default_value("all"), "all | N: every N-th word | off")(
      "bytes-scale", po::value<std::string>()->default_value("auto"),
      "real : simulated bytes, 1 to 1/64 (auto: 1; on the host device as little as keeps it under 512 MiB)")(
      "time-scale", po::value<std::string>()->default_value("1"),
      "real : trace time of kernels, host work and stretched copies; results are divided by it")(
      "fast-copies", "host device: copies as fast as memory allows, not stretched to the profile's time")(
      "alloc-conf", po::value<std::string>()->default_value(""),
      "PYTORCH_CUDA_ALLOC_CONF of the caching allocator")(
      "output,o", po::value<std::string>(), "results file (JSON lines), rewritten after each replay")(
      "json", "one JSON document instead of tables");
  const po::variables_map values = parse_options(arguments, options, "trace");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  const Request request = parse_request(values);
  const std::unique_ptr<Hardware> hardware = open_hardware(values["device"].as<std::string>());
  ReplayRun run(request, *hardware, interrupted);
  const bool whole = run.run();
  if (values.count("json") != 0) {
    Json document;
    document["schema"] = "swaplab-gpu/replay@1";
    document["results"] = Json::array();
    for (const std::string& line : run.lines()) document["results"].push_back(Json::parse(line));
    std::cout << document.dump(1) << '\n';
  } else {
    print_tables(run, request, hardware->info());
    if (!request.output.empty())
      std::printf("\nwrote %s   next: swaplab validate --measured %s --machine %s\n", request.output.c_str(),
                  request.output.c_str(), request.machine_name.c_str());
  }
  if (!whole) {
    std::fputs("interrupted: results hold the replays that were finished\n", stderr);
    return kExitInterrupted;
  }
  for (const MeasuredCell& cell : run.cells()) {
    for (const MeasuredCell::Repeat& repeat : cell.repeats) {
      if (!repeat.integrity.ok()) return kExitInvariant;
    }
  }
  for (const MeasuredCell& cell : run.cells()) {
    if (cell.repeats[0].result.outcome == Outcome::policy_error) return kExitPolicy;
  }
  return kExitOk;
}

}  // namespace swaplab
