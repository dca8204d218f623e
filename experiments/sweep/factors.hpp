// The factors that a sweep can vary: one row each. Parsing, defaults, ranges, the JSON Schema and the
// documentation come from this table.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/sweep/config_node.hpp"

namespace swaplab {

// How a factor's values form a range.
enum class RangeKind : std::uint8_t { none, budget, integer, figure };

struct FactorKind {
  std::string name;
  std::string summary;
  std::string example;
  std::string fallback;  // value when the file does not mention it; "" = must be given
  RangeKind range = RangeKind::none;
  bool globs = false;
  // Canonical text of one value, or throws Error(input) at the place.
  std::function<std::string(const ConfigPlace&)> read;
};

// In canonical order. Machine figures ("machine.hbm.bandwidth") are not in it; see factor_kind.
const std::vector<FactorKind>& factor_kinds();
// Of a factor's name, machine figures included. Throws Error(usage) with a suggestion.
FactorKind factor_kind(std::string_view name);
// Position in the canonical order; machine figures follow "machine".
std::size_t factor_order(std::string_view name);

// Values of {range: {start, stop, points, scale}} as canonical texts. Throws Error(input).
std::vector<std::string> read_range(const ConfigPlace& place, const FactorKind& kind,
                                    long long default_points);

}  // namespace swaplab
