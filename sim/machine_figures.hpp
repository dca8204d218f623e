// The one table of scalar figures of a machine description: reader, writer and documentation share it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "sim/machine.hpp"
#include "sim/quantity_text.hpp"

namespace swaplab {

enum class Range : std::uint8_t {
  positive,      // above 0
  non_negative,  // 0 allowed
  fraction,      // above 0, at most 100 %
};

struct MachineFigure {
  std::string_view section, key;
  Dimension dimension;
  Range range;
  bool may_be_unlimited;  // accepts the word "unlimited"
  std::int64_t& (*field)(Machine&);
};

// In canonical order: figures of one section stand together.
std::span<const MachineFigure> machine_figures();

// The integer that stands for "unlimited" in this figure.
constexpr std::int64_t unlimited_value(Dimension dimension) {
  return dimension == Dimension::kernels ? 0 : kUnlimitedBytes;
}

}  // namespace swaplab
