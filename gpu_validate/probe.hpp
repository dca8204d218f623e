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
  // For all of it; 0: 90 s, or 600 s for the full set. Every quantity has an equal share of what is left when
  // its turn comes: what one leaves over goes to those after it, and a slow one takes nothing from them.
  Nanos limit{0};
  std::string date;  // YYYY-MM-DD, of the measurement
  std::string only;  // quantities whose name contains this; "" = all
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(std::size_t done, std::size_t total, const std::string& what)> progress;
  std::function<Nanos()> clock;  // that the limit is measured on; empty: the computer's
};

struct ProbePoint {
  std::string quantity;
  std::int64_t x = 0;
  XUnit unit = XUnit::call;
};

// Everything that a set asks for, in the order measured. Copies come first: they matter most if time is
// short.
std::vector<ProbePoint> probe_points(const ProbeOptions& options, const ProbeDevice& device);

// Points of a quantity that its share of the time did not suffice for: the largest x.
struct LeftOut {
  std::string quantity;
  std::size_t points = 0, of = 0;
};

struct ProbeResult {
  Measurements measurements;
  std::vector<std::string> unsupported;  // quantities that the device does not have
  std::vector<LeftOut> left_out;
};

// Throws Interrupted (gpu_validate/real_device.hpp), or as the device does.
ProbeResult probe_device(Hardware& hardware, const ProbeOptions& options);

}  // namespace swaplab
