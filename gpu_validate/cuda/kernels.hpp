// The kernels of the CUDA device, as host code launches them. Compiled by nvcc in kernels.cu; this header is
// for both compilers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "gpu_validate/cuda/kernel_content.hpp"

namespace swaplab::cuda {

// In device memory; the host fetches it when the device is idle.
struct DeviceFinding {
  std::uint64_t ticket, word, expected, found;
  std::uint32_t slot, lane;
};
constexpr std::uint32_t kMostFindings = 1000;
struct Report {
  unsigned long long wrong_words;
  unsigned int findings;  // counted beyond kMostFindings, kept up to it; at most one per operand and look
  DeviceFinding finding[kMostFindings];
};

// Operands beyond it go to further launches: kernel parameters end at 4 KiB.
constexpr std::uint32_t kOperandsPerLaunch = 80;

enum class Work : std::uint32_t { spin, compute, memory };

struct Surrogate {
  DeviceOperand operand[kOperandsPerLaunch];
  std::uint32_t operands = 0;
  std::uint32_t stride = 0, phase = 0;  // of what is checked; stride 0: nothing
  Work work = Work::spin;
  std::uint64_t amount = 0;   // spin: ns from the start of each block; otherwise iterations of every thread
  float4* scratch = nullptr;  // memory work streams over it
  std::uint64_t scratch_elements = 0;  // a power of two
  std::uint64_t ticket = 0;
  std::uint32_t lane = 0;
  Report* report = nullptr;
};
static_assert(sizeof(Surrogate) <= 4096);

// Threads of a launch of `blocks` blocks.
constexpr unsigned kThreads = 256;
// Bytes that one iteration of memory work moves (a read and a write of 16 B by every thread).
constexpr std::uint64_t memory_bytes_per_iteration(unsigned blocks) {
  return std::uint64_t{blocks} * kThreads * 32;
}

// Reads and checks what the operands expect, does the work, looks again at what is only read, writes.
cudaError_t launch_surrogate(const Surrogate& surrogate, unsigned blocks, cudaStream_t stream);
cudaError_t launch_empty(cudaStream_t stream);
// Sets *flag (mapped host memory) to `value`.
cudaError_t launch_flag(volatile unsigned* flag, unsigned value, cudaStream_t stream);
// Occupies one block for `ns`.
cudaError_t launch_gate(std::uint64_t ns, cudaStream_t stream);
// Copies `elements` x 16 B.
cudaError_t launch_stream_copy(float4* to, const float4* from, std::uint64_t elements, unsigned blocks,
                               cudaStream_t stream);

}  // namespace swaplab::cuda
