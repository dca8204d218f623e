// The report of a results folder: one HTML file that opens offline.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "experiments/report/timeline.hpp"
#include "experiments/stats/comparison.hpp"
#include "experiments/sweep/results_store.hpp"

namespace swaplab {

struct ReportTimeline {
  std::string title, command;
  ByteCurve curve;
  Bytes budget;
};

struct ReportInput {
  Results results;
  std::string title;
  std::string baseline;  // "" = no comparison
  CompareOptions compare;
  std::optional<ReportTimeline> timeline;
};

// HTML with data, style and scripts inside; asks for nothing else (its content security policy forbids it).
std::string report_html(const ReportInput& input);

}  // namespace swaplab
