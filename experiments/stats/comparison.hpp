// A/B comparison of policies in a results folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/stats/statistics.hpp"
#include "experiments/sweep/run_record.hpp"

namespace swaplab {

enum class Verdict : std::uint8_t { better, same, worse, cannot_tell };
std::string_view verdict_name(Verdict verdict);  // "BETTER", "SAME", "WORSE", "CANNOT TELL"

struct CompareOptions {
  std::string metric = "iter_time_ns";
  double threshold = 0.01;  // smallest relative difference that matters
  double confidence = 0.95;
  std::uint32_t resamples = 10'000;
  std::uint64_t seed = 1;
  bool ignore_failures = false;  // verdicts although one side failed where the other ran
};

// Runs that agree in everything but the policy. `trace` is what the run's trace was made from: a recording
// that was perturbed in five ways is one recording still. Pairs need a figure above 0 on both sides.
struct ComparedPair {
  std::string trace, where;  // the other factors that vary, "budget=0.5x machine=..."
  std::size_t baseline_index = 0, candidate_index = 0;
  std::int64_t baseline = 0, candidate = 0;
  double ratio = 1;                 // candidate / baseline
  Verdict verdict = Verdict::same;  // by the threshold alone
};

struct Comparison {
  std::string baseline, candidate;
  std::vector<ComparedPair> pairs;                           // in plan order
  std::size_t traces = 0;                                    // with at least one pair
  std::vector<std::pair<std::string, double>> trace_ratios;  // geometric mean per trace
  double ratio = 1;                                          // geometric mean over traces
  Interval interval{1, 1};                                   // of it, over traces
  WilcoxonResult wilcoxon;                                   // on the traces' log ratios
  double p_holm = 1;                                         // adjusted for the number of candidates
  std::size_t better = 0, same = 0, worse = 0;               // pairs
  std::size_t only_baseline_failed = 0, only_candidate_failed = 0, both_failed = 0;
  std::size_t unpaired = 0;           // runs of either policy without a partner (not finished, or excluded)
  std::size_t zeros = 0;              // pairs left out because a figure is 0 or absent
  std::vector<std::string> failures;  // "trace budget: baseline ok, candidate infeasible: ..."
  Verdict verdict = Verdict::cannot_tell;
  std::string reason;  // of the verdict
};

// Rules of the verdict, for a figure of which less is better (mirrored otherwise):
// - BETTER: the whole interval lies below 1 / (1 + threshold) and the adjusted p is below 1 - confidence.
// - WORSE: the whole interval lies above 1 + threshold, and the same p.
// - SAME: the whole interval lies between the two.
// - CANNOT TELL: otherwise; also with a single trace (unless every pair is equal), and when one
//   side failed where the other ran, unless failures are ignored.
// One comparison per candidate, in the order given; none given: every other policy of the records.
// Throws Error(usage) with a suggestion for an unknown policy or metric.
std::vector<Comparison> compare_policies(const std::vector<RunRecord>& records, const std::string& baseline,
                                         std::vector<std::string> candidates, const CompareOptions& options);

// Policies of the records, in order of appearance.
std::vector<std::string> policies_of(const std::vector<RunRecord>& records);
// The policy that `wanted` names (its text, or a bare name that only one has). Throws Error(usage).
std::string resolve_policy(const std::vector<RunRecord>& records, const std::string& wanted);

// How often the candidate beats the baseline over Monte-Carlo samples, and what each figure does alone.
struct MetricBand {
  std::string policy;
  double nominal = 0, low = 0, median = 0, high = 0;  // geometric mean over runs; band of the samples
};
struct FigureEffect {
  std::string figure;
  double low = 1, high = 1;  // ratio candidate / baseline at its 10 % and 90 % point
  double nominal = 1;
};
struct Sensitivity {
  std::string baseline, candidate, metric;
  std::size_t samples = 0;  // draws for which both have all runs
  std::size_t candidate_wins = 0;
  Interval win_share{0, 1};                                 // Clopper-Pearson
  double nominal_ratio = 1, low = 1, median = 1, high = 1;  // of the ratio over samples
  std::vector<MetricBand> bands;                            // of every policy
  std::vector<FigureEffect> effects;                        // largest first
  std::size_t left_out = 0;                                 // draws in which a run failed
};
// Throws Error(usage) when the records have no samples.
Sensitivity sensitivity_of(const std::vector<RunRecord>& records, const std::string& baseline,
                           const std::string& candidate, const CompareOptions& options);

}  // namespace swaplab
