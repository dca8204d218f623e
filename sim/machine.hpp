// Description of one node: device memory, links, engines and API costs, each figure with its source.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/units.hpp"

namespace swaplab {

enum class Direction : std::uint8_t { device_to_host = 0, host_to_device = 1 };

// Parts per million, the integer form of every factor. 1'000'000 = unchanged.
using Ppm = std::int64_t;
constexpr Ppm kUnchanged = 1'000'000;

// Copy time as a function of size: piecewise linear through measured points.
struct TransferPoint {
  Bytes bytes;
  Nanos time;
};

class TransferTable {
 public:
  TransferTable() = default;
  // Points strictly increasing in bytes, non-decreasing in time; the first may be {0 B, latency}.
  // Below the first point a copy takes that point's time (its latency); beyond the last the time grows
  // at `bytes_per_second`; without points it is bytes / bytes_per_second. Throws Error(input) otherwise.
  TransferTable(std::vector<TransferPoint> points, std::int64_t bytes_per_second);
  // Linear interpolation, rounded up to a whole nanosecond; 0 for 0 bytes; never above 2^61 ns.
  Nanos time(Bytes bytes) const;
  // The rate that no copy exceeds in bytes/s (used by the bounds, so it is rounded up): the largest of
  // `bytes_per_second` and bytes/time of any point. Slopes between points do not matter: a copy of any
  // size takes at least bytes / best_rate().
  std::int64_t best_rate() const { return best_rate_; }
  std::span<const TransferPoint> points() const { return points_; }
  std::int64_t bytes_per_second() const { return bytes_per_second_; }

 private:
  std::vector<TransferPoint> points_;
  std::int64_t bytes_per_second_ = 0;
  std::int64_t best_rate_ = 0;
};

// Operator classes of the cost model; efficiencies are stated per class.
enum class OpClass : std::uint8_t {
  matmul,
  attention,
  convolution,
  elementwise,
  reduction,
  normalization,
  optimizer,
  copy,
  other
};
constexpr std::size_t kOpClassCount = 9;
std::string_view op_class_name(OpClass cls);
// Class of an operator by its name, e.g. "aten.mm.default" -> matmul. Unlisted names are `other`.
OpClass classify_operator(std::string_view name);

struct Efficiency {
  Ppm compute = kUnchanged;  // share of the peak FLOP rate that the class reaches
  Ppm memory = kUnchanged;   // share of the HBM bandwidth
};

// Peak rates by the number format of the operator's largest operand, FLOP/s.
struct FlopRates {
  std::int64_t fp32 = 0, tf32 = 0, fp16 = 0, bf16 = 0, fp64 = 0;
};

struct HostCosts {       // host time of each call
  Nanos op_dispatch;     // issuing one operator, when the trace has no host time
  Nanos view_dispatch;   // the same for a view, which launches nothing
  Nanos launch_latency;  // from the end of the launch call to the earliest start on the device
  Nanos copy_submit, event_record, event_wait, event_query;
  Nanos sync_resume;                                        // after a blocking synchronisation
  Nanos alloc_cached, free_cached;                          // allocator served from its cache
  Nanos device_malloc, device_malloc_per_gib, device_free;  // cudaMalloc = fixed + per GiB
  Nanos map_page, unmap_page, reserve_range;                // virtual memory management, per handle
};

struct HostMemory {
  Bytes capacity;                     // bytes that may be pinned
  Nanos pin_per_gib;                  // host time to pin when the pool grows
  bool round_to_power_of_two = true;  // PyTorch's pinned allocator
};

struct Interference {
  // Rate of a copy while the other direction is active; kUnchanged = full duplex.
  Ppm d2h_during_h2d = kUnchanged, h2d_during_d2h = kUnchanged;
  // Rate of a kernel while a copy in that direction is active.
  Ppm kernel_during_d2h = kUnchanged, kernel_during_h2d = kUnchanged;
};

struct FigureSource {
  std::string figure;  // dotted path in the file, e.g. "links.h2d.bandwidth"
  std::string status;  // "measured", "published" or "assumed"
  std::string source;
};

struct Machine {
  std::string name, summary;
  Bytes hbm_capacity;
  std::int64_t hbm_bytes_per_second = 0;
  FlopRates flop_rates;
  std::array<Efficiency, kOpClassCount> efficiency{};
  Nanos kernel_floor;                      // shortest kernel on the device
  std::int64_t launch_queue_depth = 1024;  // kernels in flight before a launch blocks the host; 0 = unlimited
  HostCosts host;
  HostMemory host_memory;
  std::array<TransferTable, 2> pinned, pageable;  // by Direction
  Interference interference;
  std::vector<FigureSource> sources;

  const TransferTable& link(Direction direction) const { return pinned[static_cast<std::size_t>(direction)]; }
};

}  // namespace swaplab
