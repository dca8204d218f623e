#include "gpu_validate/program/replay_run.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "experiments/sweep/digest.hpp"
#include "experiments/text.hpp"
#include "gpu_validate/replay.hpp"
#include "sim/machine_io.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"
#include "trace/split_mix.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

// Real memory that a host replay may take unless --bytes-scale says otherwise.
constexpr Bytes kHostMemory{std::int64_t{512} << 20};

}  // namespace

ReplayRun::ReplayRun(const ReplayRequest& request, Hardware& hardware, const std::atomic<bool>& interrupted)
    : request_(request), hardware_(hardware), interrupted_(interrupted) {
  for (const std::string& path : request.traces) prepare(path);
}

bool ReplayRun::run() {
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

std::vector<std::string> ReplayRun::lines() const {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    if (!cells_[i].repeats.empty()) all.push_back(measured_line(cells_[i], i, hardware_.info()));
  }
  return all;
}

void ReplayRun::prepare(const std::string& path) {
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

void ReplayRun::add_cell(std::size_t trace, const BudgetSpec& budget, const PolicySpec& policy,
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
  cell.factors = {{"trace", on.info.path},
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

void ReplayRun::simulate(std::size_t i, Schedule& schedule) {
  MeasuredCell& cell = cells_[i];
  const Program& program = traces_[of_[i].first]->program;
  const PolicySpec& spec = *of_[i].second;
  RunOptions options = run_options(request_.settings, cell.budget, spec.factory->info().needs);
  options.schedule = &schedule;
  const auto policy = spec.factory->make(spec.values);
  cell.simulated = run_program(program, request_.machine, *policy, options);
  if (cell.simulated.outcome == Outcome::ok) cell.simulated_total = steady_sum(cell.trace, cell.simulated);
}

void ReplayRun::replay_cell(std::size_t i) {
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
  Replay replay = replay_program(traces_[of_[i].first]->program, request_.machine, *policy, settings,
                                 [&](const AcceleratorOptions& options) { return hardware_.open(options); });
  // What `none` cannot run, no memory of this size can: as `swaplab run` calls it.
  if (cell.is_none && replay.result.outcome == Outcome::out_of_memory)
    replay.result.outcome = Outcome::infeasible;
  cell.repeats.push_back({std::move(replay.result), std::move(replay.integrity),
                          first_difference(simulated, replay.schedule).value_or(""), replay.device_peak});
}

void ReplayRun::save() const {
  if (request_.output.empty()) return;
  std::string text;
  for (const std::string& line : lines()) text += line + "\n";
  if (text.empty()) return;  // nothing was finished: what was there before stays
  write_file_atomically(request_.output, text);
}

}  // namespace swaplab
