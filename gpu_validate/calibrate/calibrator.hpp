// The work of one calibration, in parts: what was given and what was found (calibrate.cpp), links and
// interference (calibrate_links.cpp), costs and rates (calibrate_costs.cpp). Private to this folder.
#pragma once

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu_validate/calibrate/calibrate.hpp"

namespace swaplab {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// To an integer figure; never negative, never beyond 64 bits.
inline std::int64_t rounded(double value) {
  return std::llround(std::clamp(value, 0.0, 4e18));
}

using SeriesList = std::vector<const MeasuredSeries*>;

// Series of one quantity, all from one input.
struct Found {
  const Measurements* input = nullptr;
  SeriesList series;
  explicit operator bool() const { return input != nullptr; }
};

class Calibrator {
 public:
  Calibrator(const std::vector<Measurements>& inputs, const Machine& base, const CalibrationOptions& options);
  Calibration run();

 private:
  // ---- what was given (calibrate.cpp)

  // The input that counts for a quantity; remembers that it was used.
  Found find(const std::string& quantity);
  static std::size_t count(const SeriesList& series);
  static std::vector<SampleGroup> groups(const SeriesList& series);
  static std::vector<Nanos> pooled(const SeriesList& series);

  // ---- what was found

  static const char* status_of(const Measurements& input);
  static std::string describe(const Measurements& input, const std::string& detail);
  void set_source(const std::string& path, const std::string& status, const std::string& source);
  void drop_source(const std::string& path);
  static std::string interval_text(const FittedFigure& f, double confidence);
  // Records a figure that is in the machine already.
  void figure(const Found& from, FittedFigure f, const std::string& detail);
  // Puts a scalar of the table of figures into the machine, within its range, and records it.
  void scalar(const Found& from, const std::string& path, const std::string& quantity, const Estimate& value,
              std::size_t samples, const std::string& detail);
  void residual(const MeasuredSeries& series, Nanos model);

  // ---- calibrate_links.cpp

  void fit_link(Direction direction, bool pinned);
  // One size tells no latency: the base's shortest copy stays.
  void keep_latency(const std::string& path, const TransferTable& before);
  // Pairs of the same x; of sizes only those that count (large copies, long kernels) when there are such.
  static std::vector<std::pair<const MeasuredSeries*, const MeasuredSeries*>> matched(const Found& alone,
                                                                                      const Found& beside);
  // 1 / mean of (time beside / time alone), in ppm: the rate factor with the mean slow-down.
  Estimate rate_factor(const std::vector<std::pair<const MeasuredSeries*, const MeasuredSeries*>>& pairs,
                       std::uint64_t number) const;
  static std::string sizes_text(std::size_t count);  // "3 sizes"
  static Nanos slowed(Nanos alone, Ppm rate);
  void fit_duplex();
  // The profile has one factor per direction: the mean slow-down over the kernel classes measured.
  void fit_kernels_beside_copies();

  // ---- calibrate_costs.cpp

  // The centre of all samples of a cost that has no size in the profile.
  void constant(const std::string& quantity, const std::string& path, std::int64_t from_x = 0,
                std::int64_t to_x = std::int64_t{1} << 62);
  void fit_host_costs();
  static Estimate times(const Estimate& e, double factor);
  static bool several(const Found& found);
  void fit_allocation();
  // x per second: of the slope over the largest sizes where there are several.
  Estimate rate_per_second(const Found& found) const;
  // Sets a class's share of a peak rate. A rate above the peak raises the peak instead.
  void share(const Found& found, const std::string& quantity, OpClass cls, bool compute, const Estimate& rate,
             std::int64_t& peak, const std::string& peak_path);
  void fit_rates();
  // What the profile has no place for yet: copies between devices, all-reduce.
  void fit_peers();

  // ---- the end (calibrate.cpp)

  void list_unused();
  void finish();

  const std::vector<Measurements>& inputs_;
  const Machine& base_;
  CalibrationOptions options_;
  Calibration result_;
  std::set<std::string> used_;  // quantities
  std::set<const Measurements*> used_inputs_;
  std::set<std::string> fitted_paths_;  // figures
};

}  // namespace swaplab
