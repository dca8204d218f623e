// Uncertain machine figures and operator times: distributions, and the factors of one sample.
//
// Everything is integer (parts per million), so a sample is the same on every machine and compiler.
// Draw k of a figure depends on the seed, the figure's name and k only: all policies, traces and
// budgets see the same draws (common random numbers), so rankings are compared sample by sample.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/machine.hpp"
#include "sim/program.hpp"
#include "trace/split_mix.hpp"

namespace swaplab {

// A seed from a seed and a name.
std::uint64_t seed_of(std::uint64_t seed, std::string_view name, std::uint64_t number);

struct Distribution {
  enum class Kind { uniform, normal, triangular };
  Kind kind = Kind::uniform;
  Ppm low = kUnchanged, mode = kUnchanged, high = kUnchanged;  // uniform and triangular
  Ppm deviation = 0;                                           // normal: around 1x

  // Normal: the sum of twelve uniforms (mean 1x, the stated deviation, never beyond six of them);
  // never below 0.001x.
  Ppm draw(SplitMix64& random) const;
  Ppm tenth_percentile(bool upper) const;  // the 10 % or the 90 % point
};

struct UncertainFigure {
  std::string name;  // "machine.<figure>", "operator_time" or "operator_time.each"
  Distribution distribution;
};

struct Uncertainty {
  std::vector<UncertainFigure> figures;
  std::uint32_t samples = 0;
  std::uint64_t seed = 1;
  bool one_at_a_time = false;
};

// Names of all samples: "nominal", "draw-1" ..., "<figure>@p10", "<figure>@p90".
std::vector<std::string> sample_names(const Uncertainty& uncertainty);
// Changes the machine as `sample` says. Throws Error(usage) for a name that is none of the above.
void apply_sample(const Uncertainty& uncertainty, const std::string& sample, Machine& machine);
// Changes operator times as `sample` says: one factor for all, or one per operator signature.
void apply_sample(const Uncertainty& uncertainty, const std::string& sample, Program& program);

}  // namespace swaplab
