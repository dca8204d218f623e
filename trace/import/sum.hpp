// Sums of what a file states.
#pragma once

#include <cstdint>

#include "trace/error.hpp"

namespace swaplab {

// Each time and size of a file is bounded where it is read; their sum must be, too. Throws Error(input), to
// which import_trace adds the file.
inline void add_checked(std::int64_t& sum, std::int64_t value) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  if (__builtin_add_overflow(sum, value, &sum) || sum > kMost || sum < -kMost)
    throw Error(ErrorKind::input, "its times or sizes add up to more than 2^62");
}

}  // namespace swaplab
