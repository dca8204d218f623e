// Stands in for gpu_validate/cuda where nvcc was not found.
#include "gpu_validate/hardware.hpp"

namespace swaplab {

std::unique_ptr<Hardware> open_cuda_hardware(int) {
  throw NoDevice(
      "this program was built without CUDA (nvcc was not found); --device host works without a GPU");
}

bool built_with_cuda() {
  return false;
}

}  // namespace swaplab
