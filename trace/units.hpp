// Strong integer units: bytes and nanoseconds never mix, and never pass through a double.
#pragma once

#include <compare>
#include <cstdint>

namespace swaplab {

// A signed 64-bit amount of one unit. Signed, so that differences are natural; exact to 2^63-1.
template <class Tag>
struct Quantity {
  std::int64_t value = 0;

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator-() const { return {-value}; }
  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value -= other.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
  friend constexpr Quantity operator*(Quantity a, std::int64_t factor) { return {a.value * factor}; }
  friend constexpr Quantity operator*(std::int64_t factor, Quantity a) { return {a.value * factor}; }
  friend constexpr Quantity operator/(Quantity a, std::int64_t divisor) { return {a.value / divisor}; }
};

using Bytes = Quantity<struct BytesTag>;
using Nanos = Quantity<struct NanosTag>;

namespace unit_literals {
constexpr Bytes operator""_B(unsigned long long v) {
  return {static_cast<std::int64_t>(v)};
}
constexpr Bytes operator""_KiB(unsigned long long v) {
  return {static_cast<std::int64_t>(v << 10)};
}
constexpr Bytes operator""_MiB(unsigned long long v) {
  return {static_cast<std::int64_t>(v << 20)};
}
constexpr Bytes operator""_GiB(unsigned long long v) {
  return {static_cast<std::int64_t>(v << 30)};
}
constexpr Nanos operator""_ns(unsigned long long v) {
  return {static_cast<std::int64_t>(v)};
}
constexpr Nanos operator""_us(unsigned long long v) {
  return {static_cast<std::int64_t>(v * 1000)};
}
constexpr Nanos operator""_ms(unsigned long long v) {
  return {static_cast<std::int64_t>(v * 1000000)};
}
}  // namespace unit_literals

}  // namespace swaplab
