// Option parsing on Boost.Program_options, with the project's error style.
#pragma once

#include <boost/program_options.hpp>
#include <string>

#include "experiments/commands.hpp"

namespace swaplab {

// Parses `arguments`; positional words go to `positional` ("" = none allowed). Throws Error(usage),
// with "did you mean" for unknown options.
boost::program_options::variables_map parse_options(
    const Arguments& arguments, const boost::program_options::options_description& options,
    const std::string& positional);

}  // namespace swaplab
