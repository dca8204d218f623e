// One replay on an accelerator: program x policy x budget -> the figures of a run, as measured, its
// decisions, and what the check of all data found.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu_validate/accelerator.hpp"
#include "gpu_validate/real_device.hpp"
#include "sim/allocator/config.hpp"
#include "sim/run.hpp"

namespace swaplab {

struct ReplaySettings {
  Bytes budget;  // simulated bytes
  AllocatorConfig allocator_config;
  Needs needs = Needs::none;           // what the policy declared
  RealDeviceOptions device;            // reservations are filled in
  std::int64_t reserve_percent = 400;  // address space for segments, of the budget
};

struct Integrity {
  VerifyCounts counts;
  // One sentence each, naming storage, operator or copy, byte, and the schedule entries that put the bytes
  // there; at most 20.
  std::vector<std::string> findings;
  bool ok() const { return counts.wrong_words == 0; }
};

struct Replay {
  RunResult result;   // times / time_scale, sizes in simulated bytes
  Schedule schedule;  // entries with their measured times, without header
  Integrity integrity;
  Bytes device_peak{0};  // real bytes taken from the driver; 0 when not known
};

using AcceleratorOpener = std::function<std::unique_ptr<Accelerator>(const AcceleratorOptions&)>;

// Throws Interrupted, Error(usage, input) as the accelerator does, Error(invariant) when the accounting does
// not add up. A policy's failure is a result, as in run_program.
Replay replay_program(const Program& program, const Machine& machine, Policy& policy,
                      const ReplaySettings& settings, const AcceleratorOpener& open);

// The first decision that differs between two runs of a program (kind, storage or operator, bytes, stream),
// or nothing.
std::optional<std::string> first_difference(const Schedule& a, const Schedule& b);

}  // namespace swaplab
