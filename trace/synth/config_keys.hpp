// The one table of workload keys: parsing, unknown-key errors, reference text and JSON come from it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/synth/config.hpp"

namespace swaplab::synth {

struct ConfigKey {
  std::string_view path;  // "model.layers"
  std::string form;       // "integer >= 1", "one of a, b"
  std::string_view meaning;
  // Sets from text; returns what is wrong with it, or nothing.
  std::function<std::string(WorkloadConfig&, const std::string&)> set;
  std::function<std::string(const WorkloadConfig&)> get;  // as JSON
  bool list = false;                                      // also takes a YAML list
};

const std::vector<ConfigKey>& config_keys();

}  // namespace swaplab::synth
