#include "trace/import/wording.hpp"

#include <cmath>
#include <cstdio>

namespace swaplab {

std::string counted(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string share_of(std::int64_t part, std::int64_t whole) {
  const double permille = std::floor(static_cast<double>(part) / static_cast<double>(whole) * 1000);
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.1f %%", permille / 10);
  return buffer;
}

}  // namespace swaplab
