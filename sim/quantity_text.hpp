// Figures with mandatory units, read exactly: "12.4 GB/s" is 12400000000 bytes/s, never through a double.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace swaplab {

// What a figure measures; decides its units and the base unit of its integer.
enum class Dimension : std::uint8_t {
  size,       // B, KiB..TiB, kB..TB          -> bytes
  duration,   // ns, us, ms, s                -> nanoseconds
  bandwidth,  // B/s, kB/s..TB/s, KiB/s..TiB/s -> bytes per second
  flop_rate,  // FLOP/s, GFLOP/s..PFLOP/s     -> FLOP per second
  share,      // %, x                         -> parts per million
  kernels,    // kernels                      -> a count
};

// Stands for "unlimited" host memory: far above any size, yet safe to add to.
constexpr std::int64_t kUnlimitedBytes = std::int64_t{1} << 60;

struct ParsedQuantity {
  std::int64_t value = 0;
  std::string problem;  // empty when the text was fine; else what is wrong and what was expected
};

// Decimal number, optional spaces, unit. Refuses what is not a whole number of base units or negative.
ParsedQuantity parse_quantity(std::string_view text, Dimension dimension);

// Suffix of keys that give the figure as an integer in base units: "bytes", "ns", "bytes_per_s",
// "flop_per_s", "ppm", "kernels".
std::string_view base_unit_suffix(Dimension dimension);

}  // namespace swaplab
