#include "sim/metrics.hpp"

namespace swaplab {
namespace {

struct StallText {
  std::string_view name, description;
};

constexpr std::array<StallText, kStallCount> kStalls{{
    {"swap_in", "compute idle while it waits for bytes to come back from the host"},
    {"memory", "compute idle while bytes leave the device so that their memory can be used"},
    {"oom_recovery", "compute idle because the allocator released its cache and synchronised"},
    {"recomputation", "reserved: time to produce dropped bytes again"},
    {"host_bound", "compute idle because the host had not launched the next operator yet"},
    {"profiling", "compute idle during host time of a profiling policy"},
    {"policy", "compute idle during host time of a policy's decisions"},
    {"synchronization", "compute idle after the host waited for the device"},
}};

constexpr std::array<std::string_view, 5> kOutcomes{"ok", "infeasible", "out_of_memory", "policy_error",
                                                    "timeout"};

}  // namespace

std::string_view stall_name(Stall stall) {
  return kStalls[static_cast<std::size_t>(stall)].name;
}

std::string_view stall_description(Stall stall) {
  return kStalls[static_cast<std::size_t>(stall)].description;
}

std::string_view outcome_name(Outcome outcome) {
  return kOutcomes[static_cast<std::size_t>(outcome)];
}

std::vector<MetricDescription> metric_table() {
  const auto lower = Better::lower, higher = Better::higher;
  std::vector<MetricDescription> table{
      {"iter_time_ns", "ns",
       "time of an iteration: completion of its last kernel minus that of the one before", lower},
      {"compute_busy_ns", "ns", "part of the iteration during which at least one compute stream ran a kernel",
       lower},
  };
  for (const StallText& stall : kStalls) {
    table.push_back(
        {"stall_" + std::string(stall.name) + "_ns", "ns", std::string(stall.description), lower});
  }
  const std::vector<MetricDescription> rest{
      {"slowdown_ppm", "ppm", "iteration time divided by that of the run without a memory limit", lower},
      {"gap_to_bound_ppm", "ppm", "iteration time above the proven lower bound, as a part of the bound",
       lower},
      {"swapped_out_bytes", "B", "bytes of the copies to the host submitted in the iteration", lower},
      {"swapped_in_bytes", "B", "bytes of the copies to the device submitted in the iteration", lower},
      {"copies_out", "count", "copies to the host submitted in the iteration", lower},
      {"copies_in", "count", "copies to the device submitted in the iteration", lower},
      {"passive_in", "count", "copies to the device that an operator had to ask for", lower},
      {"peak_allocated_bytes", "B", "largest sum of allocated device bytes, in program order", lower},
      {"peak_reserved_bytes", "B",
       "largest sum of device bytes that the allocator held, cached ones included", lower},
      {"reserved_at_peak_bytes", "B", "device bytes that the allocator held when allocated bytes peaked",
       lower},
      {"fragmentation_ppm", "ppm", "1 - peak_allocated_bytes / reserved_at_peak_bytes", lower},
      {"device_mallocs", "count", "segments that the allocator took from the driver", lower},
      {"device_frees", "count", "segments that the allocator gave back to the driver", lower},
      {"alloc_retries", "count", "allocations that succeeded only after the cache was released", lower},
      {"alloc_ooms", "count", "allocations that failed even after the cache was released", lower},
      {"stitches", "count", "ranges that the stitching allocator mapped from free pieces", lower},
      {"stitched_reuses", "count", "requests served by a stitched range made earlier", lower},
      {"peak_host_pinned_bytes", "B", "largest amount of pinned host memory", lower},
      {"smallest_budget_bytes", "B", "smallest budget that would do, for runs that did not fit", lower},
      {"evictions", "count", "storages whose device bytes a policy gave up", lower},
      {"make_room_calls", "count", "times that the policy was asked for room", lower},
      {"plan_steps", "count", "steps of the policy's plan that were reached", higher},
      {"plan_steps_skipped", "count", "steps of the plan that were not possible when reached", lower},
  };
  table.insert(table.end(), rest.begin(), rest.end());
  return table;
}

}  // namespace swaplab
