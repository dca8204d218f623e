// The commands of swaplab-gpu. Each takes its own arguments and returns an exit code; errors are thrown.
#pragma once

#include <atomic>

#include "experiments/commands.hpp"

namespace swaplab {

// Beside those of experiments/commands.hpp.
constexpr int kExitNoDevice = 7;
constexpr int kExitInterrupted = 130;  // as shells count SIGINT

// `interrupted` becomes true on SIGINT: the command ends cleanly, with what it has, and returns
// kExitInterrupted.
int gpu_replay_command(const Arguments& arguments, const std::atomic<bool>& interrupted);
int gpu_probe_command(const Arguments& arguments, const std::atomic<bool>& interrupted);

}  // namespace swaplab
