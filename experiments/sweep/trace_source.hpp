// Where a sweep's traces come from. A value of the factor `trace` is a text that names a source; a kind
// of source is one row of the table in trace_source.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "experiments/sweep/config_node.hpp"
#include "trace/model.hpp"

namespace swaplab {

// Canonical text of a source written in a sweep file. Throws Error(input) at the place.
std::string read_trace_source(const ConfigPlace& place);
// What else than a file can be written, for the documentation ("" when nothing).
std::string trace_source_summary();

// The file or workload that a source begins with, and the hash of its content.
std::string trace_source_origin(const std::string& source);
std::string trace_source_hash(const std::string& source);
// Whether the seed of a run changes this trace.
bool trace_source_uses_seed(const std::string& source);
// Reads or makes the trace. `iterations` 0: as it is. Throws Error(input, usage).
std::shared_ptr<const Trace> open_trace_source(const std::string& source, std::uint32_t iterations,
                                               std::uint64_t seed);

}  // namespace swaplab
