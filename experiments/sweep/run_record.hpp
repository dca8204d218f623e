// One finished run as a line of runs.jsonl (schema swaplab/result@1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "experiments/sweep/metrics_table.hpp"
#include "experiments/sweep/sweep_config.hpp"

namespace swaplab {

constexpr const char* kResultSchema = "swaplab/result@1";

struct RunRecord {
  std::size_t index = 0;  // position in the plan
  std::string key;        // names the run by its factors and the content of its inputs
  // ok, infeasible, out_of_memory, policy_error (results of the simulation, the same everywhere);
  // error (the trace or machine could not be used); timeout, memory_limit, crashed (this machine).
  std::string status;
  Factors factors;
  std::string policy;  // every parameter filled in
  std::string explanation;
  MetricValues metrics;
  Nanos wall_time{0};

  bool ok() const { return status == "ok"; }
  const std::string& factor(std::string_view name) const;  // "" when absent
  std::optional<std::int64_t> metric(std::string_view name) const;
};

// A line without its newline. Without `wall_time` it is the same on every machine.
std::string record_line(const RunRecord& record, bool with_wall_time);
// Throws Error(input) saying what is wrong; `where` is file and line.
RunRecord parse_record(std::string_view line, const std::string& where);

}  // namespace swaplab
