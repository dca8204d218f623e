// What the probes of all devices share.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "trace/units.hpp"

namespace swaplab {

// Host time of the work.
inline Nanos timed(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return Nanos{
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count()};
}

// Side of the square matrices whose product takes `flop`; 0 when there are none.
inline std::int64_t square_side(std::int64_t flop) {
  std::int64_t n = 1;
  while (2 * n * n * n < flop) ++n;
  return 2 * n * n * n == flop ? n : 0;
}

}  // namespace swaplab
