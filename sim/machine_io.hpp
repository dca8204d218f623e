// Machine descriptions from YAML or JSON files.
#pragma once

#include <string>
#include <vector>

#include "sim/machine.hpp"

namespace swaplab {

// `name_or_path`: a file, or the name of a file in one of the machine folders (without .yaml).
// Strict: an unknown key, a missing or wrong unit, a rate of 0, a missing source or a contradictory
// table is one Error(input) naming file, line and key (with "did you mean").
Machine load_machine(const std::string& name_or_path);
Machine parse_machine(const std::string& text, const std::string& file_name);

struct MachineListing {
  std::string name, summary, path;
};
// Every machine of the machine folders, by name: $SWAPLAB_MACHINES (if set), then configs/machines
// beside the source tree, then share/swaplab/machines beside the program.
std::vector<MachineListing> list_machines();

// The resolved description as canonical JSON text, integers in base units (bytes, ns, bytes/s, ppm).
std::string machine_json(const Machine& machine);

}  // namespace swaplab
