#include "sim/run.hpp"

#include "sim/run_result.hpp"
#include "sim/stitching_memory.hpp"
#include "sim/virtual_device.hpp"
#include "trace/human.hpp"

namespace swaplab {
namespace {

template <class Memory>
RunResult run_with(const Program& program, ProgramWindow* windows, const Machine& machine, Policy& policy,
                   const RunOptions& options, VirtualDevice& device, Memory& memory) {
  Executor<VirtualDevice, Memory> executor(program, machine, device, memory, options.budget, options.needs,
                                           options.schedule, windows);
  if (options.schedule != nullptr && options.schedule->keep_timeline)
    device.attach_stalls(&options.schedule->stalls);
  const std::optional<RunEnded> ended = executor.run(policy);
  device.finish();
  RunResult result = collect_result(executor, device, memory, policy, ended);
  if (options.schedule != nullptr) options.schedule->result = result;
  return result;
}

constexpr std::array<std::string_view, 3> kAllocators{"ideal", "caching", "stitching"};
RunResult run_on_device(const Program& program, ProgramWindow* windows, std::uint16_t streams,
                        const Machine& machine, Policy& policy, const RunOptions& options) {
  VirtualDevice device(machine, streams);
  if (options.allocator == AllocatorKind::ideal) {
    IdealMemory memory(options.budget);
    return run_with(program, windows, machine, policy, options, device, memory);
  }
  if (options.allocator == AllocatorKind::stitching) {
    StitchingMemory<VirtualDevice> memory(device, machine.host, options.budget, options.stitching);
    return run_with(program, windows, machine, policy, options, device, memory);
  }
  CachingMemory<VirtualDevice> memory(device, machine.host, options.budget, options.allocator_config);
  return run_with(program, windows, machine, policy, options, device, memory);
}

}  // namespace

std::string_view allocator_name(AllocatorKind kind) {
  return kAllocators[static_cast<std::size_t>(kind)];
}

AllocatorKind parse_allocator(std::string_view text) {
  for (std::size_t i = 0; i < kAllocators.size(); ++i) {
    if (text == kAllocators[i]) return static_cast<AllocatorKind>(i);
  }
  const std::vector<std::string> names(kAllocators.begin(), kAllocators.end());
  throw Error(ErrorKind::usage, "the allocator must be caching, ideal or stitching, found '" +
                                    std::string(text) + "'" + did_you_mean(text, names));
}

RunResult infeasible_result(Bytes working_set, std::uint32_t op, std::string_view name, Bytes budget) {
  RunResult result;
  result.outcome = Outcome::infeasible;
  result.smallest_budget = working_set;
  result.explanation = "operator " + std::to_string(op) + " (" + std::string(name) + ") accesses " +
                       exact_bytes(working_set) + " at once, more than the budget of " + exact_bytes(budget) +
                       ": no swap policy can run it";
  return result;
}

void fill_times(RunResult& result, const std::vector<VirtualDevice::Snapshot>& snapshots) {
  VirtualDevice::Snapshot previous{};
  for (std::size_t i = 0; i < result.iterations.size(); ++i) {
    IterationMetrics& iteration = result.iterations[i];
    const VirtualDevice::Snapshot& now = snapshots.at(i);
    iteration.begin = previous.time;
    iteration.end = now.time;
    iteration.compute_busy = now.busy - previous.busy;
    Nanos sum = iteration.compute_busy;
    for (std::size_t s = 0; s < kStallCount; ++s) {
      iteration.stalls[s] = now.stalls[s] - previous.stalls[s];
      sum += iteration.stalls[s];
    }
    if (sum != iteration.time()) {
      throw Error(ErrorKind::invariant, "iteration " + std::to_string(iteration.number) +
                                            ": busy and stalls sum to " + std::to_string(sum.value) +
                                            " ns, the iteration took " +
                                            std::to_string(iteration.time().value) + " ns");
    }
    previous = now;
  }
}

RunResult run_program(const Program& program, const Machine& machine, Policy& policy,
                      const RunOptions& options) {
  if (program.largest_working_set > options.budget) {
    const std::uint32_t op = program.largest_working_set_op;
    RunResult result =
        infeasible_result(program.largest_working_set, op, program.names[program.name[op]], options.budget);
    if (options.schedule != nullptr) options.schedule->result = result;
    return result;
  }
  return run_on_device(program, nullptr, program.stream_count, machine, policy, options);
}

RunResult run_windows(const ProgramWindows& windows, const Machine& machine, Policy& policy,
                      const RunOptions& options, std::function<void(std::uint32_t)> progress) {
  if (has(options.needs, Needs::future))
    throw Error(ErrorKind::policy,
                "the policy plans with the whole trace in memory; a replay in bounded memory "
                "runs policies that do not need the future");
  if (options.schedule != nullptr)
    throw Error(ErrorKind::usage, "a replay in bounded memory writes no schedule");
  const ProgramTotals& totals = windows.totals();
  if (totals.largest_working_set > options.budget)
    return infeasible_result(totals.largest_working_set, totals.largest_working_set_op,
                             windows.trace().trace.names[totals.largest_working_set_name], options.budget);
  ProgramWindow window = windows.open(machine, std::move(progress));
  return run_on_device(window.program(), &window, totals.stream_count, machine, policy, options);
}

}  // namespace swaplab
