// Writing and checking contents in host memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_validate/content.hpp"

namespace swaplab {

void write_content(std::byte* data, std::uint64_t bytes, ContentKey key);

struct WordCheck {
  std::uint64_t words = 0, wrong = 0;
  std::uint64_t first_wrong = 0, expected = 0, found = 0;  // of the first wrong word, when there is one
};
// A word cut short by the end compares only the bytes that are there.
WordCheck check_content(const std::byte* data, std::uint64_t bytes, ContentKey key, Sampling sampling);

}  // namespace swaplab
