#include "gpu_validate/program/measured_cell.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace swaplab {

using Json = nlohmann::ordered_json;

const MeasuredCell::Repeat& MeasuredCell::median() const {
  std::vector<const Repeat*> ok;
  for (const Repeat& repeat : repeats) {
    if (repeat.result.outcome == Outcome::ok) ok.push_back(&repeat);
  }
  if (ok.empty()) return repeats.at(0);
  std::stable_sort(ok.begin(), ok.end(), [&](const Repeat* a, const Repeat* b) {
    return steady_sum(trace, a->result) < steady_sum(trace, b->result);
  });
  return *ok[(ok.size() - 1) / 2];
}

std::string measured_line(const MeasuredCell& cell, std::size_t index, const AcceleratorInfo& device) {
  const MeasuredCell::Repeat& shown = cell.median();
  StudyRow row;
  row.budget = cell.budget;
  row.result = shown.result;
  row.steady_total = row.result.outcome == Outcome::ok ? steady_sum(cell.trace, shown.result) : Nanos{0};
  RunRecord record;
  record.index = index;
  record.key = cell.key;
  record.status = outcome_name(row.result.outcome);
  record.factors = cell.factors;
  record.policy = cell.policy_resolved;
  record.explanation = row.result.explanation;
  record.metrics = result_metrics(cell.trace, row);
  // A run without a budget was simulated, if at all: no figure of this line.
  std::erase_if(record.metrics,
                [](const auto& metric) { return metric.first == "unconstrained_iter_time_ns"; });
  Json j = Json::parse(record_line(record, false));
  j["measured"] = true;
  j["device"] = {
      {"kind", device.kind}, {"name", device.name}, {"driver", device.driver}, {"runtime", device.runtime}};
  j["bytes_divisor"] = cell.bytes_divisor;
  j["time_scale_ppm"] = cell.time_scale;
  j["memory"] = cell.memory;
  j["copies_stretched"] = cell.copies_stretched;
  Json& iterations = j["iterations_ns"] = Json::array();
  VerifyCounts counts;
  Json findings = Json::array();
  std::string difference;
  Bytes device_peak{0};
  for (const MeasuredCell::Repeat& repeat : cell.repeats) {
    Json times = Json::array();
    for (const IterationMetrics& iteration : repeat.result.iterations)
      times.push_back(iteration.time().value);
    iterations.push_back(std::move(times));
    counts += repeat.integrity.counts;
    for (const std::string& finding : repeat.integrity.findings) {
      if (findings.size() < 20) findings.push_back(finding);
    }
    if (difference.empty()) difference = repeat.difference;
    device_peak = std::max(device_peak, repeat.device_peak);
  }
  j["steady_iterations"] = {cell.trace.steady_first, cell.trace.steady_end};
  j["simulated_steady_total_ns"] = cell.simulated_total.value;
  j["decisions_differ"] = difference;
  if (device_peak > Bytes{0}) j["device_peak_bytes"] = device_peak.value;
  j["integrity"] = {{"operands", counts.operands},
                    {"swap_ins", counts.swap_ins},
                    {"words", counts.words},
                    {"wrong_words", counts.wrong_words},
                    {"findings", std::move(findings)}};
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace swaplab
