// Devices by name: "host", "cuda", "cuda:1". What they are, how they are opened for replays and probed.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_validate/accelerator.hpp"

namespace swaplab {

// There is no such device here; what() is one line that says why.
class NoDevice : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Takes samples of one quantity of a measurement file (gpu_validate/calibrate/measurements.hpp).
class ProbeDevice {
 public:
  ProbeDevice() = default;
  virtual ~ProbeDevice() = default;
  ProbeDevice(const ProbeDevice&) = delete;
  ProbeDevice& operator=(const ProbeDevice&) = delete;

  // Makes ready for samples at x (warm buffers, calibrated background work). False when this device has no
  // such quantity or x is beyond it (memory).
  virtual bool prepare(std::string_view quantity, std::int64_t x) = 0;
  // One sample of what was prepared last.
  virtual Nanos sample() = 0;
  // Numbers of other devices that copies can go to.
  virtual std::vector<int> peers() const { return {}; }
  virtual int number() const { return 0; }
};

class Hardware {
 public:
  Hardware() = default;
  virtual ~Hardware() = default;
  Hardware(const Hardware&) = delete;
  Hardware& operator=(const Hardware&) = delete;

  virtual const AcceleratorInfo& info() const = 0;
  virtual std::unique_ptr<Accelerator> open(const AcceleratorOptions& options) = 0;
  virtual std::unique_ptr<ProbeDevice> open_probe() = 0;
  // Address space for segments, in percent of the budget: where it takes memory, as little as will do.
  virtual std::int64_t reserve_percent(MemoryMode memory) const = 0;
};

// Throws NoDevice, or Error(usage) for a name that means nothing.
std::unique_ptr<Hardware> open_hardware(std::string_view name);
std::unique_ptr<Hardware> open_host_hardware();
// Throws NoDevice: no driver, no such device, or a program built without CUDA.
std::unique_ptr<Hardware> open_cuda_hardware(int ordinal);
bool built_with_cuda();

}  // namespace swaplab
