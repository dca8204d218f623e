// One stage of a pipeline under the 1F1B schedule.
#pragma once

#include <cstdint>
#include <functional>

#include "trace/synth/data_parallel.hpp"
#include "trace/synth/model.hpp"

namespace swaplab::synth {

using BatchMaker = std::function<Batch(std::int64_t micro_batch)>;
using StageForward = std::function<Tensor(const Batch& batch, const Tensor& received)>;

// Forward and backward passes of one iteration's micro-batches (training.accumulation of them): p - stage - 1
// forward passes to warm up, then one forward and one backward in turn, then the remaining backward passes.
// Activations of at most p - stage micro-batches live at once. Returns the summed loss on the last stage.
Tensor run_pipeline(Eager& rt, Context& c, Model& model, DataParallel& data_parallel, std::int64_t iteration,
                    const BatchMaker& make_batch, const StageForward& forward);

}  // namespace swaplab::synth
