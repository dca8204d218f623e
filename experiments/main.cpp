#include <cstdio>
#include <exception>
#include <new>

#include "experiments/commands.hpp"
#include "trace/error.hpp"

namespace {

constexpr const char* kHelp = R"(swaplab: replay eager training traces under GPU-memory swap policies

usage: swaplab COMMAND [options]        (swaplab COMMAND --help teaches each)

  run         compare policies on traces at memory budgets, beside a proven bound
  trace       info | check | convert: what a recording holds, whether it is consistent
  policies    list | show NAME: what decides, what it needs to know, its parameters
  machines    list | show NAME: device memory, links and API costs, each with its source
  check-schedule FILE   verifies a schedule against its trace, independently of the engine
  allocator   replay: what PyTorch's caching allocator does with a request log

example:
  swaplab run --trace configs/traces/gpt2_medium.jsonl.gz --policy lru,next-use,foresight \
              --budget 0.5x,0.7x --machine a100-40g-pcie4

exit codes: 0 done (a run that does not fit is a result), 2 wrong usage, 3 bad input, 4 cannot write,
            5 policy error, 6 accounting broken (please report)
)";

int exit_code(swaplab::ErrorKind kind) {
  switch (kind) {
    case swaplab::ErrorKind::usage:
      return swaplab::kExitUsage;
    case swaplab::ErrorKind::input:
      return swaplab::kExitInput;
    case swaplab::ErrorKind::output:
      return swaplab::kExitOutput;
    case swaplab::ErrorKind::policy:
      return swaplab::kExitPolicy;
    case swaplab::ErrorKind::invariant:
      return swaplab::kExitInvariant;
  }
  return swaplab::kExitInvariant;
}

int dispatch(swaplab::Arguments arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    std::fputs(kHelp, stdout);
    return swaplab::kExitOk;
  }
  if (arguments[0] == "--version") {
    std::puts("swaplab 0.1.0");
    return swaplab::kExitOk;
  }
  const std::string command = swaplab::take_action(
      arguments, "COMMAND", {"run", "trace", "policies", "machines", "allocator", "check-schedule"});
  if (command == "run") return swaplab::run_command(arguments);
  if (command == "trace") return swaplab::trace_command(arguments);
  if (command == "policies") return swaplab::policies_command(arguments);
  if (command == "machines") return swaplab::machines_command(arguments);
  if (command == "check-schedule") return swaplab::check_schedule_command(arguments);
  return swaplab::allocator_command(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = dispatch({argv + 1, argv + argc});
    if (std::fflush(stdout) != 0)
      throw swaplab::Error(swaplab::ErrorKind::output, "cannot write to standard output");
    return code;
  } catch (const swaplab::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of host memory\n", stderr);
    return swaplab::kExitInput;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: unexpected: %s\n", error.what());
    return swaplab::kExitInvariant;
  }
}
