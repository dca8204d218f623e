// A sweep written out: every run with its factors, in canonical order.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "experiments/sweep/sweep_config.hpp"

namespace swaplab {

struct PlannedRun {
  std::size_t index;
  Factors factors;
  std::string key;    // 16 hexadecimal digits of the hash of factors and inputs
  std::size_t group;  // runs of a group share one prepared program; groups are contiguous
  const std::string& factor(std::string_view name) const;
};

struct InputFile {
  std::string path, sha256;
};

struct SweepPlan {
  SweepConfig config;
  std::vector<PlannedRun> runs;
  std::size_t excluded = 0;
  std::vector<std::size_t> group_begin;  // groups + 1: runs of group g are [g], [g + 1)
  std::vector<InputFile> traces;         // files, by path
  std::vector<InputFile> machines;       // resolved descriptions, by the name used
  std::string identity;                  // hash of the resolved configuration and all inputs
};

// `allow_large`: beyond the configuration's run_cap. Throws Error(usage) beyond it, Error(input) for an
// exclusion that matches nothing, for two equal runs and for inputs that cannot be read.
SweepPlan make_plan(const SweepConfig& config, bool allow_large);

// Name of the results folder: "<name>-<12 digits of the identity>".
std::string results_folder_name(const SweepPlan& plan);

}  // namespace swaplab
