#include "gpu_validate/calibrate/calibrate.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "gpu_validate/calibrate/calibrator.hpp"
#include "sim/machine_figures.hpp"
#include "sim/machine_io.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

std::string base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

Calibrator::Calibrator(const std::vector<Measurements>& inputs, const Machine& base,
                       const CalibrationOptions& options)
    : inputs_(inputs), base_(base), options_(options) {
  result_.machine = base;
}

Calibration Calibrator::run() {
  for (const bool pinned : {true, false})
    for (const Direction direction : {Direction::device_to_host, Direction::host_to_device})
      fit_link(direction, pinned);
  fit_duplex();
  fit_kernels_beside_copies();
  fit_host_costs();
  fit_allocation();
  fit_rates();
  fit_peers();
  list_unused();
  finish();
  return std::move(result_);
}

Found Calibrator::find(const std::string& quantity) {
  Found found;
  for (const bool published : {false, true}) {
    for (const Measurements& input : inputs_) {
      if (found || input.published.empty() == published) continue;
      SeriesList series = input.of(quantity);
      if (!series.empty()) found = {&input, std::move(series)};
    }
  }
  if (found) {
    used_.insert(quantity);
    used_inputs_.insert(found.input);
  }
  return found;
}

std::size_t Calibrator::count(const SeriesList& series) {
  std::size_t samples = 0;
  for (const MeasuredSeries* one : series) samples += one->samples.size();
  return samples;
}

std::vector<SampleGroup> Calibrator::groups(const SeriesList& series) {
  std::vector<SampleGroup> all;
  for (const MeasuredSeries* one : series) all.push_back({one->x, one->samples});
  return all;
}

std::vector<Nanos> Calibrator::pooled(const SeriesList& series) {
  std::vector<Nanos> all;
  for (const MeasuredSeries* one : series) all.insert(all.end(), one->samples.begin(), one->samples.end());
  return all;
}

const char* Calibrator::status_of(const Measurements& input) {
  return input.published.empty() ? "measured" : "published";
}

std::string Calibrator::describe(const Measurements& input, const std::string& detail) {
  if (!input.published.empty()) return input.published + ": " + detail;
  const MeasuredDevice& d = input.device;
  return "measured " + d.date + " on " + d.name + ", driver " + d.driver + ", " + d.runtime + " (" +
         base_name(input.file) + "): " + detail;
}

void Calibrator::set_source(const std::string& path, const std::string& status, const std::string& source) {
  fitted_paths_.insert(path);
  for (FigureSource& s : result_.machine.sources) {
    if (s.figure != path) continue;
    s.status = status;
    s.source = source;
    return;
  }
  result_.machine.sources.push_back({path, status, source});
}

void Calibrator::drop_source(const std::string& path) {
  std::erase_if(result_.machine.sources, [&](const FigureSource& s) { return s.figure == path; });
}

std::string Calibrator::interval_text(const FittedFigure& f, double confidence) {
  return std::to_string(std::llround(confidence * 100)) + " % interval " + std::to_string(f.low) + " to " +
         std::to_string(f.high) + " " + f.unit + ", " + std::to_string(f.samples) +
         (f.samples == 1 ? " sample" : " samples");
}

void Calibrator::figure(const Found& from, FittedFigure f, const std::string& detail) {
  f.status = status_of(*from.input);
  f.low = std::min(f.low, f.value);
  f.high = std::max(f.high, f.value);
  if (f.samples >= 8 && f.high - f.low > f.value / 5)
    result_.notes.push_back(f.path + ": uncertain, its interval spans " +
                            std::to_string((f.high - f.low) * 100 / std::max<std::int64_t>(1, f.value)) +
                            " % of it; was the machine busy?");
  set_source(f.path, f.status,
             describe(*from.input, detail + "; " + interval_text(f, options_.curves.confidence)));
  result_.figures.push_back(std::move(f));
}

void Calibrator::scalar(const Found& from, const std::string& path, const std::string& quantity,
                        const Estimate& value, std::size_t samples, const std::string& detail) {
  const MachineFigure* found = nullptr;
  for (const MachineFigure& f : machine_figures())
    if (std::string(f.section) + "." + std::string(f.key) == path) found = &f;
  if (found == nullptr) throw Error(ErrorKind::invariant, "the profile has no figure " + path);
  std::int64_t& field = found->field(result_.machine);
  FittedFigure f;
  f.path = path;
  f.unit = base_unit_suffix(found->dimension);
  f.base = field;
  f.value = rounded(value.value);
  f.low = rounded(value.low);
  f.high = rounded(value.high);
  if (found->range != Range::non_negative) f.value = std::max<std::int64_t>(1, f.value);
  if (found->range == Range::fraction && f.value > kUnchanged) {
    result_.notes.push_back(path + ": measured at " + std::to_string(f.value) + " ppm, set to 100 %");
    f.value = kUnchanged;
  }
  f.samples = samples;
  f.quantity = quantity;
  field = f.value;
  figure(from, std::move(f), detail);
}

void Calibrator::residual(const MeasuredSeries& series, Nanos model) {
  Residual r;
  r.quantity = series.quantity;
  r.x = series.x;
  r.unit = series.unit;
  r.measured = std::max(median(series.samples), Nanos{1});
  const NanosInterval i = median_interval(series.samples, options_.curves.confidence);
  r.low = i.low;
  r.high = i.high;
  r.model = model;
  r.samples = series.samples.size();
  result_.residuals.push_back(std::move(r));
}

std::string Calibrator::sizes_text(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " size" : " sizes");
}

void Calibrator::list_unused() {
  std::map<std::string, std::string> reasons;
  for (const std::string d : {"h2d", "d2h"})
    for (const std::string kernel : {"compute", "memory"})
      reasons["copy_" + d + "_beside_" + kernel] =
          "the profile slows kernels beside copies, not copies beside kernels";
  reasons["host_launch"] =
      "an eager framework's dispatch is more than a launch; --op-dispatch launch uses it";
  reasons["host_malloc_async"] = reasons["host_free_async"] =
      "the simulated allocators reserve device memory with malloc or mapping";
  reasons["copy_d2d"] = "stream_copy was measured, too";
  std::set<std::string> seen;
  for (const Measurements& input : inputs_) {
    for (const MeasuredSeries& one : input.series) {
      if (used_.contains(one.quantity) || !seen.insert(one.quantity).second) continue;
      const auto reason = reasons.find(one.quantity);
      result_.unused.push_back(
          {one.quantity, reason == reasons.end() ? "nothing measured to compare it with" : reason->second});
    }
    for (const std::string& name : input.ignored)
      if (seen.insert(name).second)
        result_.unused.push_back({name, "no figure of the profile depends on it"});
  }
}

void Calibrator::finish() {
  Machine& m = result_.machine;
  m.name = options_.name.empty() ? base_.name + "-calibrated" : options_.name;
  std::string from;
  for (const Measurements& input : inputs_) {
    if (!used_inputs_.contains(&input)) continue;
    from += (from.empty() ? "" : "; ") +
            (input.published.empty() ? input.device.name + ", " + input.device.date : input.published);
  }
  m.summary = base_.summary + "; calibrated: " + from;
  for (const FigureSource& s : base_.sources) {
    const bool kept = !fitted_paths_.contains(s.figure) &&
                      std::any_of(m.sources.begin(), m.sources.end(),
                                  [&](const FigureSource& now) { return now.figure == s.figure; });
    if (kept) result_.kept.push_back(s);
  }
  // Canonical order of the sources, and proof that the file will be accepted.
  m = parse_machine(machine_json(m), "the calibrated machine");
}

Calibration calibrate(const std::vector<Measurements>& inputs, const Machine& base,
                      const CalibrationOptions& options) {
  std::size_t series = 0;
  std::vector<Measurements> left;
  std::vector<ExcludedSamples> excluded;
  for (const Measurements& input : inputs) {
    left.push_back(plausible(input, excluded));
    series += left.back().series.size();
  }
  if (series == 0)
    throw Error(ErrorKind::input, excluded.empty() ? "nothing was measured: no input holds a series"
                                                   : "no plausible time was measured: " + excluded[0].text());
  Calibration result = Calibrator(left, base, options).run();
  result.excluded = std::move(excluded);
  return result;
}

}  // namespace swaplab
