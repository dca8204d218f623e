#include "experiments/text.hpp"

#include <algorithm>
#include <cstdio>

namespace swaplab {
namespace {

std::string with_unit(double value, const char* unit, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f %s", digits, value, unit);
  return buffer;
}

}  // namespace

std::string human_bytes(Bytes bytes) {
  static constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes.value < 1024) return std::to_string(bytes.value) + " B";
  auto value = static_cast<double>(bytes.value);
  std::size_t unit = 0;
  for (value /= 1024; value >= 1024 && unit < 3; ++unit) value /= 1024;
  return with_unit(value, units[unit], 2);
}

std::string human_time(Nanos time) {
  const auto ns = static_cast<double>(time.value);
  if (time.value < 1'000) return std::to_string(time.value) + " ns";
  if (time.value < 1'000'000) return with_unit(ns / 1e3, "us", 1);
  if (time.value < 10'000'000'000) return with_unit(ns / 1e6, "ms", 2);
  return with_unit(ns / 1e9, "s", 2);
}

std::string TextTable::text() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - row[c].size(), ' ');
      line += (c == 0 ? "" : "  ") + (c < left_columns_ ? row[c] + pad : pad + row[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace swaplab
