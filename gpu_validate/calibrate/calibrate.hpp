// A machine profile fitted to measurements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu_validate/calibrate/curve_fit.hpp"
#include "gpu_validate/calibrate/measurements.hpp"
#include "gpu_validate/calibrate/plausible.hpp"
#include "sim/machine.hpp"

namespace swaplab {

struct CalibrationOptions {
  CurveOptions curves;
  std::uint32_t resamples = 1000;  // of the bootstrap
  std::uint64_t seed = 1;
  std::string name;  // of the result; "" = the base's name with "-calibrated"
  // Eager frameworks spend more on dispatching an operator than its launch costs, so host_launch changes
  // nothing by default; true: it becomes host.op_dispatch, as for programs that only launch.
  bool dispatch_is_launch = false;
};

// One figure of the profile that was fitted. Integers in the base unit of the figure.
struct FittedFigure {
  std::string path;       // "links.h2d.bandwidth"
  std::string unit;       // "bytes_per_s", "ns", "ppm", "flop_per_s"
  std::int64_t base = 0;  // of the profile it started from
  std::int64_t value = 0, low = 0, high = 0;
  std::size_t samples = 0;
  std::string quantity;  // what it was fitted to
  std::string status;    // "measured" or "published"
};

struct FittedCurve {
  std::string quantity;
  std::string figure;  // "links.h2d"; "" where the profile has no place for it
  CurveFit fit;
};

// Model against the median of one series.
struct Residual {
  std::string quantity;
  std::int64_t x = 0;
  XUnit unit = XUnit::bytes;
  Nanos measured, low, high;  // median and its interval
  Nanos model;
  std::size_t samples = 0;
  double error() const { return static_cast<double>(model.value) / static_cast<double>(measured.value) - 1; }
};

struct UnusedQuantity {
  std::string quantity, reason;
};

struct Calibration {
  Machine machine;
  std::vector<FittedFigure> figures;
  std::vector<FittedCurve> curves;
  std::vector<Residual> residuals;        // in the order of the figures; curves first
  std::vector<FigureSource> kept;         // figures that no measurement says anything about
  std::vector<UnusedQuantity> unused;     // measured, but nothing in the profile depends on it
  std::vector<ExcludedSamples> excluded;  // samples that cannot be, which no figure was fitted to
  std::vector<std::string> notes;         // what was clipped or carried over
};

// Where several inputs have a quantity, measurement files win over published tables, then the first given.
// Quantities that are missing leave the base's figure as it is. The result reads back as a machine file.
// Throws Error(input), also when no plausible sample is left.
Calibration calibrate(const std::vector<Measurements>& inputs, const Machine& base,
                      const CalibrationOptions& options);

// The machine description as YAML, integers in base units; parse_machine reads it back unchanged.
std::string machine_yaml(const Machine& machine, const std::string& heading);

}  // namespace swaplab
