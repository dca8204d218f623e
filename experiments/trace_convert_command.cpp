#include <iostream>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace po = boost::program_options;

namespace swaplab {

int trace_convert_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")(
      "output,o", po::value<std::string>(),
      "file to write; format by extension (.swt, .jsonl, .jsonl.gz, .jsonl.zst)")(
      "iterations", po::value<std::int64_t>(), "continue the recording to this many iterations")(
      "file", po::value<std::vector<std::string>>(), "trace file (positional)");
  const po::variables_map values = parse_options(arguments, options, "file");
  if (values.count("help") != 0) {
    std::cout << "swaplab trace convert FILE -o OUT [--iterations N]\n\n"
                 "Writes the trace again in another format, complete or not at all.\n"
                 "\n.swt is binary, checksummed and memory-mapped: it loads at memory speed, so keep long "
                 "traces in it.\n"
                 "\nexamples:\n  swaplab trace convert configs/traces/gpt_small.jsonl.gz -o gpt.jsonl.zst "
                 "--iterations 20\n  swaplab trace convert configs/traces/gpt2_medium.jsonl.gz -o gpt2.swt "
                 "--iterations 200\n\n"
              << options;
    return kExitOk;
  }
  if (values.count("file") == 0 || values["file"].as<std::vector<std::string>>().size() != 1 ||
      values.count("output") == 0)
    throw Error(ErrorKind::usage, "swaplab trace convert needs one file and -o OUT");
  check_trace_output(values["output"].as<std::string>(), values["file"].as<std::vector<std::string>>());
  ReadReport read;
  Trace trace = read_trace(values["file"].as<std::vector<std::string>>()[0], &read);
  print_warnings(read);
  if (values.count("iterations") != 0) {
    const std::int64_t n = values["iterations"].as<std::int64_t>();
    if (n < 1 || n > 1'000'000)
      throw Error(ErrorKind::usage, "--iterations must be 1 to 1000000, found " + std::to_string(n));
    trace = extend_iterations(trace, static_cast<std::uint32_t>(n));
  }
  write_trace(trace, values["output"].as<std::string>());
  return kExitOk;
}

}  // namespace swaplab
