// The keys of a sweep file: one table for reading it and for its JSON Schema (private to sweep/).
#pragma once

#include <string_view>

namespace swaplab {

inline constexpr std::string_view kSweepMethods[] = {"grid", "random", "list", "zip"};  // as SweepMethod

// Keys at the top of the file. The JSON Schema is made from this table, too.
struct SweepKey {
  const char* name;
  const char* json_type;
  const char* fallback;
  const char* description;
};
inline constexpr SweepKey kSweepKeys[] = {
    {"schema", "string", nullptr, "must be swaplab/sweep@1"},
    {"name", "string", nullptr, "letters, digits, - and _; begins the name of the output folder"},
    {"description", "string", "", "what the study asks"},
    {"method", "string", "grid",
     "grid: every combination; zip: values side by side; list: `runs`; random: draws"},
    {"run_cap", "integer", "10000", "larger sweeps are refused unless --yes is given"},
    {"parameters", "object", nullptr, "factors and the values that they take"},
    {"runs", "array", "[]", "method list: one object of factors per run"},
    {"exclude", "array", "[]", "objects of factors; a run that matches all of one object is left out"},
    {"samples", "integer", "100", "method random: how many distinct runs to draw"},
    {"sampling_seed", "integer", "1", "method random: seed of the draw"},
    {"baseline", "string", "", "policy that `compare` and `report` compare with"},
    {"metric", "string", "iter_time_ns", "metric that `compare` and `report` use"},
    {"threshold", "string", "1%", "smallest relative difference that matters"},
    {"limits", "object", "{}", "per run: time (with unit), memory (with unit)"},
    {"bounds", "boolean", "yes", "compute the proven lower bound beside every run"},
    {"schedules", "boolean", "no", "keep every run's schedule (large)"},
    {"uncertainty", "object", "{}", "distributions of machine figures and operator times"},
};

}  // namespace swaplab
