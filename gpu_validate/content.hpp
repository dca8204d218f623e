// What a storage holds while its data is checked: a function of storage, version and place, so that any
// byte tells whose it is. Shared by host and device code.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define SWAPLAB_BOTH __host__ __device__
#else
#define SWAPLAB_BOTH
#endif

namespace swaplab {

// Names one version of one storage's content; 0 is "no content".
using ContentKey = std::uint64_t;

// Versions count writes: 0 is what the storage held when it came to be from outside.
SWAPLAB_BOTH constexpr ContentKey content_key(std::uint32_t slot, std::uint32_t version) {
  std::uint64_t z = (static_cast<std::uint64_t>(slot) << 32 | version) + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;  // splitmix64's finaliser: a bijection
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return (z ^ (z >> 31)) | 1;
}

// Step between neighbouring words: bytes at a wrong place are wrong, too.
constexpr std::uint64_t kContentStep = 0x9E3779B97F4A7C15ULL;

// The 8-byte word number `i` of a content, as a little-endian integer; the last word may be cut short.
SWAPLAB_BOTH constexpr std::uint64_t content_word(ContentKey key, std::uint64_t i) {
  return key + i * kContentStep;
}
// The key of which `word` is word number `i`.
SWAPLAB_BOTH constexpr ContentKey key_of_word(std::uint64_t word, std::uint64_t i) {
  return word - i * kContentStep;
}

// Which words of an operand are read when every `stride`-th is sampled, shifted by `phase`: those at
// phase, phase + stride, ... and always the first and the last. 0: none.
struct Sampling {
  std::uint32_t stride = 1, phase = 0;
};

}  // namespace swaplab
