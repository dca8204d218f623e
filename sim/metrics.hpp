// Results of one run. All times are integer nanoseconds of simulated time, all sizes bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/policy_api.hpp"
#include "trace/units.hpp"

namespace swaplab {

// Why the compute streams were idle. Iteration time = compute busy + the sum of these, exactly.
enum class Stall : std::uint8_t {
  swap_in,          // waiting for bytes to come back
  memory,           // waiting for bytes to leave, so that their memory can be used
  oom_recovery,     // allocator released its cache and synchronised
  recomputation,    // reserved: producing dropped bytes again
  host_bound,       // the host had not launched the next operator yet
  profiling,        // host time of a profiling policy
  policy,           // host time of a policy's decisions
  synchronization,  // after the host waited for the device
};
constexpr std::size_t kStallCount = 8;
std::string_view stall_name(Stall stall);  // "swap_in", ...
std::string_view stall_description(Stall stall);

struct IterationMetrics {
  std::int64_t number = 0;
  IterationKind kind = IterationKind::train;
  Nanos begin, end;    // completion of the last kernel before it, and of its last kernel
  Nanos compute_busy;  // at least one compute stream runs a kernel
  std::array<Nanos, kStallCount> stalls{};
  Bytes bytes_out, bytes_in;  // of copies submitted in this iteration
  std::uint32_t copies_out = 0, copies_in = 0;
  std::uint32_t passive_in = 0;  // swap-ins that an operator had to ask for
  Bytes peak_allocated, peak_reserved;
  Nanos time() const { return end - begin; }
};

enum class Outcome : std::uint8_t { ok, infeasible, out_of_memory, policy_error, timeout };
std::string_view outcome_name(Outcome outcome);

struct AllocatorFigures {
  Bytes peak_allocated, peak_reserved;
  Bytes reserved_at_peak;  // when allocated bytes peaked: fragmentation = 1 - peak_allocated / this
  std::int64_t device_mallocs = 0, device_frees = 0, retries = 0, ooms = 0;
  std::int64_t stitches = 0, stitched_reuses = 0;  // ranges mapped from free pieces; served by one of them
};

struct RunResult {
  Outcome outcome = Outcome::ok;
  std::string explanation;                   // for every outcome but ok: where, what was live, what would do
  Bytes smallest_budget{-1};                 // infeasible / out_of_memory: smallest that would do, -1 unknown
  std::vector<IterationMetrics> iterations;  // those that completed
  AllocatorFigures allocator;
  Bytes peak_host_pinned;
  Nanos pinning_time;  // host time to pin that pool, before the first iteration
  std::uint64_t plan_steps = 0, plan_steps_skipped = 0, evictions = 0, make_room_calls = 0;
  std::vector<PolicyMetric> policy_metrics;
};

// Every figure that results report, for table headers, metrics.json and the documentation. Stall
// classes appear as "stall_<name>_ns".
enum class Better : std::uint8_t { lower, higher };
struct MetricDescription {
  std::string tag, unit, description;  // unit: "ns", "B", "ppm" or "count"
  Better better;
};
std::vector<MetricDescription> metric_table();

}  // namespace swaplab
