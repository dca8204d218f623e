// From an executor that has ended to the result of its run, whoever drove the device (private to runs:
// sim/run.hpp simulates, gpu_validate/replay.hpp measures).
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/executor.hpp"
#include "sim/metrics.hpp"
#include "sim/virtual_device.hpp"

namespace swaplab {

// No swap policy can run it: operator `op` accesses `working_set` at once.
RunResult infeasible_result(Bytes working_set, std::uint32_t op, std::string_view name, Bytes budget);

// Turns cumulative snapshots into iterations. Throws Error(invariant) when one does not add up.
void fill_times(RunResult& result, const std::vector<VirtualDevice::Snapshot>& snapshots);

// After Executor::run (which returned `ended`) and the device's finish().
template <class Device, class Memory>
RunResult collect_result(Executor<Device, Memory>& executor, const Device& device, const Memory& memory,
                         const Policy& policy, const std::optional<RunEnded>& ended) {
  RunResult result = std::move(executor.result());
  fill_times(result, device.snapshots());
  for (const IterationMetrics& iteration : result.iterations) {
    result.allocator.peak_allocated = std::max(result.allocator.peak_allocated, iteration.peak_allocated);
    result.allocator.peak_reserved = std::max(result.allocator.peak_reserved, iteration.peak_reserved);
  }
  result.allocator.reserved_at_peak = result.allocator.peak_reserved;
  memory.fill_figures(result.allocator);
  result.peak_host_pinned = executor.host_pinned();
  result.policy_metrics = policy.metrics();
  if (ended) {
    result.outcome = ended->outcome;
    result.explanation = ended->explanation;
  }
  return result;
}

}  // namespace swaplab
