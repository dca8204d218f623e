#include "gpu_validate/host_verify.hpp"

#include <algorithm>
#include <cstring>

namespace swaplab {
namespace {

std::uint64_t words_of(std::uint64_t bytes) {
  return (bytes + 7) / 8;
}

}  // namespace

void write_content(std::byte* data, std::uint64_t bytes, ContentKey key) {
  const std::uint64_t whole = bytes / 8;
  for (std::uint64_t i = 0; i < whole; ++i) {
    const std::uint64_t word = content_word(key, i);
    std::memcpy(data + i * 8, &word, 8);
  }
  const std::uint64_t last = content_word(key, whole);
  std::memcpy(data + whole * 8, &last, bytes % 8);
}

WordCheck check_content(const std::byte* data, std::uint64_t bytes, ContentKey key, Sampling sampling) {
  WordCheck check;
  if (bytes == 0 || sampling.stride == 0) return check;
  const std::uint64_t words = words_of(bytes);
  const auto look = [&](std::uint64_t i) {
    const std::uint64_t present = std::min<std::uint64_t>(8, bytes - i * 8);
    std::uint64_t expected = content_word(key, i), found = 0;
    std::memcpy(&found, data + i * 8, present);
    if (present < 8) expected &= (std::uint64_t{1} << (8 * present)) - 1;
    ++check.words;
    if (found == expected) return;
    if (check.wrong++ != 0) return;
    check.first_wrong = i;
    check.expected = expected;
    check.found = found;
  };
  if (sampling.stride == 1) {
    for (std::uint64_t i = 0; i < words; ++i) look(i);
    return check;
  }
  look(0);
  for (std::uint64_t i = sampling.phase % sampling.stride; i + 1 < words; i += sampling.stride) {
    if (i != 0) look(i);
  }
  if (words > 1) look(words - 1);
  return check;
}

}  // namespace swaplab
