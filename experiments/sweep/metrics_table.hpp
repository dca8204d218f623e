// The figures of a finished run, as results hold them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "experiments/prepared_runs.hpp"
#include "sim/metrics.hpp"

namespace swaplab {

using MetricValues = std::vector<std::pair<std::string, std::int64_t>>;

// metric_table() of sim/metrics.hpp and what a comparison adds. Figures of an iteration are means over the
// steady iterations, rounded down; `steady_total_ns` is their exact sum.
std::vector<MetricDescription> result_metric_table();
std::vector<std::string> result_metric_names();
// metrics.json of a results folder: tag, unit, description, better.
std::string metric_table_json();

// In the order of the table, then "policy.<tag>". Times and copies only when the run is ok.
MetricValues result_metrics(const StudyTrace& trace, const StudyRow& row);

}  // namespace swaplab
