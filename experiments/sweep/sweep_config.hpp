// The sweep file: what to run, as a strict, versioned configuration (schema swaplab/sweep@1).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sweep/config_node.hpp"
#include "experiments/sweep/uncertainty.hpp"
#include "trace/units.hpp"

namespace swaplab {

constexpr const char* kSweepSchema = "swaplab/sweep@1";

// One dimension of a sweep: a factor and the texts it takes, canonical and distinct, in file order.
struct SweepParameter {
  std::string name;  // "trace", "policy", "budget", "machine", "machine.links.h2d.bandwidth", ...
  std::vector<std::string> values;
};

// One run's factors: name and text, in canonical order, every factor present.
using Factors = std::vector<std::pair<std::string, std::string>>;

enum class SweepMethod : std::uint8_t { grid, random, list, zip };

struct SweepConfig {
  std::string file;
  std::string name, description;
  SweepMethod method = SweepMethod::grid;
  std::vector<SweepParameter> parameters;  // canonical order, defaults filled in
  std::vector<Factors> list;               // method list: the factors that each entry sets
  std::vector<std::vector<std::pair<std::string, std::vector<std::string>>>> exclude;
  std::vector<int> exclude_lines;
  std::int64_t run_cap = 10'000;
  std::int64_t samples = 100;  // method random: runs to draw
  std::uint64_t sampling_seed = 1;
  std::string baseline;  // a policy of the sweep; "" without
  std::string metric = "iter_time_ns";
  std::int64_t threshold_ppm = 10'000;  // smallest relative difference that matters
  Nanos time_limit{0};                  // per run, wall time; 0: none
  Bytes memory_limit{0};                // per run, host memory; 0: none
  bool bounds = true;
  bool schedules = false;
  Uncertainty uncertainty;
};

// Throws Error(input) with file and line (one line, with a suggestion); relative paths are relative to
// the working directory, globs are expanded in sorted order.
SweepConfig parse_sweep_config(const ConfigNode& root, const std::string& file);
SweepConfig load_sweep_config(const std::string& path, const std::vector<std::string>& overrides);

// Every default filled in; parse_sweep_config reads it back to the same configuration.
std::string resolved_config_json(const SweepConfig& config);
// JSON Schema (2020-12) of the file.
std::string sweep_json_schema();

// "policy" factors as `compare` and `exclude` name them: the text as typed, or the policy's bare name.
bool policy_matches(const std::string& wanted, const std::string& factor);

std::string_view method_name(SweepMethod method);

}  // namespace swaplab
