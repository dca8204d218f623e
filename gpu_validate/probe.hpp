// Measures a device: which quantities at which sizes, how many samples, within a time limit.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu_validate/calibrate/measurements.hpp"
#include "gpu_validate/hardware.hpp"

namespace swaplab {

struct ProbeOptions {
  bool full = false;  // more sizes and samples
  Nanos limit;        // for all of it; 0: 90 s, or 600 s for the full set
  std::string date;   // YYYY-MM-DD, of the measurement
  std::string only;   // quantities whose name contains this; "" = all
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(std::size_t done, std::size_t total, const std::string& what)> progress;
};

struct ProbePoint {
  std::string quantity;
  std::int64_t x = 0;
  XUnit unit = XUnit::call;
};

// Everything that a set asks for, in the order measured. Copies come first: they matter most if time is
// short.
std::vector<ProbePoint> probe_points(const ProbeOptions& options, const ProbeDevice& device);

struct ProbeResult {
  Measurements measurements;
  std::vector<std::string> unsupported;  // quantities that the device does not have
  std::size_t out_of_time = 0;           // points left out when the limit was reached
};

// Throws Interrupted (gpu_validate/real_device.hpp), or as the device does.
ProbeResult probe_device(Hardware& hardware, const ProbeOptions& options);

}  // namespace swaplab
