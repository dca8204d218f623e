// Schedule files: JSON lines (plain, .gz, .zst).
#pragma once

#include <string>

#include "sim/schedule.hpp"

namespace swaplab {

// Atomic, like every output. Throws Error(output).
void write_schedule(const Schedule& schedule, const std::string& path);
// Throws Error(input) with file and line.
Schedule read_schedule(const std::string& path);

}  // namespace swaplab
