// Changing single figures of a machine description by their dotted path, for what-if sweeps and for
// uncertain parameters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/machine.hpp"
#include "sim/quantity_text.hpp"

namespace swaplab {

struct OverridableFigure {
  std::string path;  // "hbm.bandwidth", "links.h2d.latency", ...
  Dimension dimension;
};

// Every figure that can be changed. "links.bandwidth" and "links.latency" stand for both directions.
const std::vector<OverridableFigure>& overridable_figures();
// Throws Error(usage) with a suggestion.
const OverridableFigure& find_figure(std::string_view path);

// `text` is an amount with its unit ("24 GB/s") or a factor ("1.5x") of the present value; see
// figure_text for the canonical form. Setting the bandwidth of a link that is described by a table
// stretches the table's times by old rate / new rate. Throws Error(usage).
void override_figure(Machine& machine, const std::string& path, const std::string& text);
// "links.bandwidth=2x" of a command line. Throws Error(usage).
void apply_figure_assignment(Machine& machine, const std::string& assignment);
// value * factor / 10^6, rounded down, at least 1 for figures that must be above 0.
void scale_figure(Machine& machine, const std::string& path, Ppm factor);

// "" when the text is an amount or a factor that the figure can take, else what was expected.
std::string check_figure_text(const OverridableFigure& figure, const std::string& text);
// "24GB/s", "2500ns", "83.4%": the largest unit in which the value is a short decimal.
std::string figure_text(std::int64_t value, Dimension dimension);

}  // namespace swaplab
