// Running other programs.
#pragma once

#include <string>
#include <vector>

namespace swaplab {

struct ProcessResult {
  int code = -1;  // exit code; 127 when the program does not exist; 128 + signal
  std::string output, errors;
};
// Searches PATH, waits for the end. Throws Error(output) when no process can be made.
ProcessResult run_process(const std::vector<std::string>& arguments);

// Path of this program.
std::string own_program();

}  // namespace swaplab
