// Device code. Contents are as in gpu_validate/content.hpp; the device is little-endian, as the host.
#include "gpu_validate/cuda/kernels.hpp"

namespace swaplab::cuda {
namespace {

__device__ std::uint64_t clock_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Bytes of a word that may be cut short by the operand's end. Loads go past the caches of other SMs' making:
// what a copy wrote while the kernel ran must be seen.
__device__ std::uint64_t load_word(std::uint64_t address, std::uint64_t bytes, std::uint64_t i) {
  const std::uint64_t at = i * 8;
  if (at + 8 <= bytes) return *reinterpret_cast<const volatile std::uint64_t*>(address + at);
  std::uint64_t word = 0;
  for (std::uint64_t b = at; b < bytes; ++b) {
    const std::uint64_t byte = *reinterpret_cast<const volatile unsigned char*>(address + b);
    word |= byte << (8 * (b - at));
  }
  return word;
}

__device__ void store_word(std::uint64_t address, std::uint64_t bytes, std::uint64_t i, std::uint64_t word) {
  const std::uint64_t at = i * 8;
  if (at + 8 <= bytes) {
    *reinterpret_cast<std::uint64_t*>(address + at) = word;
    return;
  }
  for (std::uint64_t b = at; b < bytes; ++b) {
    *reinterpret_cast<unsigned char*>(address + b) = static_cast<unsigned char>(word >> (8 * (b - at)));
  }
}

// True when the word is right. `reported` keeps a thread from reporting an operand twice.
__device__ void check_word(const Surrogate& s, const DeviceOperand& o, std::uint64_t i, bool& reported) {
  std::uint64_t expected = content_word(o.expected, i);
  const std::uint64_t present = o.bytes - i * 8;
  if (present < 8) expected &= (std::uint64_t{1} << (8 * present)) - 1;
  const std::uint64_t found = load_word(o.address, o.bytes, i);
  if (found == expected) return;
  atomicAdd(&s.report->wrong_words, 1ULL);
  if (reported) return;
  reported = true;
  const unsigned int place = atomicAdd(&s.report->findings, 1U);
  if (place >= kMostFindings) return;
  s.report->finding[place] = {s.ticket, i, expected, found, o.slot, s.lane};
}

// The sampled words of an operand that is only read.
__device__ void check_operand(const Surrogate& s, const DeviceOperand& o, std::uint64_t thread,
                              std::uint64_t threads) {
  if (o.expected == 0 || s.stride == 0) return;
  const std::uint64_t words = (o.bytes + 7) / 8;
  bool reported = false;
  const std::uint64_t first = s.phase % s.stride;
  for (std::uint64_t n = thread; first + n * s.stride < words; n += threads)
    check_word(s, o, first + n * s.stride, reported);
  if (thread == 0 && first != 0) check_word(s, o, 0, reported);
  if (thread == 0 && words > 1 && (words - 1) % s.stride != first) check_word(s, o, words - 1, reported);
}

__global__ void __launch_bounds__(kThreads) surrogate_kernel(const __grid_constant__ Surrogate s) {
  const std::uint64_t begin = clock_ns();
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::uint64_t threads = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint32_t k = 0; k < s.operands; ++k) {
    if (s.operand[k].written == 0) check_operand(s, s.operand[k], thread, threads);
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
    if (o.written == 0) {
      if (s.work != Work::spin || s.amount != 0) check_operand(s, o, thread, threads);
      continue;
    }
    // In place: each word is checked and written by one thread.
    const std::uint64_t words = (o.bytes + 7) / 8;
    const bool checks = o.expected != 0 && s.stride != 0;
    const std::uint64_t first = s.stride == 0 ? 0 : s.phase % s.stride;
    bool reported = false;
    for (std::uint64_t i = thread; i < words; i += threads) {
      if (checks && (i % s.stride == first || i == 0 || i + 1 == words)) check_word(s, o, i, reported);
      store_word(o.address, o.bytes, i, content_word(o.written, i));
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
