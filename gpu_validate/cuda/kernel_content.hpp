// How kernels read, check and write contents: what each of `threads` threads does. Device code under nvcc;
// under another compiler the same source runs on the host, where it is tested thread by thread.
#pragma once

#include <cstdint>

#include "gpu_validate/content.hpp"

#if defined(__CUDACC__)
#define SWAPLAB_KERNEL __device__
#else
#define SWAPLAB_KERNEL inline
#endif

namespace swaplab::cuda {

struct DeviceOperand {
  std::uint64_t address = 0, bytes = 0;
  ContentKey expected = 0, written = 0;  // 0: not read, not written
  std::uint32_t slot = 0;
};

// NOLINTBEGIN(performance-no-int-to-ptr): device addresses are numbers
// A word, of which only the bytes before the operand's end count. The load is never cached by the compiler:
// what a copy wrote while the kernel ran must be seen.
SWAPLAB_KERNEL std::uint64_t load_word(std::uint64_t address, std::uint64_t bytes, std::uint64_t i) {
  const std::uint64_t at = i * 8;
  if (at + 8 <= bytes) return *reinterpret_cast<const volatile std::uint64_t*>(address + at);
  std::uint64_t word = 0;
  for (std::uint64_t b = at; b < bytes; ++b) {
    const std::uint64_t byte = *reinterpret_cast<const volatile unsigned char*>(address + b);
    word |= byte << (8 * (b - at));
  }
  return word;
}

SWAPLAB_KERNEL void store_word(std::uint64_t address, std::uint64_t bytes, std::uint64_t i,
                               std::uint64_t word) {
  const std::uint64_t at = i * 8;
  if (at + 8 <= bytes) {
    *reinterpret_cast<std::uint64_t*>(address + at) = word;
    return;
  }
  for (std::uint64_t b = at; b < bytes; ++b) {
    *reinterpret_cast<unsigned char*>(address + b) = static_cast<unsigned char>(word >> (8 * (b - at)));
  }
}

// NOLINTEND(performance-no-int-to-ptr)

// Calls wrong(operand, word, expected, found) when the word is not what it has to be.
template <class Wrong>
SWAPLAB_KERNEL void check_word(const DeviceOperand& o, std::uint64_t i, Wrong& wrong) {
  std::uint64_t expected = content_word(o.expected, i);
  const std::uint64_t present = o.bytes - i * 8;
  if (present < 8) expected &= (std::uint64_t{1} << (8 * present)) - 1;
  const std::uint64_t found = load_word(o.address, o.bytes, i);
  if (found != expected) wrong(o, i, expected, found);
}

// This thread's share of the sampled words (gpu_validate/content.hpp, Sampling) of an operand.
template <class Wrong>
SWAPLAB_KERNEL void check_operand(const DeviceOperand& o, Sampling sampling, std::uint64_t thread,
                                  std::uint64_t threads, Wrong& wrong) {
  if (o.expected == 0 || sampling.stride == 0 || o.bytes == 0) return;
  const std::uint64_t words = (o.bytes + 7) / 8, stride = sampling.stride;
  const std::uint64_t first = sampling.phase % sampling.stride;
  for (std::uint64_t n = thread; first + n * stride < words; n += threads)
    check_word(o, first + n * stride, wrong);
  if (thread == 0 && first != 0) check_word(o, 0, wrong);
  if (thread == 0 && words > 1 && (words - 1) % stride != first) check_word(o, words - 1, wrong);
}

// This thread's share of the writing. In place, each word is checked, if sampled, and written by one thread.
template <class Wrong>
SWAPLAB_KERNEL void write_operand(const DeviceOperand& o, Sampling sampling, std::uint64_t thread,
                                  std::uint64_t threads, Wrong& wrong) {
  const std::uint64_t words = (o.bytes + 7) / 8;
  const bool checks = o.expected != 0 && sampling.stride != 0;
  const std::uint64_t first = checks ? sampling.phase % sampling.stride : 0;
  for (std::uint64_t i = thread; i < words; i += threads) {
    if (checks && (i % sampling.stride == first || i == 0 || i + 1 == words)) check_word(o, i, wrong);
    store_word(o.address, o.bytes, i, content_word(o.written, i));
  }
}

// Words that check_operand and write_operand of all threads look at.
constexpr std::uint64_t sampled_words(std::uint64_t bytes, Sampling sampling) {
  const std::uint64_t words = (bytes + 7) / 8;
  if (words == 0 || sampling.stride == 0) return 0;
  const std::uint64_t first = sampling.phase % sampling.stride;
  std::uint64_t count = first < words ? (words - first + sampling.stride - 1) / sampling.stride : 0;
  if (first != 0) ++count;
  if (words > 1 && (words - 1) % sampling.stride != first) ++count;
  return count;
}

}  // namespace swaplab::cuda
