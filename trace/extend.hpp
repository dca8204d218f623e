// Longer runs from short recordings.
#pragma once

#include "trace/model.hpp"

namespace swaplab {

// A trace with `iterations` iterations: the recorded ones first (cut when fewer are asked), then
// repetitions of the last training iteration, or of the last full cycle of unlike iterations when
// the recording ends in one (e.g. train, train, val repeated at least twice). Storages that persist
// are carried over; what an iteration leaves behind (gradients) is what the next one consumes.
// Throws Error(input) when the repeated part does not reproduce its own start state (sizes of what
// it consumes and of what it leaves differ), saying which storage.
Trace extend_iterations(const Trace& trace, std::uint32_t iterations);

}  // namespace swaplab
