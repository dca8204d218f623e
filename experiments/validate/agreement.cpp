#include "experiments/validate/agreement.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "experiments/stats/comparison_text.hpp"
#include "experiments/stats/statistics.hpp"
#include "gpu_validate/calibrate/robust.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

std::string describe(const RunRecord& r) {
  return short_trace(r.factor("trace")) + " " + r.factor("budget") + " " + r.factor("policy");
}

// Factors by which runs are paired; what only one side states says nothing.
std::string pairing_key(const RunRecord& r, const std::set<std::string>& common) {
  std::string key;
  for (const std::string& name : common) key += name + "=" + r.factor(name) + "\n";
  return key;
}

std::set<std::string> factor_names(const RunRecord& r) {
  std::set<std::string> names;
  for (const auto& [name, value] : r.factors)
    if (name != "machine" && !name.starts_with("machine.")) names.insert(name);
  return names;
}

double standard_error(const std::vector<Nanos>& means) {
  if (means.size() < 2) return 0;
  // Of a median, from the MAD; two repeats: half their distance.
  if (means.size() == 2) return std::fabs(static_cast<double>((means[1] - means[0]).value)) / 2;
  const double deviation = 1.4826 * static_cast<double>(median_absolute_deviation(means).value);
  return 1.2533 * deviation / std::sqrt(static_cast<double>(means.size()));
}

Nanos median_of(const std::vector<std::vector<Nanos>>& repeats, std::size_t iteration) {
  std::vector<Nanos> values;
  for (const auto& repeat : repeats)
    if (iteration < repeat.size()) values.push_back(repeat[iteration]);
  return values.empty() ? Nanos{0} : median(values);
}

std::string percent(double share) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g %%", 100 * share);
  return buffer;
}

class Agreement {
 public:
  Agreement(const std::vector<MeasuredRun>& measured, const std::vector<SimulatedRun>& simulated,
            const AgreementOptions& options)
      : measured_(measured), simulated_(simulated), options_(options) {}

  Validation run() {
    pair_runs();
    if (v_.points.empty()) {
      std::string first =
          v_.dropped.empty() ? "" : "; for example " + v_.dropped[0].what + ": " + v_.dropped[0].reason;
      throw Error(ErrorKind::input, "no measured run has a simulated counterpart that ran" + first);
    }
    summarise();
    rank_cells();
    check();
    return std::move(v_);
  }

 private:
  void drop(const std::string& what, const std::string& reason) { v_.dropped.push_back({what, reason}); }

  void pair_runs() {
    std::set<std::string> common;
    if (!measured_.empty() && !simulated_.empty()) {
      const std::set<std::string> a = factor_names(measured_[0].record),
                                  b = factor_names(simulated_[0].record);
      std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(common, common.end()));
    }
    for (const char* needed : {"trace", "budget", "policy"})
      if (!common.contains(needed))
        throw Error(ErrorKind::input, "both sides must state the factor '" + std::string(needed) + "'");
    std::map<std::string, const SimulatedRun*> by_key;
    std::set<const SimulatedRun*> taken;
    for (const SimulatedRun& run : simulated_) {
      const auto [at, fresh] = by_key.emplace(pairing_key(run.record, common), &run);
      // Several runs of one measured cell simulate alike; anything else is ambiguous.
      if (fresh) continue;
      if (record_line(at->second->record, false) == record_line(run.record, false) ||
          at->second->record.metrics == run.record.metrics) {
        taken.insert(&run);
        continue;
      }
      throw Error(ErrorKind::input,
                  "two simulated runs fit " + describe(run.record) +
                      " and differ; they vary in something that the measured runs do not state");
    }
    std::set<std::string> seen;
    for (const MeasuredRun& run : measured_) {
      const std::string key = pairing_key(run.record, common);
      const auto found = by_key.find(key);
      if (found == by_key.end()) {
        drop(describe(run.record), "not simulated");
        continue;
      }
      taken.insert(found->second);
      if (!seen.insert(key).second) {
        drop(describe(run.record) + " (" + run.where + ")", "measured before; the first line counts");
        continue;
      }
      add(run, *found->second, common);
    }
    for (const SimulatedRun& run : simulated_)
      if (!taken.contains(&run)) drop(describe(run.record), "not measured");
  }

  void add(const MeasuredRun& m, const SimulatedRun& s, const std::set<std::string>& common) {
    const std::string what = describe(m.record);
    if (!m.record.ok() || !s.record.ok()) {
      const auto side = [](const RunRecord& r) {
        return r.status + (r.explanation.empty() ? "" : " (" + r.explanation + ")");
      };
      if (m.record.status == s.record.status) {
        drop(what, "both sides: " + m.record.status);
      } else {
        if (s.record.status != "error") ++v_.outcomes_differ;
        drop(what, "measured " + side(m.record) + ", simulated " + side(s.record));
      }
      return;
    }
    if (m.wrong_words > 0) {
      drop(what, "its bytes were wrong (" + std::to_string(m.wrong_words) + " words): no valid run");
      return;
    }
    const std::vector<Nanos> means = m.steady_means();
    const auto simulated = s.record.metric("iter_time_ns");
    if (means.empty() || median(means) <= Nanos{0} || !simulated || *simulated <= 0) {
      drop(what, "has no steady iteration time");
      return;
    }
    ValidationPoint p;
    p.trace = m.record.factor("trace");
    p.policy = m.record.factor("policy");
    p.budget = m.record.factor("budget");
    p.where = m.where;
    p.cell = short_trace(p.trace) + " " + p.budget;
    for (const std::string& name : common)
      if (name != "trace" && name != "budget" && name != "policy")
        p.cell += "\n" + name + "=" + m.record.factor(name);
    p.measured = median(means);
    p.simulated = Nanos{*simulated};
    p.noise_ns = standard_error(means);
    p.repeats = means.size();
    for (std::size_t i = m.steady_first; i < m.steady_end && i < s.iterations.size(); ++i) {
      const Nanos time = median_of(m.iterations, i);
      if (time > Nanos{0})
        p.iteration_errors.push_back(
            static_cast<double>(s.iterations[i].value) / static_cast<double>(time.value) - 1);
    }
    const auto peak = [](const RunRecord& r) -> std::optional<Bytes> {
      const auto bytes = r.metric("peak_reserved_bytes");
      if (!bytes || *bytes <= 0) return std::nullopt;
      return Bytes{*bytes};
    };
    p.peak_measured = peak(m.record);
    p.peak_simulated = peak(s.record);
    for (std::size_t c = 0; c < kStallCount; ++c) {
      const std::string name(stall_name(static_cast<Stall>(c)));
      const auto a = m.record.metric("stall_" + name + "_ns"), b = s.record.metric("stall_" + name + "_ns");
      if (a && b) p.stalls.push_back({name, Nanos{*a}, Nanos{*b}});
    }
    p.decisions_differ = !m.decisions_differ.empty();
    v_.decisions_differ += p.decisions_differ ? 1u : 0u;
    v_.points.push_back(std::move(p));
  }

  void summarise() {
    std::vector<double> runs, iterations, peaks;
    std::map<std::string, StallSummary> stalls;
    std::map<std::string, std::size_t> counts;
    std::vector<std::string> order;
    for (const ValidationPoint& p : v_.points) {
      runs.push_back(p.error());
      iterations.insert(iterations.end(), p.iteration_errors.begin(), p.iteration_errors.end());
      if (p.peak_measured && p.peak_simulated)
        peaks.push_back(
            static_cast<double>(p.peak_simulated->value) / static_cast<double>(p.peak_measured->value) - 1);
      for (const StallPair& s : p.stalls) {
        if (counts[s.name]++ == 0) order.push_back(s.name);
        StallSummary& sum = stalls[s.name];
        const auto time = static_cast<double>(p.measured.value);
        sum.name = s.name;
        sum.measured_share += static_cast<double>(s.measured.value) / time;
        sum.simulated_share += static_cast<double>(s.simulated.value) / time;
        const double difference = static_cast<double>((s.simulated - s.measured).value) / time;
        sum.mean_difference += difference;
        sum.mean_absolute_difference += std::fabs(difference);
      }
    }
    v_.runs = summarise_errors(runs);
    v_.iterations = summarise_errors(iterations);
    v_.peaks = summarise_errors(peaks);
    for (const std::string& name : order) {
      StallSummary sum = stalls[name];
      const auto n = static_cast<double>(counts[name]);
      for (double* value :
           {&sum.measured_share, &sum.simulated_share, &sum.mean_difference, &sum.mean_absolute_difference})
        *value /= n;
      v_.stalls.push_back(std::move(sum));
    }
  }

  // Largest difference of two measured times, as a share of the faster, that the measurement cannot tell
  // from nothing.
  double indistinguishable(const ValidationPoint& a, const ValidationPoint& b) const {
    const auto faster = static_cast<double>(std::min(a.measured, b.measured).value);
    return std::max(options_.least_noise, 2 * std::hypot(a.noise_ns, b.noise_ns) / faster);
  }

  static int order_of(Nanos a, Nanos b, double tie) {
    const auto difference = static_cast<double>((a - b).value);
    if (std::fabs(difference) <= tie * static_cast<double>(std::min(a, b).value)) return 0;
    return difference < 0 ? -1 : 1;
  }

  void rank_cells() {
    std::vector<std::string> order;
    std::map<std::string, std::vector<const ValidationPoint*>> cells;
    for (const ValidationPoint& p : v_.points) {
      auto& cell = cells[p.cell];
      if (cell.empty()) order.push_back(p.cell);
      cell.push_back(&p);
    }
    double taus = 0;
    std::size_t ranked = 0;
    for (const std::string& name : order) {
      const std::vector<const ValidationPoint*>& points = cells[name];
      if (points.size() < 2) continue;
      ValidationCell cell = rank(points);
      cell.name = name.substr(0, name.find('\n'));
      // Cells of one trace and budget that differ otherwise need to be told apart.
      if (std::any_of(v_.cells.begin(), v_.cells.end(), [&](const auto& c) { return c.name == cell.name; }))
        cell.name += " (" + std::to_string(v_.cells.size() + 1) + ")";
      if (cell.tau) {
        taus += *cell.tau;
        ++ranked;
      }
      v_.mean_regret += cell.regret;
      v_.largest_regret = std::max(v_.largest_regret, cell.regret);
      v_.cells.push_back(std::move(cell));
    }
    if (ranked > 0) v_.mean_tau = taus / static_cast<double>(ranked);
    if (!v_.cells.empty()) v_.mean_regret /= static_cast<double>(v_.cells.size());
  }

  ValidationCell rank(const std::vector<const ValidationPoint*>& points) const {
    ValidationCell cell;
    cell.policies = points.size();
    std::int64_t agree = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      for (std::size_t j = i + 1; j < points.size(); ++j) {
        const double tie = indistinguishable(*points[i], *points[j]);
        const int m = order_of(points[i]->measured, points[j]->measured, tie);
        const int s = order_of(points[i]->simulated, points[j]->simulated, tie);
        ++cell.pairs;
        cell.measured_ties += m == 0 ? 1u : 0u;
        cell.simulated_ties += s == 0 ? 1u : 0u;
        agree += static_cast<std::int64_t>(m) * s;
      }
    }
    const auto pairs = static_cast<double>(cell.pairs);
    const double scale = std::sqrt((pairs - static_cast<double>(cell.measured_ties)) *
                                   (pairs - static_cast<double>(cell.simulated_ties)));
    if (scale > 0) cell.tau = static_cast<double>(agree) / scale;
    const auto least = [&](Nanos ValidationPoint::*time) {
      return *std::min_element(points.begin(), points.end(),
                               [&](const auto* a, const auto* b) { return a->*time < b->*time; });
    };
    const ValidationPoint* chosen = least(&ValidationPoint::simulated);
    const ValidationPoint* best = least(&ValidationPoint::measured);
    cell.chosen = chosen->policy;
    cell.best = best->policy;
    cell.regret = static_cast<double>(chosen->measured.value) / static_cast<double>(best->measured.value) - 1;
    return cell;
  }

  void check() {
    const Tolerances& t = options_.tolerances;
    const auto at_most = [&](const std::string& name, std::optional<double> value, double limit) {
      v_.checks.push_back({name, "at most " + percent(limit), value, !value || *value <= limit});
    };
    at_most("iteration time, MAPE", v_.runs.mape, t.iteration);
    at_most("peak memory, MAPE", v_.peaks.count > 0 ? std::optional(v_.peaks.mape) : std::nullopt, t.peak);
    char limit[32];
    std::snprintf(limit, sizeof limit, "at least %g", t.tau);
    v_.checks.push_back(
        {"rank of policies, mean tau-b", limit, v_.mean_tau, !v_.mean_tau || *v_.mean_tau >= t.tau});
    at_most("regret of the model's choice, largest",
            v_.cells.empty() ? std::nullopt : std::optional(v_.largest_regret), t.regret);
    const auto differ = static_cast<double>(v_.outcomes_differ);
    v_.checks.push_back({"runs that fit on one side only", "none", differ, v_.outcomes_differ == 0});
  }

  const std::vector<MeasuredRun>& measured_;
  const std::vector<SimulatedRun>& simulated_;
  AgreementOptions options_;
  Validation v_;
};

}  // namespace

ErrorSummary summarise_errors(std::span<const double> errors) {
  ErrorSummary s;
  s.count = errors.size();
  if (errors.empty()) return s;
  std::vector<double> sizes;
  sizes.reserve(errors.size());
  for (const double e : errors) {
    sizes.push_back(std::fabs(e));
    s.mape += std::fabs(e);
    s.signed_mean += e;
  }
  std::sort(sizes.begin(), sizes.end());
  s.mape /= static_cast<double>(errors.size());
  s.signed_mean /= static_cast<double>(errors.size());
  s.p95 = quantile(sizes, 0.95);
  s.largest = sizes.back();
  return s;
}

bool Validation::held() const {
  return std::all_of(checks.begin(), checks.end(), [](const Check& c) { return c.held; });
}

Validation compare_with_measured(const std::vector<MeasuredRun>& measured,
                                 const std::vector<SimulatedRun>& simulated,
                                 const AgreementOptions& options) {
  return Agreement(measured, simulated, options).run();
}

}  // namespace swaplab
