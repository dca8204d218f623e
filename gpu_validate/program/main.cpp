#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <new>

#include "experiments/build_info.hpp"
#include "experiments/options.hpp"
#include "gpu_validate/hardware.hpp"
#include "gpu_validate/program/commands.hpp"
#include "gpu_validate/real_device.hpp"
#include "trace/error.hpp"

namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// The first SIGINT asks for an orderly end; one that comes a second later or more ends at once. (One Ctrl-C
// can arrive several times: `timeout` signals its child and then the whole group.)
std::atomic<std::int64_t> first_interrupt{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

extern "C" void on_interrupt(int) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t ms = std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  if (!interrupted.exchange(true)) {
    first_interrupt.store(ms);
  } else if (ms - first_interrupt.load() >= 1000) {
    ::_exit(swaplab::kExitInterrupted);
  }
}

constexpr const char* kHelp =
    R"(swaplab-gpu: run the policies of swaplab on a real device, and measure that device

usage: swaplab-gpu COMMAND [options]        (swaplab-gpu COMMAND --help teaches each)

  replay   run policies on traces: real buffers, real copies, every byte checked, times measured
  probe    measure links, kernels, interference and call costs, for 'swaplab calibrate'

devices: cuda, cuda:N where there is a GPU; host (threads of this computer) anywhere

example:
  swaplab-gpu replay --trace configs/traces/gpt_small.jsonl.gz --policy lru,foresight --budget 0.6x \
                     --device host --output measured.jsonl
  swaplab-gpu probe --device cuda -o measurements.json

exit codes: 0 done (a run that does not fit is a result), 2 wrong usage, 3 bad input or the device refused,
            4 cannot write, 5 policy error, 6 wrong data or broken accounting, 7 no such device,
            130 interrupted (what was finished is written)
)";

int dispatch(swaplab::Arguments arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments == swaplab::Arguments{"help"}) {
    std::fputs(kHelp, stdout);
    return swaplab::kExitOk;
  }
  if (arguments[0] == "--version") {
    std::printf("swaplab-gpu %s (%s), %s\n", swaplab::kToolVersion, swaplab::build_commit(),
                swaplab::built_with_cuda() ? "with CUDA" : "without CUDA");
    return swaplab::kExitOk;
  }
  if (arguments[0] == "help") arguments = {arguments[1], "--help"};
  const std::vector<std::string> names{"replay", "probe"};
  const std::string name = swaplab::take_action(arguments, "", names);
  return name == "replay" ? swaplab::gpu_replay_command(arguments, interrupted)
                          : swaplab::gpu_probe_command(arguments, interrupted);
}

}  // namespace

int main(int argc, char** argv) {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
  try {
    const int code = dispatch({argv + 1, argv + argc});
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw swaplab::Error(swaplab::ErrorKind::output, "cannot write to standard output");
    return code;
  } catch (const swaplab::NoDevice& error) {
    std::fprintf(stderr, "error: no device: %s\n", swaplab::printable(error.what()).c_str());
    return swaplab::kExitNoDevice;
  } catch (const swaplab::Interrupted&) {
    std::fputs("interrupted\n", stderr);
    return swaplab::kExitInterrupted;
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
