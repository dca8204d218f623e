#include "sim/quantity_text.hpp"

#include <array>
#include <span>
#include <vector>

#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t factor;
};

constexpr std::int64_t kKilo = 1000, kMega = kKilo * 1000, kGiga = kMega * 1000, kTera = kGiga * 1000;
constexpr std::int64_t kKibi = 1024, kMebi = kKibi * 1024, kGibi = kMebi * 1024, kTebi = kGibi * 1024;

constexpr Unit kSizes[] = {{"B", 1},      {"KiB", kKibi}, {"MiB", kMebi}, {"GiB", kGibi}, {"TiB", kTebi},
                           {"kB", kKilo}, {"MB", kMega},  {"GB", kGiga},  {"TB", kTera}};
constexpr Unit kDurations[] = {{"ns", 1}, {"us", kKilo}, {"ms", kMega}, {"s", kGiga}};
constexpr Unit kBandwidths[] = {{"B/s", 1},       {"kB/s", kKilo},  {"MB/s", kMega},
                                {"GB/s", kGiga},  {"TB/s", kTera},  {"KiB/s", kKibi},
                                {"MiB/s", kMebi}, {"GiB/s", kGibi}, {"TiB/s", kTebi}};
constexpr Unit kFlopRates[] = {
    {"FLOP/s", 1}, {"GFLOP/s", kGiga}, {"TFLOP/s", kTera}, {"PFLOP/s", kTera * 1000}};
constexpr Unit kShares[] = {{"%", 10'000}, {"x", 1'000'000}};
constexpr Unit kKernels[] = {{"kernels", 1}};

std::span<const Unit> units_of(Dimension dimension) {
  switch (dimension) {
    case Dimension::size:
      return kSizes;
    case Dimension::duration:
      return kDurations;
    case Dimension::bandwidth:
      return kBandwidths;
    case Dimension::flop_rate:
      return kFlopRates;
    case Dimension::share:
      return kShares;
    case Dimension::kernels:
      break;
  }
  return kKernels;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string unit_list(std::span<const Unit> units) {
  std::string list;
  for (const Unit& unit : units) list += (list.empty() ? "" : ", ") + std::string(unit.name);
  return list;
}

}  // namespace

std::string_view base_unit_suffix(Dimension dimension) {
  constexpr std::array<std::string_view, 6> names = {"bytes",      "ns",  "bytes_per_s",
                                                     "flop_per_s", "ppm", "kernels"};
  return names[static_cast<std::size_t>(dimension)];
}

ParsedQuantity parse_quantity(std::string_view text, Dimension dimension) {
  const std::span<const Unit> units = units_of(dimension);
  const std::string quoted = "'" + std::string(text) + "'";
  if (text.starts_with('-')) return {0, quoted + " is negative"};
  // Number: digits with at most one point, digits on both sides of it.
  Wide digits = 0;
  std::int64_t scale = 1;
  std::size_t i = 0, after_point = 0;
  bool point = false;
  for (; i < text.size() && (is_digit(text[i]) || (text[i] == '.' && !point)); ++i) {
    if (text[i] == '.') {
      point = true;
      continue;
    }
    if (digits > kSaturated || after_point >= 18) return {0, quoted + " has too many digits"};
    digits = digits * 10 + (text[i] - '0');
    if (point) {
      ++after_point;
      scale *= 10;
    }
  }
  if (i == 0 || text[0] == '.' || (point && after_point == 0))
    return {0, quoted + " is not a number with a unit (" + unit_list(units) + ")"};
  std::string_view unit_text = text.substr(i);
  while (unit_text.starts_with(' ')) unit_text.remove_prefix(1);
  if (unit_text.empty()) return {0, quoted + " has no unit; expected one of " + unit_list(units)};
  const Unit* unit = nullptr;
  for (const Unit& candidate : units)
    if (candidate.name == unit_text) unit = &candidate;
  if (unit == nullptr) {
    std::vector<std::string> names;
    for (const Unit& candidate : units) names.emplace_back(candidate.name);
    return {0, quoted + " has an unknown unit" + did_you_mean(unit_text, names) + "; expected one of " +
                   unit_list(units)};
  }
  const Wide scaled = digits * unit->factor;
  if (scaled % scale != 0)
    return {0, quoted + " is not a whole number of base units (" + std::string(base_unit_suffix(dimension)) +
                   ")"};
  if (scaled / scale > kSaturated) return {0, quoted + " is too large"};
  return {static_cast<std::int64_t>(scaled / scale), {}};
}

}  // namespace swaplab
