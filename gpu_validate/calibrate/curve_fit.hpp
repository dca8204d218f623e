// Copy time as a function of size, from samples at many sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gpu_validate/calibrate/measurements.hpp"
#include "gpu_validate/calibrate/robust.hpp"
#include "sim/machine.hpp"

namespace swaplab {

struct CurvePoint {
  Bytes bytes;
  Nanos time;              // median of the samples
  NanosInterval interval;  // of the median
  std::size_t samples = 0;
};

enum class CurveForm : std::uint8_t {
  automatic,  // a line where it keeps the tolerance at every size, else a table
  line,       // latency + size / bandwidth
  table,      // piecewise linear
};
// "auto", "line", "table".
std::string_view curve_form_name(CurveForm form);

struct CurveOptions {
  double tolerance = 0.01;  // largest relative error at a measured size, where its interval is narrower
  double confidence = 0.95;
  CurveForm form = CurveForm::automatic;
};

struct CurveFit {
  TransferTable table;
  bool line = false;               // the table is {0 B, latency} and the bandwidth
  std::vector<CurvePoint> points;  // what was measured, by size
  Estimate latency;                // ns, of a line; 0 for a table
  Estimate bandwidth;              // bytes/s beyond the largest size
  std::size_t samples = 0, rejected = 0;
  // Model time over measured median, minus 1.
  double error_at(const CurvePoint& point) const;
  double largest_error() const;
  // Mean of |error| over the points with `from` <= bytes < `below`; nothing when there are none.
  std::optional<double> mean_error(Bytes from, Bytes below) const;
};

// `series`: of one quantity, by increasing size. A single size gives the bandwidth, with `base_latency`
// taken over. Larger copies are never faster in the result: where medians fall with size, neighbours are
// pooled. The table has the fewest points for which every median is within the tolerance, or within its
// own interval where that is wider (up to ten times the tolerance). Throws Error(input) without series.
CurveFit fit_curve(const std::vector<const MeasuredSeries*>& series, const CurveOptions& options,
                   Nanos base_latency);

}  // namespace swaplab
