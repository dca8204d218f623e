// Exact products and quotients of 64-bit integers through 128 bits.
#pragma once

#include <cstdint>
#include <limits>

namespace swaplab {

__extension__ using Wide = __int128;

// Largest amount that the formulas return: room to add a few of them without overflow.
constexpr std::int64_t kSaturated = std::numeric_limits<std::int64_t>::max() / 4;

// ceil(a / b) for a >= 0, b > 0, saturating at kSaturated.
constexpr std::int64_t ceil_div_wide(Wide a, Wide b) {
  const Wide quotient = a / b + (a % b != 0 ? 1 : 0);
  return quotient > kSaturated ? kSaturated : static_cast<std::int64_t>(quotient);
}

// ceil(a * b / c) for a, b >= 0, c > 0, saturating. The 64-bit path is the usual one and several times
// faster.
inline std::int64_t ceil_mul_div(std::int64_t a, std::int64_t b, std::int64_t c) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) {
    const std::int64_t quotient = product / c + (product % c != 0 ? 1 : 0);
    return quotient > kSaturated ? kSaturated : quotient;
  }
  return ceil_div_wide(static_cast<Wide>(a) * b, c);
}

}  // namespace swaplab
