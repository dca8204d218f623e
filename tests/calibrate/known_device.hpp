// Measurements of a device whose every figure is known.
#pragma once

#include <cstdint>
#include <string>

#include "gpu_validate/calibrate/measurements.hpp"
#include "tests/calibrate/noise.hpp"

namespace swaplab::test {

// The truth, in ns, bytes per ns and shares.
struct KnownDevice {
  double h2d_latency = 2600, h2d_rate = 54.2, d2h_latency = 1900, d2h_rate = 51.7;
  double pageable_latency = 11'000, h2d_pageable_rate = 6.1, d2h_pageable_rate = 2.4;
  double h2d_duplex = 0.93, d2h_duplex = 0.62;
  double compute_beside = 0.985, memory_beside_h2d = 0.95, memory_beside_d2h = 0.91;
  double launch_latency = 4'700, copy_submit = 3'100, event_record = 620, event_wait = 540, event_query = 410,
         synchronize = 5'300, kernel_empty = 2'150;
  double malloc_fixed = 61'000, malloc_per_gib = 740'000, device_free = 93'000;
  double map_page = 44'000, unmap_page = 27'000, reserve = 8'800;
  double pin_per_gib = 291e6;
  double bf16_rate = 612e3;  // FLOP per ns
  double stream_rate = 2'890;
  double matmul_overhead = 3'000, stream_overhead = 2'500;
};

struct NoiseModel {
  std::size_t samples = 20;
  std::int64_t jitter_ppm = 15'000;
  std::uint64_t outlier_one_in = 20;  // 0: none
};

inline Measurements measure(const KnownDevice& d, const NoiseModel& model, std::uint64_t seed) {
  Noise noise(seed);
  Measurements m;
  m.file = "known.json";
  m.device = {"Known GPU", "580.1", "CUDA 13.0", "2026-11-30", "cuda"};
  const auto add = [&](const std::string& quantity, std::int64_t x, XUnit unit, double time) {
    m.series.push_back(
        {quantity, x, unit, noise.samples(time, model.samples, model.jitter_ppm, model.outlier_one_in)});
  };
  const auto call = [&](const std::string& quantity, double time) { add(quantity, 1, XUnit::call, time); };
  for (std::int64_t x = 1024; x <= std::int64_t{1} << 30; x *= 4) {
    const auto bytes = static_cast<double>(x);
    const double in = d.h2d_latency + bytes / d.h2d_rate, out = d.d2h_latency + bytes / d.d2h_rate;
    add("copy_h2d_pinned", x, XUnit::bytes, in);
    add("copy_d2h_pinned", x, XUnit::bytes, out);
    add("copy_h2d_pageable", x, XUnit::bytes, d.pageable_latency + bytes / d.h2d_pageable_rate);
    add("copy_d2h_pageable", x, XUnit::bytes, d.pageable_latency + bytes / d.d2h_pageable_rate);
    if (x >= 1 << 20) {
      add("copy_h2d_duplex", x, XUnit::bytes, in / d.h2d_duplex);
      add("copy_d2h_duplex", x, XUnit::bytes, out / d.d2h_duplex);
      add("host_malloc", x, XUnit::bytes, d.malloc_fixed + d.malloc_per_gib * bytes / 1073741824.0);
      add("host_free", x, XUnit::bytes, d.device_free);
      add("pin", x, XUnit::bytes, d.pin_per_gib * bytes / 1073741824.0);
      add("stream_copy", x, XUnit::bytes, d.stream_overhead + bytes / d.stream_rate);
    }
  }
  for (const std::int64_t work : {200, 2'000, 20'000}) {
    const double time = 400.0 * static_cast<double>(work);
    for (const std::string kernel : {"compute", "memory"}) {
      add("kernel_" + kernel, work, XUnit::work, time);
      const bool compute = kernel == "compute";
      add("kernel_" + kernel + "_beside_h2d", work, XUnit::work,
          time / (compute ? d.compute_beside : d.memory_beside_h2d));
      add("kernel_" + kernel + "_beside_d2h", work, XUnit::work,
          time / (compute ? d.compute_beside : d.memory_beside_d2h));
    }
  }
  call("launch_latency", d.launch_latency);
  call("host_copy_submit", d.copy_submit);
  call("host_event_record", d.event_record);
  call("host_event_wait", d.event_wait);
  call("host_event_query", d.event_query);
  call("host_synchronize", d.synchronize);
  call("kernel_empty", d.kernel_empty);
  for (const std::int64_t handle : {2, 20}) {
    add("vmm_map", handle << 20, XUnit::bytes, d.map_page);
    add("vmm_unmap", handle << 20, XUnit::bytes, d.unmap_page);
  }
  call("vmm_reserve", d.reserve);
  for (std::int64_t flop = 1'000'000'000; flop <= 64'000'000'000'000; flop *= 4)
    add("gemm_bf16", flop, XUnit::flop, d.matmul_overhead + static_cast<double>(flop) / d.bf16_rate);
  return m;
}

}  // namespace swaplab::test
