// A CUDA device as an accelerator: one stream per lane, an event per piece of work, surrogate kernels.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "gpu_validate/accelerator.hpp"
#include "gpu_validate/cuda/check.hpp"
#include "gpu_validate/cuda/kernels.hpp"
#include "gpu_validate/cuda/vmm.hpp"

namespace swaplab::cuda {

// Pinned blocks outlive replays: pinning is slow, and no replay should pay for it twice.
class PinnedCache {
 public:
  std::byte* take(std::int64_t bytes);
  void give(std::byte* data, std::int64_t bytes) { free_[bytes].push_back(data); }

 private:
  std::vector<PinnedBuffer> all_;
  std::unordered_map<std::int64_t, std::vector<std::byte*>> free_;
};

// What surrogate kernels take on this device, measured when nothing else runs: time = base + iterations x
// per iteration (rounded to parts of 1/1024 ns).
struct KernelRates {
  unsigned blocks = 1;
  std::int64_t base_ns = 0;
  std::int64_t compute_per_1024 = 0, memory_per_1024 = 0;  // ns for 1024 iterations
  std::int64_t write_bytes_per_us = 0;                     // of contents
};

struct CudaShared {
  int device = 0;
  AcceleratorInfo info;
  KernelRates rates;
  PinnedCache pinned;
  DeviceBuffer scratch;
  std::uint64_t scratch_elements = 0;  // of 16 B; a power of two
};

// `shared` must outlive it. Throws Error(input) when the device refuses.
std::unique_ptr<Accelerator> open_cuda_accelerator(CudaShared& shared, const AcceleratorOptions& options);

}  // namespace swaplab::cuda
