#include "experiments/report/report.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/report/report_files.hpp"
#include "experiments/stats/comparison_text.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFigures[] = {"iter_time_ns",
                                    "slowdown_ppm",
                                    "gap_to_bound_ppm",
                                    "bound_iter_time_ns",
                                    "unconstrained_iter_time_ns",
                                    "compute_busy_ns",
                                    "swapped_out_bytes",
                                    "swapped_in_bytes",
                                    "peak_reserved_bytes",
                                    "peak_allocated_bytes",
                                    "budget_bytes",
                                    "trace_peak_bytes"};

// Text columns as a dictionary and rows into it: many runs share few texts.
class TextColumn {
 public:
  void add(const std::string& text) {
    const auto [at, fresh] = numbers_.emplace(text, words_.size());
    if (fresh) words_.push_back(text);
    rows_.push_back(at->second);
  }
  Json json() const { return Json{{"words", words_}, {"rows", rows_}}; }

 private:
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::string> words_;
  std::vector<std::size_t> rows_;
};

Json columns_json(const std::vector<RunRecord>& records, const std::vector<std::string>& factors,
                  const std::vector<std::string>& figures) {
  Json columns;
  Json& index = columns["index"] = Json::array();
  for (const RunRecord& r : records) index.push_back(r.index);
  TextColumn status;
  for (const RunRecord& r : records) status.add(r.status);
  columns["status"] = status.json();
  for (const std::string& name : factors) {
    TextColumn column;
    for (const RunRecord& r : records) column.add(r.factor(name));
    columns[name] = column.json();
  }
  for (const std::string& name : figures) {
    Json column = Json::array();
    bool any = false;
    for (const RunRecord& r : records) {
      const auto value = r.metric(name);
      any |= value.has_value();
      column.push_back(value ? Json(*value) : Json(nullptr));
    }
    if (any) columns[name] = std::move(column);
  }
  return columns;
}

// Text inside a script element must not end it.
std::string script_safe(std::string text) {
  for (std::size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3)
    text.replace(at, 2, "<\\/");
  for (std::size_t at = 0; (at = text.find("<!--", at)) != std::string::npos; at += 4)
    text.replace(at, 4, "<\\u0021--");
  return text;
}

std::string html_escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Each placeholder stands once; what is put in is not searched again.
std::string fill_template(std::string_view text, const std::map<std::string, std::string>& values) {
  std::string out;
  while (!text.empty()) {
    const std::size_t at = text.find('@');
    out += text.substr(0, at);
    if (at == std::string_view::npos) break;
    const std::size_t end = text.find('@', at + 1);
    const auto found = end == std::string_view::npos
                           ? values.end()
                           : values.find(std::string(text.substr(at + 1, end - at - 1)));
    if (found == values.end()) {
      out += '@';
      text.remove_prefix(at + 1);
    } else {
      out += found->second;
      text.remove_prefix(end + 1);
    }
  }
  return out;
}

Json parse_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json::parse(text, nullptr, false);
}

}  // namespace

std::string report_html(const ReportInput& input) {
  const std::vector<RunRecord>& records = input.results.records;
  std::vector<std::string> factors, varying;
  for (const auto& [name, value] : records.front().factors) {
    factors.push_back(name);
    const std::string &factor = name, &first = value;
    if (name == "policy" || name == "trace" || name == "budget" ||
        std::any_of(records.begin(), records.end(),
                    [&](const RunRecord& r) { return r.factor(factor) != first; }))
      varying.push_back(name);
  }
  std::vector<std::string> figures(std::begin(kFigures), std::end(kFigures)), stalls;
  for (std::size_t s = 0; s < kStallCount; ++s)
    stalls.push_back("stall_" + std::string(stall_name(static_cast<Stall>(s))) + "_ns");
  figures.insert(figures.end(), stalls.begin(), stalls.end());

  Json data;
  data["schema"] = "swaplab/report@1";
  data["folder"] = input.results.folder;
  data["policies"] = policies_of(records);
  data["varying"] = varying;
  data["stalls"] = stalls;
  data["columns"] = columns_json(records, factors, figures);
  std::size_t failed = 0;
  data["explanations"] = Json::object();
  for (const RunRecord& r : records) {
    if (r.ok()) continue;
    ++failed;
    data["explanations"][std::to_string(r.index)] = r.explanation;
  }
  data["comparison"] = nullptr;
  std::string verdict;
  if (!input.baseline.empty() && policies_of(records).size() > 1) {
    const auto comparisons = compare_policies(records, input.baseline, {}, input.compare);
    Json comparison = Json::parse(comparison_json(comparisons, input.compare));
    comparison["less"] = true;
    for (const MetricDescription& m : result_metric_table()) {
      if (m.tag == input.compare.metric) comparison["less"] = m.better == Better::lower;
    }
    data["comparison"] = std::move(comparison);
  }
  data["timeline"] = nullptr;
  if (input.timeline) {
    const ReportTimeline& t = *input.timeline;
    data["timeline"] = Json{{"title", t.title},
                            {"command", t.command},
                            {"budget_bytes", t.budget.value},
                            {"time_ns", t.curve.time_ns},
                            {"bytes", t.curve.bytes}};
  }
  data["manifest"] = parse_or_null(input.results.manifest_json);
  data["config"] = parse_or_null(input.results.config_json);
  const std::string subtitle = std::to_string(records.size()) + " runs, " + std::to_string(failed) +
                               " of them did not end; " + std::to_string(policies_of(records).size()) +
                               " policies. This file is complete: it opens offline.";
  return fill_template(kReportHtml,
                       {{"TITLE", html_escape(input.title)},
                        {"SUBTITLE", html_escape(subtitle)},
                        {"CSS", kReportCss},
                        {"JS", kReportJs},
                        {"DATA", script_safe(data.dump(-1, ' ', false, Json::error_handler_t::replace))}});
}

}  // namespace swaplab
