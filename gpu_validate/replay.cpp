#include "gpu_validate/replay.hpp"

#include <algorithm>

#include "gpu_validate/integrity.hpp"
#include "sim/run_result.hpp"

namespace swaplab {
Replay replay_program(const Program& program, const Machine& machine, Policy& policy,
                      const ReplaySettings& settings, const AcceleratorOpener& open) {
  Replay replay;
  const Bytes budget = std::min(settings.budget, kUnlimitedBudget);
  if (program.largest_working_set > budget) {
    const std::uint32_t op = program.largest_working_set_op;
    replay.result =
        infeasible_result(program.largest_working_set, op, program.names[program.name[op]], budget);
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
  replay.result = collect_result(executor, device, memory, policy, ended);
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
