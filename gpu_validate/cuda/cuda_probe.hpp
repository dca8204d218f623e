// What can be measured on a CUDA device.
#pragma once

#include <memory>

#include "gpu_validate/cuda/cuda_accelerator.hpp"
#include "gpu_validate/hardware.hpp"

namespace swaplab::cuda {

// `shared` must outlive it.
std::unique_ptr<ProbeDevice> open_cuda_probe(CudaShared& shared);

}  // namespace swaplab::cuda
