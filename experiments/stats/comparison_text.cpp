#include "experiments/stats/comparison_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "experiments/text.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string ratio_text(double ratio) {
  return number("%.3fx", ratio);
}

std::string interval_text(const Interval& interval) {
  const std::string low = interval.low > 1e-9 ? number("[%.3f, ", interval.low) : "[no limit, ";
  return low + (interval.high < 1e6 ? number("%.3f]", interval.high) : "no limit]");
}

std::string p_text(double p) {
  return p < 0.0001 ? "<0.0001" : number("%.4f", p);
}

std::string percent(double share) {
  std::string text = number("%.4g", share * 100);
  return text + " %";
}

std::string figure(const std::string& metric, std::int64_t value) {
  if (metric.ends_with("_ns")) return human_time(Nanos{value});
  if (metric.ends_with("_bytes")) return human_bytes(Bytes{value});
  if (metric.ends_with("_ppm")) return number("%.4f", static_cast<double>(value) / 1e6);
  return std::to_string(value);
}

// Worst for the candidate first.
std::vector<ComparedPair> worst_pairs(const Comparison& c, bool less) {
  std::vector<ComparedPair> pairs = c.pairs;
  std::stable_sort(pairs.begin(), pairs.end(), [less](const ComparedPair& a, const ComparedPair& b) {
    return less ? a.ratio > b.ratio : a.ratio < b.ratio;
  });
  return pairs;
}

bool less_is_better(const std::string& metric) {
  for (const MetricDescription& m : result_metric_table()) {
    if (m.tag == metric) return m.better == Better::lower;
  }
  return true;
}

std::string latex_escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '_' || c == '%' || c == '&' || c == '#' || c == '$' || c == '{' || c == '}') {
      out += '\\';
      out += c;
    } else if (c == '\\') {
      out += "\\textbackslash{}";
    } else if (c == '~' || c == '^') {
      out += std::string("\\") + c + "{}";
    } else {
      out += c;
    }
  }
  return out;
}

std::string failures_cell(const Comparison& c) {
  return std::to_string(c.only_baseline_failed) + "/" + std::to_string(c.only_candidate_failed) + "/" +
         std::to_string(c.both_failed);
}

// The parts side by side, in as many lines as they need; a longer part has a line to itself.
std::string filled_lines(const std::vector<std::string>& parts, std::size_t width) {
  std::string out, line;
  for (const std::string& part : parts) {
    if (!line.empty() && line.size() + 2 + part.size() > width) {
      out += line + "\n";
      line.clear();
    }
    line += "  " + part;
  }
  return line.empty() ? out : out + line + "\n";
}

std::string p_math(double p) {
  return p < 0.0001 ? "$<$0.0001" : number("%.4f", p);
}

}  // namespace

std::string short_trace(const std::string& trace) {
  const std::size_t slash = trace.rfind('/');
  std::string name = slash == std::string::npos ? trace : trace.substr(slash + 1);
  for (const char* end : {".gz", ".zst", ".jsonl", ".swt"}) {
    if (name.ends_with(end)) name.resize(name.size() - std::string_view(end).size());
  }
  return name.empty() ? trace : name;
}

std::string comparison_text(const std::vector<Comparison>& comparisons, const CompareOptions& options,
                            const ComparisonTextOptions& text) {
  const bool less = less_is_better(options.metric);
  std::string out = options.metric + " of each candidate relative to '" + comparisons.front().baseline +
                    "'; " + (less ? "less" : "more") + " is better, differences below " +
                    percent(options.threshold) + " do not matter\n" + percent(options.confidence) +
                    " bootstrap-t intervals over traces, two-sided Wilcoxon, Holm over " +
                    std::to_string(comparisons.size()) +
                    (comparisons.size() == 1 ? " candidate\n\n" : " candidates\n\n");
  TextTable table({"candidate", "verdict", "ratio", "interval", "p (Holm)", "traces", "pairs", "better",
                   "same", "worse", "failed A/B/both"},
                  2);
  for (const Comparison& c : comparisons) {
    table.add({c.candidate, std::string(verdict_name(c.verdict)), c.pairs.empty() ? "-" : ratio_text(c.ratio),
               c.pairs.empty() ? "-" : interval_text(c.interval), p_text(c.p_holm), std::to_string(c.traces),
               std::to_string(c.pairs.size()), std::to_string(c.better), std::to_string(c.same),
               std::to_string(c.worse), failures_cell(c)});
  }
  out += table.text();
  for (const Comparison& c : comparisons) {
    out += "\n" + c.candidate + ": " + std::string(verdict_name(c.verdict)) + ", " + c.reason + "\n";
    std::vector<std::string> ratios;
    for (const auto& [trace, ratio] : c.trace_ratios)
      ratios.push_back(ratio_text(ratio) + " " + short_trace(trace));
    out += filled_lines(ratios, 100);
    const std::vector<ComparedPair> worst = worst_pairs(c, less);
    for (std::size_t i = 0; i < std::min(text.worst, worst.size()); ++i) {
      out += std::string(i == 0 ? "  worst: " : "         ") + short_trace(worst[i].trace) + " " +
             worst[i].where + " " + ratio_text(worst[i].ratio) + " (" +
             figure(options.metric, worst[i].baseline) + " -> " + figure(options.metric, worst[i].candidate) +
             ")\n";
    }
    if (c.unpaired > 0) out += "  " + std::to_string(c.unpaired) + " runs without a partner\n";
    if (c.zeros > 0)
      out += "  " + std::to_string(c.zeros) +
             " pairs left out: a figure is zero or absent, so there is no ratio\n";
    for (std::size_t i = 0; i < std::min<std::size_t>(c.failures.size(), 3); ++i) {
      std::string line = c.failures[i];
      if (line.size() > 200) line = line.substr(0, 197) + "...";
      out += std::string(i == 0 ? "  failed: " : "          ") + line + "\n";
    }
    if (c.failures.size() > 3) out += "          and " + std::to_string(c.failures.size() - 3) + " more\n";
    if (text.pairs) {
      TextTable pairs({"trace", "where", c.baseline, c.candidate, "ratio", "verdict"}, 2);
      for (const ComparedPair& p : c.pairs)
        pairs.add({short_trace(p.trace), p.where, figure(options.metric, p.baseline),
                   figure(options.metric, p.candidate), ratio_text(p.ratio),
                   std::string(verdict_name(p.verdict))});
      out += pairs.text();
    }
  }
  return out;
}

std::string comparison_markdown(const std::vector<Comparison>& comparisons, const CompareOptions& options) {
  std::string out = "| candidate | verdict | " + options.metric + " ratio to `" +
                    comparisons.front().baseline + "` | " + percent(options.confidence) +
                    " interval | p (Holm) | traces | pairs | better/same/worse | failed A/B/both |\n"
                    "|---|---|---|---|---|---|---|---|---|\n";
  for (const Comparison& c : comparisons) {
    out += "| `" + c.candidate + "` | " + std::string(verdict_name(c.verdict)) + " | " +
           (c.pairs.empty() ? "-" : ratio_text(c.ratio)) + " | " +
           (c.pairs.empty() ? "-" : interval_text(c.interval)) + " | " + p_text(c.p_holm) + " | " +
           std::to_string(c.traces) + " | " + std::to_string(c.pairs.size()) + " | " +
           std::to_string(c.better) + "/" + std::to_string(c.same) + "/" + std::to_string(c.worse) + " | " +
           failures_cell(c) + " |\n";
  }
  return out;
}

std::string comparison_latex(const std::vector<Comparison>& comparisons, const CompareOptions& options) {
  std::string out = "% swaplab compare --format latex; needs \\usepackage{booktabs}\n% " + options.metric +
                    " relative to " + comparisons.front().baseline + ", threshold " +
                    percent(options.threshold) +
                    ", bootstrap-t interval over traces, Wilcoxon signed-rank with Holm's correction\n"
                    "\\begin{tabular}{lrrrrrl}\n\\toprule\nPolicy & Ratio & " +
                    latex_escape(percent(options.confidence)) +
                    " interval & $p$ (Holm) & Traces & Better/same/worse & Verdict \\\\\n\\midrule\n";
  for (const Comparison& c : comparisons) {
    const bool any = !c.pairs.empty();
    out += "\\texttt{" + latex_escape(c.candidate) + "} & " + (any ? number("%.3f", c.ratio) : "--") + " & " +
           (any ? interval_text(c.interval) : "--") + " & " + p_math(c.p_holm) + " & " +
           std::to_string(c.traces) + " & " + std::to_string(c.better) + "/" + std::to_string(c.same) + "/" +
           std::to_string(c.worse) + " & " + std::string(verdict_name(c.verdict)) + " \\\\\n";
  }
  return out + "\\bottomrule\n\\end{tabular}\n";
}

std::string comparison_json(const std::vector<Comparison>& comparisons, const CompareOptions& options) {
  Json j;
  j["schema"] = "swaplab/comparison@1";
  j["metric"] = options.metric;
  j["threshold"] = options.threshold;
  j["confidence"] = options.confidence;
  j["resamples"] = options.resamples;
  j["baseline"] = comparisons.front().baseline;
  j["candidates"] = Json::array();
  for (const Comparison& c : comparisons) {
    Json one;
    one["candidate"] = c.candidate;
    one["verdict"] = verdict_name(c.verdict);
    one["reason"] = c.reason;
    one["ratio"] = c.ratio;
    one["interval"] = {c.interval.low, c.interval.high};
    one["wilcoxon_statistic"] = c.wilcoxon.statistic;
    one["wilcoxon_exact"] = c.wilcoxon.exact;
    one["p"] = c.wilcoxon.p;
    one["p_holm"] = c.p_holm;
    one["traces"] = Json::array();
    for (const auto& [trace, ratio] : c.trace_ratios)
      one["traces"].push_back({{"trace", trace}, {"ratio", ratio}});
    one["better"] = c.better;
    one["same"] = c.same;
    one["worse"] = c.worse;
    one["only_baseline_failed"] = c.only_baseline_failed;
    one["only_candidate_failed"] = c.only_candidate_failed;
    one["both_failed"] = c.both_failed;
    one["unpaired"] = c.unpaired;
    one["zeros"] = c.zeros;
    one["failures"] = c.failures;
    one["pairs"] = Json::array();
    for (const ComparedPair& p : c.pairs) {
      one["pairs"].push_back({{"trace", p.trace},
                              {"where", p.where},
                              {"baseline_run", p.baseline_index},
                              {"candidate_run", p.candidate_index},
                              {"baseline", p.baseline},
                              {"candidate", p.candidate},
                              {"ratio", p.ratio},
                              {"verdict", verdict_name(p.verdict)}});
    }
    j["candidates"].push_back(std::move(one));
  }
  return j.dump(1) + "\n";
}

std::string sensitivity_text(const Sensitivity& s) {
  std::string out = s.metric + " of '" + s.candidate + "' relative to '" + s.baseline +
                    "': " + ratio_text(s.nominal_ratio) + " with the machine as described\n";
  if (s.samples > 0) {
    out += "over " + std::to_string(s.samples) + " draws: median " + ratio_text(s.median) + ", band " +
           interval_text({s.low, s.high}) + "; " + s.candidate + " is ahead in " +
           std::to_string(s.candidate_wins) + " of " + std::to_string(s.samples) + " (" +
           number("%.1f", 100 * s.win_share.low) + " to " + number("%.1f %%", 100 * s.win_share.high) + ")\n";
  }
  if (s.left_out > 0) out += std::to_string(s.left_out) + " samples left out: a run failed in them\n";
  TextTable bands({"policy", "as described", "low", "median", "high"}, 1);
  for (const MetricBand& band : s.bands) {
    const auto cell = [&](double value) {
      return value <= 0 ? std::string("-") : figure(s.metric, static_cast<std::int64_t>(std::llround(value)));
    };
    bands.add({band.policy, cell(band.nominal), cell(band.low), cell(band.median), cell(band.high)});
  }
  out += "\n" + bands.text();
  if (!s.effects.empty()) {
    TextTable effects({"one at a time", "ratio at 10 %", "as described", "ratio at 90 %"}, 1);
    for (const FigureEffect& effect : s.effects)
      effects.add(
          {effect.figure, ratio_text(effect.low), ratio_text(effect.nominal), ratio_text(effect.high)});
    out += "\n" + effects.text();
  }
  return out;
}

std::string sensitivity_json(const Sensitivity& s) {
  Json j;
  j["schema"] = "swaplab/sensitivity@1";
  j["metric"] = s.metric;
  j["baseline"] = s.baseline;
  j["candidate"] = s.candidate;
  j["nominal_ratio"] = s.nominal_ratio;
  j["draws"] = s.samples;
  j["candidate_wins"] = s.candidate_wins;
  j["win_share_interval"] = {s.win_share.low, s.win_share.high};
  j["ratio"] = {{"low", s.low}, {"median", s.median}, {"high", s.high}};
  j["left_out"] = s.left_out;
  j["bands"] = Json::array();
  for (const MetricBand& b : s.bands)
    j["bands"].push_back({{"policy", b.policy},
                          {"nominal", b.nominal},
                          {"low", b.low},
                          {"median", b.median},
                          {"high", b.high}});
  j["one_at_a_time"] = Json::array();
  for (const FigureEffect& e : s.effects)
    j["one_at_a_time"].push_back({{"figure", e.figure}, {"ratio_at_p10", e.low}, {"ratio_at_p90", e.high}});
  return j.dump(1) + "\n";
}

}  // namespace swaplab
