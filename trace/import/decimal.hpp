// Exact decimal text to integers: times never pass through double.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace swaplab {

// The decimal number `text` (sign, fraction and exponent allowed) times 10^scale, digits below the unit
// cut off towards zero; `cut` (if given) is set when any of them was not 0. Empty when `text` is no
// number or the result exceeds 2^63-1.
inline std::optional<std::int64_t> scaled_decimal(std::string_view text, int scale, bool* cut = nullptr) {
  std::size_t i = 0;
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) ++i;
  std::uint64_t value = 0;
  int after_point = 0, digits = 0, dropped = 0;
  bool point = false, nonzero_dropped = false;
  constexpr std::uint64_t kSafe = (std::numeric_limits<std::uint64_t>::max() - 9) / 10;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    ++digits;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (dropped == 0 && value <= kSafe && !(point && after_point >= 18)) {
      value = value * 10 + digit;
      after_point += point ? 1 : 0;
    } else {
      if (!point) ++dropped;
      nonzero_dropped |= digit != 0;
    }
  }
  if (digits == 0) return std::nullopt;
  int exponent = 0;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    bool minus = false;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) minus = text[i++] == '-';
    const std::size_t first = i;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
      exponent = exponent < 10000 ? exponent * 10 + (text[i] - '0') : exponent;
    if (i == first) return std::nullopt;
    if (minus) exponent = -exponent;
  }
  if (i != text.size()) return std::nullopt;
  int shift = scale + exponent - after_point + dropped;
  for (; shift > 0 && value != 0; --shift) {
    if (value > std::numeric_limits<std::uint64_t>::max() / 10) return std::nullopt;
    value *= 10;
  }
  for (; shift < 0 && value != 0; ++shift) {
    nonzero_dropped |= value % 10 != 0;
    value /= 10;
  }
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  if (cut != nullptr && nonzero_dropped) *cut = true;
  return negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
}

// An unsigned integer without sign or fraction; empty otherwise or beyond 2^64-1.
inline std::optional<std::uint64_t> unsigned_integer(std::string_view text) {
  if (text.empty() || text.size() > 20) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (value > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

}  // namespace swaplab
