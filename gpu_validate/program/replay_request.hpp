// What `swaplab-gpu replay` is asked to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/commands.hpp"
#include "experiments/prepared_runs.hpp"
#include "gpu_validate/real_device.hpp"

namespace swaplab {

struct ReplayRequest {
  std::vector<std::string> traces;
  std::vector<PolicySpec> policies;
  std::vector<BudgetSpec> budgets;
  std::string machine_name;
  Machine machine;
  RunSettings settings;
  std::string times = "auto", alloc_conf = "default";
  std::uint32_t iterations = 0, warmup = 1;
  std::int64_t repeats = 3, bytes_divisor = 0;
  std::uint64_t seed = 1;
  bool random_order = true;
  RealDeviceOptions device;
  std::string device_name;
  std::string output;
  bool json = false;
};

// Nothing when the help was asked for, which is then printed. Throws Error(usage, input).
std::optional<ReplayRequest> read_replay_request(const Arguments& arguments);

}  // namespace swaplab
