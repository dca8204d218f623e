// Device code. Contents are as in gpu_validate/content.hpp; the device is little-endian, as the host.
#include "gpu_validate/cuda/kernels.hpp"

namespace swaplab::cuda {
namespace {

__device__ std::uint64_t clock_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Notes what a thread finds wrong; of each operand and look the first word only.
struct Note {
  const Surrogate& s;
  bool noted = false;
  __device__ void operator()(const DeviceOperand& o, std::uint64_t i, std::uint64_t expected,
                             std::uint64_t found) {
    atomicAdd(&s.report->wrong_words, 1ULL);
    if (noted) return;
    noted = true;
    const unsigned int place = atomicAdd(&s.report->findings, 1U);
    if (place < kMostFindings) s.report->finding[place] = {s.ticket, i, expected, found, o.slot, s.lane};
  }
};

__global__ void __launch_bounds__(kThreads) surrogate_kernel(const __grid_constant__ Surrogate s) {
  const std::uint64_t begin = clock_ns();
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::uint64_t threads = std::uint64_t{gridDim.x} * kThreads;
  const Sampling sampling{s.stride, s.phase};
  for (std::uint32_t k = 0; k < s.operands; ++k) {
    Note note{s};
    if (s.operand[k].written == 0) check_operand(s.operand[k], sampling, thread, threads, note);
  }
  if (s.work == Work::spin) {
    while (clock_ns() - begin < s.amount) {
    }
  } else if (s.work == Work::compute) {
    float a = 1.0F, b = 2.0F, c = 3.0F, d = 4.0F;
    for (std::uint64_t i = 0; i < s.amount; ++i) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        a = fmaf(a, 0.999F, 0.5F);
        b = fmaf(b, 0.998F, 0.5F);
        c = fmaf(c, 0.997F, 0.5F);
        d = fmaf(d, 0.996F, 0.5F);
      }
    }
    asm volatile("" ::"f"(a), "f"(b), "f"(c), "f"(d));  // a use: the work must not be optimised away
  } else {
    const std::uint64_t mask = s.scratch_elements - 1;
    for (std::uint64_t i = 0; i < s.amount; ++i) {
      float4& element = s.scratch[(thread + i * threads) & mask];
      float4 value = element;
      value.x += 1.0F;
      element = value;
    }
  }
  for (std::uint32_t k = 0; k < s.operands; ++k) {
    const DeviceOperand& o = s.operand[k];
    Note note{s};
    if (o.written != 0) {
      write_operand(o, sampling, thread, threads, note);
    } else if (s.work != Work::spin || s.amount != 0) {
      check_operand(o, sampling, thread, threads, note);
    }
  }
}

__global__ void empty_kernel() {}

__global__ void flag_kernel(volatile unsigned* flag, unsigned value) {
  *flag = value;
  __threadfence_system();
}

__global__ void gate_kernel(std::uint64_t ns) {
  const std::uint64_t begin = clock_ns();
  while (clock_ns() - begin < ns) {
  }
}

__global__ void __launch_bounds__(kThreads)
    stream_copy_kernel(float4* to, const float4* from, std::uint64_t elements) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements; i += threads)
    to[i] = from[i];
}

}  // namespace

cudaError_t launch_surrogate(const Surrogate& surrogate, unsigned blocks, cudaStream_t stream) {
  surrogate_kernel<<<blocks, kThreads, 0, stream>>>(surrogate);
  return cudaGetLastError();
}

cudaError_t launch_empty(cudaStream_t stream) {
  empty_kernel<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t launch_flag(volatile unsigned* flag, unsigned value, cudaStream_t stream) {
  flag_kernel<<<1, 1, 0, stream>>>(flag, value);
  return cudaGetLastError();
}

cudaError_t launch_gate(std::uint64_t ns, cudaStream_t stream) {
  gate_kernel<<<1, 1, 0, stream>>>(ns);
  return cudaGetLastError();
}

cudaError_t launch_stream_copy(float4* to, const float4* from, std::uint64_t elements, unsigned blocks,
                               cudaStream_t stream) {
  stream_copy_kernel<<<blocks, kThreads, 0, stream>>>(to, from, elements);
  return cudaGetLastError();
}

}  // namespace swaplab::cuda
