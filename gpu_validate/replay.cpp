#include "gpu_validate/replay.hpp"

#include <algorithm>

#include "gpu_validate/integrity.hpp"
#include "sim/executor.hpp"

namespace swaplab {
namespace {

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
      throw Error(ErrorKind::invariant, "measured iteration " + std::to_string(iteration.number) +
                                            ": busy and stalls sum to " + std::to_string(sum.value) +
                                            " ns, the iteration took " +
                                            std::to_string(iteration.time().value) + " ns");
    }
    previous = now;
  }
}

void fill_memory(RunResult& result, const CachingMemory<RealDevice>& memory) {
  for (const IterationMetrics& iteration : result.iterations) {
    result.allocator.peak_allocated = std::max(result.allocator.peak_allocated, iteration.peak_allocated);
    result.allocator.peak_reserved = std::max(result.allocator.peak_reserved, iteration.peak_reserved);
  }
  result.allocator.reserved_at_peak = result.allocator.peak_reserved;
  memory.fill_figures(result.allocator);
}

}  // namespace

Replay replay_program(const Program& program, const Machine& machine, Policy& policy,
                      const ReplaySettings& settings, const AcceleratorOpener& open) {
  Replay replay;
  const Bytes budget = std::min(settings.budget, kUnlimitedBudget);
  if (program.largest_working_set > budget) {
    replay.result.outcome = Outcome::infeasible;
    replay.result.smallest_budget = program.largest_working_set;
    replay.result.explanation = "one operator accesses " + std::to_string(program.largest_working_set.value) +
                                " B at once, more than the budget of " + std::to_string(budget.value) + " B";
    return replay;
  }
  RealDeviceOptions device_options = settings.device;
  const Bytes need = std::min(budget, program.peak_bytes * 2 + Bytes{std::int64_t{1} << 30});
  const Bytes reservation = Bytes{(need.value / 100 * settings.reserve_percent + (std::int64_t{256} << 20)) /
                                  settings.device.bytes_divisor};
  device_options.reservation = reservation;
  if (settings.allocator_config.expandable_segments) {
    // Each pool of each stream has an address range of 9/8 of the device's memory.
    device_options.range_reservation =
        Bytes{budget.value / 4 * 9 / settings.device.bytes_divisor * (program.stream_count + 1)};
  }
  AcceleratorOptions options;
  options.compute_streams = program.stream_count;
  options.memory = device_options.memory;
  options.reservation = device_options.reservation;
  options.range_reservation = device_options.range_reservation;
  options.queue_depth = machine.launch_queue_depth;
  const std::unique_ptr<Accelerator> accelerator = open(options);
  RealDevice device(program, machine, *accelerator, device_options);
  CachingMemory<RealDevice> memory(device, machine.host, budget, settings.allocator_config);
  Executor<RealDevice, CachingMemory<RealDevice>> executor(program, machine, device, memory, budget,
                                                           settings.needs, &replay.schedule);
  const std::optional<RunEnded> ended = executor.run(policy);
  device.finish();
  replay.result = std::move(executor.result());
  fill_times(replay.result, device.snapshots());
  fill_memory(replay.result, memory);
  replay.result.peak_host_pinned = executor.host_pinned();
  replay.result.policy_metrics = policy.metrics();
  if (ended) {
    replay.result.outcome = ended->outcome;
    replay.result.explanation = ended->explanation;
  }
  replay.schedule.stalls = device.stalls();
  replay.integrity = check_integrity(program, replay.schedule, device, *accelerator);
  replay.device_peak = accelerator->peak_device_bytes();
  return replay;
}

std::optional<std::string> first_difference(const Schedule& a, const Schedule& b) {
  static constexpr const char* kKinds[] = {"op", "copy_out", "copy_in", "acquire", "release"};
  const auto text = [](const ScheduleEntry& e) {
    return std::string(kKinds[static_cast<std::size_t>(e.kind)]) + " " + std::to_string(e.index) + " (" +
           std::to_string(e.bytes.value) + " B, stream " + std::to_string(e.stream) + ")";
  };
  if (a.initial_device != b.initial_device || a.initial_host != b.initial_host)
    return "the initial storages are placed differently";
  const std::size_t common = std::min(a.entries.size(), b.entries.size());
  for (std::size_t i = 0; i < common; ++i) {
    const ScheduleEntry &x = a.entries[i], &y = b.entries[i];
    if (x.kind != y.kind || x.index != y.index || x.bytes != y.bytes || x.stream != y.stream)
      return "decision " + std::to_string(i) + ": " + text(x) + " against " + text(y);
  }
  if (a.entries.size() != b.entries.size())
    return std::to_string(a.entries.size()) + " decisions against " + std::to_string(b.entries.size());
  return std::nullopt;
}

}  // namespace swaplab
