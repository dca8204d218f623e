// How well a simulation predicts measurements: errors, ranking, regret.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/validate/measured_runs.hpp"
#include "experiments/validate/simulate_measured.hpp"

namespace swaplab {

struct ErrorSummary {
  std::size_t count = 0;
  double mape = 0;              // mean |simulated / measured - 1|
  double signed_mean = 0;       // mean of the signed errors: the bias
  double p95 = 0, largest = 0;  // of the absolute errors
};
ErrorSummary summarise_errors(std::span<const double> errors);

// A measured and a simulated figure of one stall class, per iteration.
struct StallPair {
  std::string name;
  Nanos measured, simulated;
};

struct ValidationPoint {
  std::string trace, policy, budget;
  std::string cell;  // every factor but the policy: what is compared with each other
  std::string where;
  Nanos measured, simulated;  // mean steady iteration: median over repeats, and the model's
  double noise_ns = 0;        // standard error of `measured`, from the spread of the repeats
  std::size_t repeats = 1;
  std::vector<double> iteration_errors;  // of single iterations, when both sides have them
  std::optional<Bytes> peak_measured, peak_simulated;
  std::vector<StallPair> stalls;
  bool decisions_differ = false;
  double error() const {
    return static_cast<double>(simulated.value) / static_cast<double>(measured.value) - 1;
  }
};

struct DroppedPoint {
  std::string what, reason;
};

// Runs that agree in everything but the policy.
struct ValidationCell {
  std::string name;
  std::size_t policies = 0;
  std::size_t measured_ties = 0, simulated_ties = 0, pairs = 0;  // pairs of policies
  std::optional<double> tau;  // Kendall's tau-b; nothing when one side ties every pair
  std::string chosen, best;   // the model's choice, and the fastest measured
  double regret = 0;          // measured time of the choice over the fastest, minus 1
};

struct StallSummary {
  std::string name;
  double measured_share = 0, simulated_share = 0;  // mean share of the measured iteration
  // Means of simulated - measured as a share of it: with its sign, and without.
  double mean_difference = 0, mean_absolute_difference = 0;
};

struct Tolerances {
  double iteration = 0.05;  // MAPE of the iteration time
  double peak = 0.02;       // MAPE of the peak of reserved memory
  double tau = 0.9;         // least mean tau-b over cells
  double regret = 0.02;     // largest over cells
};

struct Check {
  std::string name, limit;
  std::optional<double> value;  // nothing: there was nothing to judge
  bool held = true;
};

struct Validation {
  std::vector<ValidationPoint> points;
  std::vector<DroppedPoint> dropped;
  std::size_t outcomes_differ = 0;  // dropped because only one side ran through
  std::size_t decisions_differ = 0;
  ErrorSummary runs, iterations, peaks;
  std::vector<StallSummary> stalls;
  std::vector<ValidationCell> cells;
  std::optional<double> mean_tau;
  double mean_regret = 0, largest_regret = 0;
  std::vector<Check> checks;
  bool held() const;
};

struct AgreementOptions {
  Tolerances tolerances;
  double least_noise = 0.005;  // smaller relative differences are ties, however quiet the measurement
};

// Pairs by all factors that both sides state, the machine apart. Differences of two policies within
// max(least_noise, 2 standard errors of the difference), as a share of the faster one, are ties: on the
// measured side, and with the same share on the simulated side.
// Throws Error(input) when nothing can be paired.
Validation compare_with_measured(const std::vector<MeasuredRun>& measured,
                                 const std::vector<SimulatedRun>& simulated, const AgreementOptions& options);

}  // namespace swaplab
