#include "experiments/stats/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/sweep/trace_source.hpp"
#include "sim/metrics.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

bool less_is_better(const std::string& metric) {
  const auto names = result_metric_names();
  for (const MetricDescription& m : result_metric_table()) {
    if (m.tag == metric) return m.better == Better::lower;
  }
  if (metric.starts_with("policy.")) return true;
  throw Error(ErrorKind::usage, "unknown metric '" + metric + "'" + did_you_mean(metric, names));
}

std::string pair_key(const RunRecord& record) {
  std::string key;
  for (const auto& [name, value] : record.factors) {
    if (name != "policy") key += name + "=" + value + "\n";
  }
  return key;
}

// Factors besides trace and policy that take more than one value.
std::vector<std::string> varying(const std::vector<RunRecord>& records) {
  std::vector<std::string> names;
  for (const auto& [name, value] : records.front().factors) {
    if (name == "trace" || name == "policy") continue;
    const std::string &factor = name, &first = value;
    if (std::any_of(records.begin(), records.end(),
                    [&](const RunRecord& r) { return r.factor(factor) != first; }))
      names.push_back(factor);
  }
  return names;
}

std::string where_text(const RunRecord& record, const std::vector<std::string>& names) {
  std::string text;
  const std::string& trace = record.factor("trace");
  const std::string origin = trace_source_origin(trace);
  if (trace.size() > origin.size()) text = trace.substr(origin.size() + 1);  // "| what is done to it"
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name + "=" + record.factor(name);
  return text;
}

Verdict by_threshold(double ratio, double threshold, bool less) {
  const double r = less ? ratio : 1 / ratio;
  if (r < 1 / (1 + threshold)) return Verdict::better;
  if (r > 1 + threshold) return Verdict::worse;
  return Verdict::same;
}

std::string status_text(const RunRecord& record) {
  return record.status + (record.explanation.empty() ? "" : ": " + record.explanation);
}

void collect_pairs(const std::vector<RunRecord>& records, const CompareOptions& options, bool less,
                   Comparison& c) {
  std::map<std::string, const RunRecord*> candidates;
  std::size_t baselines = 0;
  for (const RunRecord& r : records) {
    if (r.factor("policy") == c.candidate) candidates[pair_key(r)] = &r;
    baselines += r.factor("policy") == c.baseline ? 1u : 0u;
  }
  const std::vector<std::string> names = varying(records);
  std::size_t paired = 0;
  for (const RunRecord& base : records) {
    if (base.factor("policy") != c.baseline) continue;
    const auto at = candidates.find(pair_key(base));
    if (at == candidates.end()) continue;
    ++paired;
    const RunRecord& other = *at->second;
    if (!base.ok() || !other.ok()) {
      ++(base.ok() ? c.only_candidate_failed : other.ok() ? c.only_baseline_failed : c.both_failed);
      c.failures.push_back(base.factor("trace") + " " + where_text(base, names) + ": baseline " +
                           status_text(base) + "; candidate " + status_text(other));
      continue;
    }
    const auto a = base.metric(options.metric), b = other.metric(options.metric);
    if (a && b && *a == 0 && *b == 0) {  // equal, though no ratio says so
      c.pairs.push_back({trace_source_origin(base.factor("trace")), where_text(base, names), base.index,
                         other.index, 0, 0, 1.0, Verdict::same});
      continue;
    }
    if (!a || !b || *a <= 0 || *b <= 0) {
      ++c.zeros;
      continue;
    }
    const double ratio = static_cast<double>(*b) / static_cast<double>(*a);
    c.pairs.push_back({trace_source_origin(base.factor("trace")), where_text(base, names), base.index,
                       other.index, *a, *b, ratio, by_threshold(ratio, options.threshold, less)});
  }
  c.unpaired = (baselines - paired) + (candidates.size() - paired);
  for (const ComparedPair& pair : c.pairs)
    ++(pair.verdict == Verdict::better ? c.better : pair.verdict == Verdict::worse ? c.worse : c.same);
}

void judge(const CompareOptions& options, bool less, Comparison& c) {
  const double low = less ? c.interval.low : 1 / c.interval.high;
  const double high = less ? c.interval.high : 1 / c.interval.low;
  const double below = 1 / (1 + options.threshold), above = 1 + options.threshold;
  const double alpha = 1 - options.confidence;
  const bool identical =
      std::all_of(c.pairs.begin(), c.pairs.end(), [](const auto& p) { return p.ratio == 1.0; });
  const auto cannot = [&](std::string reason) {
    c.verdict = Verdict::cannot_tell;
    c.reason = std::move(reason);
  };
  const std::size_t lopsided = c.only_baseline_failed + c.only_candidate_failed;
  if (c.pairs.empty()) return cannot("no pair in which both ran");
  if (lopsided > 0 && !options.ignore_failures)
    return cannot(std::to_string(lopsided) + " pairs in which only one of them ran would be left out");
  if (identical) {
    c.verdict = Verdict::same;
    c.reason = "every pair is equal";
    return;
  }
  if (c.traces < 2) return cannot("one trace says nothing about others");
  if (low > below && high < above) {
    c.verdict = Verdict::same;
    c.reason = "the interval lies within the threshold";
  } else if (high < below || low > above) {
    const bool better = high < below;
    if (c.p_holm >= alpha)
      return cannot("Wilcoxon's test does not reject (" + std::to_string(c.traces) +
                    " traces; six is the least that can)");
    c.verdict = better ? Verdict::better : Verdict::worse;
    c.reason = "the whole interval lies beyond the threshold";
  } else {
    cannot("the interval reaches over the threshold");
  }
}

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += std::log(v);
  return values.empty() ? 1.0 : std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  constexpr std::string_view names[] = {"BETTER", "SAME", "WORSE", "CANNOT TELL"};
  return names[static_cast<std::size_t>(verdict)];
}

std::vector<std::string> policies_of(const std::vector<RunRecord>& records) {
  std::vector<std::string> policies;
  for (const RunRecord& record : records) {
    if (std::find(policies.begin(), policies.end(), record.factor("policy")) == policies.end())
      policies.push_back(record.factor("policy"));
  }
  return policies;
}

std::string resolve_policy(const std::vector<RunRecord>& records, const std::string& wanted) {
  const std::vector<std::string> policies = policies_of(records);
  if (std::find(policies.begin(), policies.end(), wanted) != policies.end()) return wanted;
  std::vector<std::string> found;
  for (const std::string& policy : policies) {
    if (policy_matches(wanted, policy)) found.push_back(policy);
  }
  if (found.size() == 1) return found[0];
  std::string list;
  for (const std::string& policy : found.empty() ? policies : found)
    list += (list.empty() ? "" : " | ") + policy;
  if (found.empty())
    throw Error(ErrorKind::usage, "no run has policy '" + wanted + "'" + did_you_mean(wanted, policies) +
                                      "; there are: " + list);
  throw Error(ErrorKind::usage, "policy '" + wanted + "' is ambiguous: " + list);
}

std::vector<Comparison> compare_policies(const std::vector<RunRecord>& all, const std::string& baseline,
                                         std::vector<std::string> candidates, const CompareOptions& options) {
  const bool less = less_is_better(options.metric);
  // Samples of an uncertain machine are not further evidence about policies: sensitivity_of reads them.
  std::vector<RunRecord> records;
  for (const RunRecord& record : all) {
    if (record.factor("sample").empty() || record.factor("sample") == "nominal") records.push_back(record);
  }
  if (records.empty()) throw Error(ErrorKind::usage, "there are no runs to compare");
  const std::string base = resolve_policy(records, baseline);
  if (candidates.empty()) {
    for (const std::string& policy : policies_of(records)) {
      if (policy != base) candidates.push_back(policy);
    }
    if (candidates.empty()) throw Error(ErrorKind::usage, "the results hold no policy but '" + base + "'");
  }
  std::vector<Comparison> result;
  std::vector<double> p_values;
  for (const std::string& wanted : candidates) {
    Comparison c;
    c.baseline = base;
    c.candidate = resolve_policy(records, wanted);
    collect_pairs(records, options, less, c);
    std::vector<std::string> traces;
    std::map<std::string, std::vector<double>> by_trace;
    for (const ComparedPair& pair : c.pairs) {
      if (!by_trace.contains(pair.trace)) traces.push_back(pair.trace);
      by_trace[pair.trace].push_back(pair.ratio);
    }
    std::vector<double> logs;
    for (const std::string& trace : traces) {
      const double ratio = geometric_mean(by_trace[trace]);
      c.trace_ratios.emplace_back(trace, ratio);
      logs.push_back(std::log(ratio));
    }
    c.traces = traces.size();
    if (!logs.empty()) {
      double sum = 0;
      for (const double log : logs) sum += log;
      c.ratio = std::exp(sum / static_cast<double>(logs.size()));
      const Interval interval = bootstrap_t_mean(logs, options.confidence, options.resamples, options.seed);
      c.interval = {std::exp(interval.low), std::exp(interval.high)};
    }
    c.wilcoxon = wilcoxon_signed_rank(logs);
    p_values.push_back(c.wilcoxon.p);
    result.push_back(std::move(c));
  }
  const std::vector<double> adjusted = holm_adjust(p_values);
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i].p_holm = adjusted[i];
    judge(options, less, result[i]);
  }
  return result;
}

Sensitivity sensitivity_of(const std::vector<RunRecord>& records, const std::string& baseline,
                           const std::string& candidate, const CompareOptions& options) {
  const bool less = less_is_better(options.metric);
  Sensitivity s;
  s.metric = options.metric;
  s.baseline = resolve_policy(records, baseline);
  s.candidate = resolve_policy(records, candidate);
  std::vector<std::string> samples;
  // sample -> policy -> figures of its runs, by what they have in common
  std::map<std::string, std::map<std::string, std::map<std::string, double>>> figures;
  for (const RunRecord& record : records) {
    const std::string& sample = record.factor("sample");
    if (std::find(samples.begin(), samples.end(), sample) == samples.end()) samples.push_back(sample);
    const auto value = record.metric(options.metric);
    if (!record.ok() || !value || *value <= 0) continue;
    std::string key;
    for (const auto& [name, text] : record.factors) {
      if (name != "policy" && name != "sample") key += name + "=" + text + "\n";
    }
    figures[sample][record.factor("policy")][key] = static_cast<double>(*value);
  }
  if (samples.size() < 2)
    throw Error(ErrorKind::usage, "these results have no samples; the sweep file needs 'uncertainty'");
  // Ratio of one sample over the runs that the nominal sample has; nothing when one of them is missing.
  const auto& nominal = figures["nominal"];
  const auto runs_of = [&](const std::string& policy) {
    const auto at = nominal.find(policy);
    return at == nominal.end() ? std::map<std::string, double>{} : at->second;
  };
  const auto base_runs = runs_of(s.baseline), candidate_runs = runs_of(s.candidate);
  const auto ratio_of = [&](const std::string& sample) -> std::optional<double> {
    std::vector<double> ratios;
    for (const auto& [key, value] : base_runs) {
      if (!candidate_runs.contains(key)) continue;
      const auto& policies = figures[sample];
      const auto a = policies.find(s.baseline), b = policies.find(s.candidate);
      if (a == policies.end() || b == policies.end() || !a->second.contains(key) || !b->second.contains(key))
        return std::nullopt;
      ratios.push_back(b->second.at(key) / a->second.at(key));
    }
    if (ratios.empty()) return std::nullopt;
    return geometric_mean(ratios);
  };
  const auto at_nominal = ratio_of("nominal");
  if (!at_nominal) throw Error(ErrorKind::usage, "no nominal run in which both policies end");
  s.nominal_ratio = *at_nominal;
  std::vector<double> ratios;
  for (const std::string& sample : samples) {
    if (!sample.starts_with("draw-")) continue;
    const auto ratio = ratio_of(sample);
    if (!ratio) {
      ++s.left_out;
      continue;
    }
    ratios.push_back(*ratio);
    s.candidate_wins += (less ? *ratio < 1 : *ratio > 1) ? 1u : 0u;
  }
  s.samples = ratios.size();
  std::sort(ratios.begin(), ratios.end());
  const double tail = (1 - options.confidence) / 2;
  if (!ratios.empty()) {
    s.low = quantile(ratios, tail);
    s.median = quantile(ratios, 0.5);
    s.high = quantile(ratios, 1 - tail);
    s.win_share = clopper_pearson(s.candidate_wins, s.samples, options.confidence);
  }
  for (const std::string& policy : policies_of(records)) {
    MetricBand band;
    band.policy = policy;
    std::vector<double> means;
    for (const std::string& sample : samples) {
      const auto& policies = figures[sample];
      const auto at = policies.find(policy);
      if (at == policies.end() || at->second.size() != runs_of(policy).size()) continue;
      std::vector<double> values;
      for (const auto& [key, value] : at->second) values.push_back(value);
      if (sample == "nominal") band.nominal = geometric_mean(values);
      if (sample.starts_with("draw-")) means.push_back(geometric_mean(values));
    }
    std::sort(means.begin(), means.end());
    if (!means.empty()) {
      band.low = quantile(means, tail);
      band.median = quantile(means, 0.5);
      band.high = quantile(means, 1 - tail);
    }
    s.bands.push_back(std::move(band));
  }
  for (const std::string& sample : samples) {
    if (!sample.ends_with("@p10")) continue;
    FigureEffect effect;
    effect.figure = sample.substr(0, sample.size() - 4);
    effect.nominal = s.nominal_ratio;
    const auto low = ratio_of(sample), high = ratio_of(effect.figure + "@p90");
    if (!low || !high) {
      ++s.left_out;
      continue;
    }
    effect.low = *low;
    effect.high = *high;
    s.effects.push_back(effect);
  }
  std::stable_sort(s.effects.begin(), s.effects.end(), [](const FigureEffect& a, const FigureEffect& b) {
    return std::fabs(std::log(a.high / a.low)) > std::fabs(std::log(b.high / b.low));
  });
  return s;
}

}  // namespace swaplab
