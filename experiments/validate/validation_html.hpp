// A validation as one HTML file that opens offline, in the report's style.
#pragma once

#include <string>

#include "experiments/validate/agreement.hpp"

namespace swaplab {

struct ValidationTitle {
  std::string title;
  std::string subtitle;  // what was measured where, and what was simulated
  std::string command;   // how to repeat it
};

// Scatter of simulated over measured times as inline SVG, checks, errors, ranking, stalls, every point and
// every point that was dropped. No script, nothing is fetched.
std::string validation_html(const Validation& validation, const Tolerances& tolerances,
                            const ValidationTitle& title);

}  // namespace swaplab
