// Option parsing on Boost.Program_options, with the project's error style.
#pragma once

#include <boost/program_options.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/commands.hpp"
#include "trace/error.hpp"

namespace swaplab {

// Parses `arguments`; positional words go to `positional` ("" = none allowed). Throws Error(usage),
// with "did you mean" for unknown options, and for a negative number where none makes sense.
boost::program_options::variables_map parse_options(
    const Arguments& arguments, const boost::program_options::options_description& options,
    const std::string& positional);

// To be called before any work: throws Error(usage) when writing `output` would replace one of `inputs`, and
// Error(output) when it is a folder or lies in none.
void check_output(const std::string& output, const std::vector<std::string>& inputs);

// To be called before any work: throws Error(usage) when `path` ends in none of `endings`, and lists them.
void check_ending(const std::string& path, std::span<const std::string_view> endings);

// The same two for a trace to write.
void check_trace_output(const std::string& output, const std::vector<std::string>& inputs);

// What --jobs says, or one thread per processor without it. Throws Error(usage) outside 1 to 4096.
unsigned jobs_of(const boost::program_options::variables_map& values);
inline constexpr const char* kJobsHelp =
    "threads, 1 to 4096 (default: one per processor); results do not depend on it";

// Throws Error(usage) when a value of `option` is listed twice.
void refuse_repeats(const std::string& option, std::vector<std::string> values);

// "a,b,c"; empty parts are left out.
std::vector<std::string> split_list(const std::string& text, char separator = ',');

// What the programs end with for an error.
int exit_code(ErrorKind kind);

// For messages that quote files: control characters as \xNN, so that they reach no terminal.
std::string printable(std::string_view text);

}  // namespace swaplab
