#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <new>

#include "experiments/build_info.hpp"
#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "trace/error.hpp"

namespace {

struct Command {
  const char* name;
  int (*run)(const swaplab::Arguments&);
  const char* summary;
};

// A new command is one line here; the help text and the suggestions come from it.
constexpr Command kCommands[] = {
    {"run", swaplab::run_command, "compare policies on traces at memory budgets, beside a proven bound"},
    {"sweep", swaplab::sweep_command, "every combination of a sweep file; resumable, on all cores"},
    {"compare", swaplab::compare_command, "is policy B better than A: ratios, intervals, tests, verdicts"},
    {"sensitivity", swaplab::sensitivity_command, "does it hold when the machine is not quite as described"},
    {"report", swaplab::report_command, "one HTML file of a sweep: verdicts, curves, failures, every run"},
    {"timeline", swaplab::timeline_command, "what streams, copies and stalls did, for Perfetto or Chrome"},
    {"sweep-task", swaplab::sweep_task_command, "one array task of a sweep on Slurm (started by sweep)"},
    {"config", swaplab::config_command, "check sweep files, fill defaults in, print their JSON Schema"},
    {"trace", swaplab::trace_command, "what a recording holds, whether it is consistent, other formats"},
    {"policies", swaplab::policies_command, "what decides, what it needs to know, its parameters"},
    {"machines", swaplab::machines_command, "device memory, links and API costs, each with its source"},
    {"calibrate", swaplab::calibrate_command, "fit a machine description to measurements of a device"},
    {"validate", swaplab::validate_command, "how far simulated runs are from measured ones, with a verdict"},
    {"plan", swaplab::plan_command, "what Chameleon's generator would swap in one iteration, and why"},
    {"check-schedule", swaplab::check_schedule_command,
     "verify a schedule against its trace, independently of the engine"},
    {"allocator", swaplab::allocator_command, "what PyTorch's caching allocator does with a request log"},
};

constexpr const char* kHelpEnd = R"(
example:
  swaplab run --trace configs/traces/gpt2_medium.jsonl.gz --policy lru,next-use,foresight \
              --budget 0.5x,0.7x --machine a100-40g-pcie4

exit codes: 0 done (a run that does not fit is a result), 1 verdict (compare --fail-on, validate), 2 wrong usage,
            3 bad input, 4 cannot write, 5 policy error, 6 accounting broken (please report) or schedule refused,
            130 interrupted (a sweep: --resume goes on)
)";

void print_help() {
  std::fputs(
      "swaplab: replay eager training traces under GPU-memory swap policies\n\n"
      "usage: swaplab COMMAND [options]        (swaplab COMMAND --help teaches each)\n\n",
      stdout);
  for (const Command& command : kCommands) std::printf("  %-15s %s\n", command.name, command.summary);
  std::fputs(kHelpEnd, stdout);
}

int dispatch(swaplab::Arguments arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments == swaplab::Arguments{"help"}) {
    print_help();
    return swaplab::kExitOk;
  }
  if (arguments[0] == "--version") {
    std::printf("swaplab %s (%s)\n", swaplab::kToolVersion, swaplab::build_commit());
    return swaplab::kExitOk;
  }
  if (arguments[0] == "help") arguments = {arguments[1], "--help"};
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  const std::string name = swaplab::take_action(arguments, "", names);
  const auto* found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                   [&](const Command& c) { return c.name == name; });
  return found->run(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = dispatch({argv + 1, argv + argc});
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw swaplab::Error(swaplab::ErrorKind::output, "cannot write to standard output");
    return code;
  } catch (const swaplab::Error& error) {
    std::fprintf(stderr, "error: %s\n", swaplab::printable(error.what()).c_str());
    return swaplab::exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of host memory\n", stderr);
    return swaplab::kExitInput;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: unexpected: %s\n", error.what());
    return swaplab::kExitInvariant;
  }
}
