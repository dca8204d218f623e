#include "trace/human.hpp"

#include <cstdio>

namespace swaplab {
namespace {

std::string with_unit(double value, const char* unit, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f %s", digits, value, unit);
  return buffer;
}

std::string beside(std::string exact, const std::string& readable) {
  return exact == readable ? exact : exact + " (" + readable + ")";
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

std::string exact_bytes(Bytes bytes) {
  return beside(std::to_string(bytes.value) + " B", human_bytes(bytes));
}

std::string exact_time(Nanos time) {
  return beside(std::to_string(time.value) + " ns", human_time(time));
}

}  // namespace swaplab
