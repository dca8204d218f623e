#include "experiments/sweep/uncertainty.hpp"

#include <algorithm>
#include <charconv>

#include "experiments/sweep/machine_override.hpp"
#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr Ppm kSmallestFactor = 1'000;
constexpr Ppm kNormalTenth = 1'281'552;  // 90 % point of the standard normal, in ppm of a deviation

std::int64_t square_root(Wide value) {
  std::int64_t low = 0, high = std::int64_t{1} << 62;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (static_cast<Wide>(middle) * middle <= value) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Inverse of the distribution function of a triangle, at probability p (ppm).
Ppm triangle(Ppm low, Ppm mode, Ppm high, Ppm p) {
  if (high <= low) return low;
  const Wide width = high - low;
  if (p * width <= static_cast<Wide>(mode - low) * kUnchanged)
    return low + square_root(width * (mode - low) * p / kUnchanged);
  return high - square_root(width * (high - mode) * (kUnchanged - p) / kUnchanged);
}

struct Sample {
  enum class Kind { nominal, draw, tenth, ninetieth } kind = Kind::nominal;
  std::uint64_t number = 0;
  std::string figure;
};

Sample parse_sample(const Uncertainty& uncertainty, const std::string& text) {
  Sample sample;
  if (text == "nominal") return sample;
  if (text.starts_with("draw-")) {
    const auto [stop, error] = std::from_chars(text.data() + 5, text.data() + text.size(), sample.number);
    if (error == std::errc() && stop == text.data() + text.size() && sample.number >= 1) {
      sample.kind = Sample::Kind::draw;
      return sample;
    }
  }
  for (const UncertainFigure& figure : uncertainty.figures) {
    for (const bool upper : {false, true}) {
      if (text != figure.name + (upper ? "@p90" : "@p10")) continue;
      sample.kind = upper ? Sample::Kind::ninetieth : Sample::Kind::tenth;
      sample.figure = figure.name;
      return sample;
    }
  }
  throw Error(ErrorKind::usage, "unknown sample '" + text + "'");
}

Ppm factor_of(const Uncertainty& uncertainty, const UncertainFigure& figure, const Sample& sample,
              std::uint64_t part) {
  switch (sample.kind) {
    case Sample::Kind::nominal:
      return kUnchanged;
    case Sample::Kind::draw: {
      SplitMix64 random(seed_of(uncertainty.seed, figure.name, sample.number * 0x100000000ULL + part));
      return figure.distribution.draw(random);
    }
    case Sample::Kind::tenth:
    case Sample::Kind::ninetieth:
      break;
  }
  return sample.figure == figure.name
             ? figure.distribution.tenth_percentile(sample.kind == Sample::Kind::ninetieth)
             : kUnchanged;
}

}  // namespace

std::uint64_t seed_of(std::uint64_t seed, std::string_view name, std::uint64_t number) {
  std::uint64_t hash = 0xcbf29ce484222325ULL ^ seed;  // FNV-1a over the name, mixed below
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  SplitMix64 mix(hash);
  const std::uint64_t first = mix.next();
  return SplitMix64(first ^ (number * 0x9e3779b97f4a7c15ULL)).next();
}

Ppm Distribution::draw(SplitMix64& random) const {
  switch (kind) {
    case Kind::uniform:
      return low + static_cast<Ppm>(random.below(static_cast<std::uint64_t>(high - low) + 1));
    case Kind::triangular:
      return triangle(low, mode, high, static_cast<Ppm>(random.below(kUnchanged + 1)));
    case Kind::normal:
      break;
  }
  Ppm sum = -6 * kUnchanged;
  for (int i = 0; i < 12; ++i) sum += static_cast<Ppm>(random.below(kUnchanged + 1));
  return std::max(kSmallestFactor, kUnchanged + sum * deviation / kUnchanged);
}

Ppm Distribution::tenth_percentile(bool upper) const {
  switch (kind) {
    case Kind::uniform:
      return upper ? high - (high - low) / 10 : low + (high - low) / 10;
    case Kind::triangular:
      return triangle(low, mode, high, upper ? kUnchanged / 10 * 9 : kUnchanged / 10);
    case Kind::normal:
      break;
  }
  const Ppm offset = deviation * kNormalTenth / kUnchanged;
  return std::max(kSmallestFactor, kUnchanged + (upper ? offset : -offset));
}

std::vector<std::string> sample_names(const Uncertainty& uncertainty) {
  std::vector<std::string> names{"nominal"};
  if (uncertainty.figures.empty()) return names;
  for (std::uint32_t i = 1; i <= uncertainty.samples; ++i) names.push_back("draw-" + std::to_string(i));
  if (uncertainty.one_at_a_time) {
    for (const UncertainFigure& figure : uncertainty.figures) {
      names.push_back(figure.name + "@p10");
      names.push_back(figure.name + "@p90");
    }
  }
  return names;
}

void apply_sample(const Uncertainty& uncertainty, const std::string& name, Machine& machine) {
  const Sample sample = parse_sample(uncertainty, name);
  for (const UncertainFigure& figure : uncertainty.figures) {
    if (!figure.name.starts_with("machine.")) continue;
    const Ppm factor = factor_of(uncertainty, figure, sample, 0);
    if (factor != kUnchanged) scale_figure(machine, figure.name.substr(8), factor);
  }
}

void apply_sample(const Uncertainty& uncertainty, const std::string& name, Program& program) {
  const Sample sample = parse_sample(uncertainty, name);
  const auto scale = [](Nanos time, Ppm factor) {
    return Nanos{static_cast<std::int64_t>(static_cast<Wide>(time.value) * factor / kUnchanged)};
  };
  for (const UncertainFigure& figure : uncertainty.figures) {
    if (figure.name == "operator_time") {
      const Ppm factor = factor_of(uncertainty, figure, sample, 0);
      if (factor == kUnchanged) continue;
      for (Nanos& time : program.device_time) time = scale(time, factor);
    } else if (figure.name == "operator_time.each") {
      std::vector<Ppm> factors;  // by signature
      for (std::uint32_t op = 0; op < program.op_count(); ++op) {
        const std::size_t signature = index(program.signature[op]);
        while (factors.size() <= signature)
          factors.push_back(factor_of(uncertainty, figure, sample, factors.size() + 1));
        program.device_time[op] = scale(program.device_time[op], factors[signature]);
      }
    }
  }
}

}  // namespace swaplab
