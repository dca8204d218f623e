#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/machine_diff.hpp"
#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "gpu_validate/calibrate/calibrate.hpp"
#include "gpu_validate/calibrate/published_tables.hpp"
#include "policy/policy.hpp"
#include "sim/machine_io.hpp"
#include "sim/quantity_text.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp = R"(swaplab calibrate MEASUREMENTS... [-o MACHINE.yaml] [--base MACHINE]

Fits a machine description to what was measured on a device ('swaplab-gpu probe' writes such files): copy
times per direction from pinned and pageable memory, rates beside other work, host costs, allocation,
pinning, matrix and memory throughput. Every fitted figure is marked with date, device and driver, every
other keeps the base's value and is listed. Published tables (nvbandwidth or bandwidthTest output, a
Markdown table of bandwidths by size, an all-reduce CSV) are recognised by their content and count where
nothing was measured.

Samples that cannot be (0 ns, copies beyond 10 TB/s, more than an hour) are excluded and counted, with their
place; a series that mostly consists of them is not used.

A link becomes latency + bandwidth where that is within the tolerance at every size, else a table with the
fewest points that are. Intervals come from the raw samples; a few wild samples do not move a figure.

examples:
  swaplab-gpu probe -o node7.json && swaplab calibrate node7.json --base h100-pcie5 -o node7.yaml
  swaplab calibrate node7.json --published nvbandwidth.txt --residuals
  swaplab run --trace gpt.jsonl.gz --policy lru --machine node7.yaml
  swaplab machines diff h100-pcie5 node7.yaml

)";

constexpr Bytes kSmallCopy{1'000'000};  // sizes from here on are judged apart

std::string percent(double share, int digits = 2) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.*f %%", digits, 100 * share);
  return buffer;
}

std::string signed_percent(double share) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%+.1f %%", 100 * share);
  return buffer;
}

double fraction_option(const po::variables_map& values, const char* name, Ppm low, Ppm high) {
  Ppm ppm = 0;
  const std::string problem = parse_fraction(values[name].as<std::string>(), low, high, ppm);
  if (!problem.empty()) throw Error(ErrorKind::usage, std::string("--") + name + ": " + problem);
  return static_cast<double>(ppm) / 1e6;
}

CalibrationOptions options_of(const po::variables_map& values) {
  CalibrationOptions options;
  options.curves.tolerance = fraction_option(values, "tolerance", 0, 500'000);
  options.curves.confidence = fraction_option(values, "confidence", 500'000, 999'900);
  options.seed = values["seed"].as<std::uint64_t>();
  if (values.count("name") != 0) options.name = values["name"].as<std::string>();
  const std::string form = values["form"].as<std::string>();
  std::vector<std::string> forms;
  bool known = false;
  for (const CurveForm one : {CurveForm::automatic, CurveForm::line, CurveForm::table}) {
    forms.emplace_back(curve_form_name(one));
    if (form != forms.back()) continue;
    options.curves.form = one;
    known = true;
  }
  if (!known)
    throw Error(ErrorKind::usage,
                "--form: '" + form + "' is none of auto, line, table" + did_you_mean(form, forms));
  const std::string dispatch = values["op-dispatch"].as<std::string>();
  const std::vector<std::string> choices{"keep", "launch"};
  if (std::find(choices.begin(), choices.end(), dispatch) == choices.end())
    throw Error(ErrorKind::usage, "--op-dispatch: '" + dispatch + "' is neither keep nor launch" +
                                      did_you_mean(dispatch, choices));
  options.dispatch_is_launch = dispatch == "launch";
  return options;
}

std::string input_text(const Measurements& m) {
  if (!m.published.empty()) return m.file + ": " + m.published;
  std::size_t samples = 0;
  for (const MeasuredSeries& one : m.series) samples += one.samples.size();
  return m.file + ": " + m.device.name + ", driver " + m.device.driver + ", " + m.device.runtime + ", " +
         m.device.date + "; " + std::to_string(m.series.size()) + " series, " + std::to_string(samples) +
         " samples";
}

// ---- text

void print_figures(const Calibration& c, double confidence) {
  TextTable table(
      {"figure", "base", "fitted", percent(confidence, 0) + " interval", "change", "samples", "is"}, 1);
  for (const FittedFigure& f : c.figures) {
    const double change = f.base == 0 ? 0 : static_cast<double>(f.value) / static_cast<double>(f.base) - 1;
    table.add({f.path, human_figure(f.base, f.unit), human_figure(f.value, f.unit),
               human_figure(f.low, f.unit) + " to " + human_figure(f.high, f.unit),
               f.base == 0 ? "-" : signed_percent(change), std::to_string(f.samples), f.status});
  }
  if (!c.figures.empty()) std::cout << table.text() << '\n';
}

// "copy_p2p_3_5" and the like are many: one row for all of them.
std::string curve_group(const FittedCurve& curve) {
  return curve.quantity.starts_with("copy_p2p_") ? "copy_p2p (pairs)" : curve.quantity;
}

void print_curves(const Calibration& c) {
  struct Row {
    std::size_t curves = 0, sizes = 0, points = 0;
    bool line = true;
    double largest = 0, small = 0, large = 0;
    std::size_t smalls = 0, larges = 0;
  };
  std::vector<std::pair<std::string, Row>> rows;
  for (const FittedCurve& curve : c.curves) {
    const std::string group = curve_group(curve);
    if (rows.empty() || rows.back().first != group) rows.emplace_back(group, Row{});
    Row& row = rows.back().second;
    ++row.curves;
    row.sizes += curve.fit.points.size();
    row.points += curve.fit.table.points().size();
    row.line &= curve.fit.line;
    row.largest = std::max(row.largest, curve.fit.largest_error());
    for (const CurvePoint& p : curve.fit.points) {
      const double error = std::fabs(curve.fit.error_at(p));
      (p.bytes < kSmallCopy ? row.small : row.large) += error;
      ++(p.bytes < kSmallCopy ? row.smalls : row.larges);
    }
  }
  TextTable table({"curve", "sizes", "form", "largest error", "mean below 1 MB", "mean from 1 MB"}, 1);
  const auto mean = [](double sum, std::size_t count) {
    return count == 0 ? std::string("-") : percent(sum / static_cast<double>(count));
  };
  for (const auto& [name, row] : rows)
    table.add({name, std::to_string(row.sizes),
               row.line ? std::string("latency + bandwidth") : "table of " + std::to_string(row.points),
               percent(row.largest), mean(row.small, row.smalls), mean(row.large, row.larges)});
  if (!rows.empty()) std::cout << table.text() << '\n';
}

void print_residuals(const Calibration& c, bool all) {
  std::vector<const Residual*> shown;
  for (const Residual& r : c.residuals) shown.push_back(&r);
  constexpr std::size_t kWorst = 5;
  if (!all && shown.size() > kWorst) {
    std::stable_sort(shown.begin(), shown.end(), [](const Residual* a, const Residual* b) {
      return std::fabs(a->error()) > std::fabs(b->error());
    });
    shown.resize(kWorst);
  }
  if (shown.empty()) return;
  std::cout << (all ? "every residual\n" : "largest residuals (--residuals for all)\n");
  TextTable table({"quantity", "x", "measured", "interval", "model", "error", "samples"}, 1);
  for (const Residual* r : shown) {
    const std::string x = r->unit == XUnit::bytes ? human_bytes(Bytes{r->x})
                          : r->unit == XUnit::call
                              ? "call"
                              : std::to_string(r->x) + " " + std::string(x_unit_name(r->unit));
    table.add({r->quantity, x, human_figure(r->measured.value, "ns"),
               human_figure(r->low.value, "ns") + " to " + human_figure(r->high.value, "ns"),
               human_figure(r->model.value, "ns"), signed_percent(r->error()), std::to_string(r->samples)});
  }
  std::cout << table.text() << '\n';
}

void print_lists(const Calibration& c) {
  if (!c.kept.empty()) {
    std::cout << "not measured, kept from the base (" << c.kept.size() << "):";
    const char* separator = " ";
    for (const FigureSource& s : c.kept) {
      std::cout << separator << s.figure << " (" << s.status << ")";
      separator = ", ";
    }
    std::cout << '\n';
  }
  for (const UnusedQuantity& u : c.unused)
    std::cout << "not used: " << u.quantity << ": " << u.reason << '\n';
  for (const ExcludedSamples& e : c.excluded) std::cout << "excluded: " << e.text() << '\n';
  for (const std::string& note : c.notes) std::cout << "note: " << note << '\n';
}

// ---- JSON

Json curve_json(const FittedCurve& curve) {
  Json j;
  j["quantity"] = curve.quantity;
  j["figure"] = curve.figure.empty() ? Json(nullptr) : Json(curve.figure);
  j["form"] = curve.fit.line ? "line" : "table";
  j["samples"] = curve.fit.samples;
  j["rejected_samples"] = curve.fit.rejected;
  j["bandwidth_bytes_per_s"] = curve.fit.table.bytes_per_second();
  j["points"] = Json::array();
  for (const TransferPoint& p : curve.fit.table.points())
    j["points"].push_back({{"size_bytes", p.bytes.value}, {"time_ns", p.time.value}});
  j["largest_error"] = curve.fit.largest_error();
  const auto small = curve.fit.mean_error(Bytes{0}, kSmallCopy);
  const auto large = curve.fit.mean_error(kSmallCopy, Bytes{kUnlimitedBytes});
  j["mean_error_below_1MB"] = small ? Json(*small) : Json(nullptr);
  j["mean_error_from_1MB"] = large ? Json(*large) : Json(nullptr);
  return j;
}

Json calibration_json(const Calibration& c, const Machine& base, const std::vector<Measurements>& inputs) {
  Json j;
  j["schema"] = "swaplab/calibration@1";
  j["base"] = base.name;
  j["machine"] = Json::parse(machine_json(c.machine));
  j["inputs"] = Json::array();
  for (const Measurements& m : inputs) j["inputs"].push_back(input_text(m));
  j["figures"] = Json::array();
  for (const FittedFigure& f : c.figures)
    j["figures"].push_back({{"figure", f.path},
                            {"unit", f.unit},
                            {"base", f.base},
                            {"value", f.value},
                            {"low", f.low},
                            {"high", f.high},
                            {"samples", f.samples},
                            {"quantity", f.quantity},
                            {"status", f.status}});
  j["curves"] = Json::array();
  for (const FittedCurve& curve : c.curves) j["curves"].push_back(curve_json(curve));
  j["residuals"] = Json::array();
  for (const Residual& r : c.residuals)
    j["residuals"].push_back({{"quantity", r.quantity},
                              {"x", r.x},
                              {"x_unit", std::string(x_unit_name(r.unit))},
                              {"measured_ns", r.measured.value},
                              {"low_ns", r.low.value},
                              {"high_ns", r.high.value},
                              {"model_ns", r.model.value},
                              {"error", r.error()},
                              {"samples", r.samples}});
  j["kept"] = Json::array();
  for (const FigureSource& s : c.kept) j["kept"].push_back({{"figure", s.figure}, {"status", s.status}});
  j["unused"] = Json::array();
  for (const UnusedQuantity& u : c.unused)
    j["unused"].push_back({{"quantity", u.quantity}, {"reason", u.reason}});
  j["excluded"] = Json::array();
  for (const ExcludedSamples& e : c.excluded)
    j["excluded"].push_back({{"file", e.file},
                             {"line", e.line},
                             {"quantity", e.quantity},
                             {"x", e.x},
                             {"x_unit", std::string(x_unit_name(e.unit))},
                             {"excluded_samples", e.excluded},
                             {"samples", e.of},
                             {"whole_series", e.whole_series},
                             {"expected", e.expected}});
  j["notes"] = c.notes;
  return j;
}

// ---- the file

std::string machine_text(const std::string& path, const Calibration& c, const Machine& base,
                         const std::vector<Measurements>& inputs) {
  if (path.ends_with(".json")) return machine_json(c.machine);
  if (!path.ends_with(".yaml") && !path.ends_with(".yml"))
    throw Error(ErrorKind::usage, "-o " + path + ": expected a name that ends in .yaml, .yml or .json");
  std::string heading = "Written by swaplab calibrate, base " + base.name + ".\n";
  for (const Measurements& m : inputs) {
    const std::string text = input_text(m);
    const std::size_t folder =
        text.find(": ") == std::string::npos ? 0 : text.rfind('/', text.find(": ")) + 1;
    heading += text.substr(folder) + "\n";
  }
  return machine_yaml(c.machine, heading);
}

}  // namespace

int calibrate_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("output,o", po::value<std::string>(),
                                               "machine file to write: .yaml, .yml or .json")(
      "base", po::value<std::string>()->default_value("h100-pcie5"),
      "machine whose figures stay where nothing was measured")(
      "published", po::value<std::vector<std::string>>()->composing(),
      "published table to use where nothing was measured (may be repeated)")(
      "name", po::value<std::string>(), "name of the machine (default: the base's with -calibrated)")(
      "tolerance", po::value<std::string>()->default_value("1%"),
      "largest error of a curve at a measured size")(
      "confidence", po::value<std::string>()->default_value("95%"), "of the intervals")(
      "form", po::value<std::string>()->default_value("auto"), "of links: auto, line or table")(
      "op-dispatch", po::value<std::string>()->default_value("keep"),
      "keep the base's, or launch: what a kernel launch was measured to take")(
      "seed", po::value<std::uint64_t>()->default_value(1), "of the bootstrap")(
      "residuals", "every residual instead of the largest")("json", "JSON instead of text")(
      "measurements", po::value<std::vector<std::string>>(), "measurement files (positional)");
  const po::variables_map values = parse_options(arguments, options, "measurements");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  std::vector<std::string> files;
  for (const char* option : {"measurements", "published"})
    if (values.count(option) != 0)
      for (const std::string& file : values[option].as<std::vector<std::string>>()) files.push_back(file);
  if (files.empty()) throw Error(ErrorKind::usage, "swaplab calibrate needs a measurement file");
  if (values.count("output") != 0) check_output(values["output"].as<std::string>(), files);
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      std::error_code code;
      if (std::filesystem::equivalent(files[i], files[k], code) && !code)
        throw Error(ErrorKind::usage, files[i] + ": is given twice; its samples would count twice");
    }
  }
  const CalibrationOptions how = options_of(values);
  const Machine base = load_machine(values["base"].as<std::string>());
  std::vector<Measurements> inputs;
  inputs.reserve(files.size());
  for (const std::string& file : files) inputs.push_back(read_calibration_data(file));
  const Calibration c = calibrate(inputs, base, how);
  const bool json = values.count("json") != 0;
  if (values.count("output") != 0) {
    const std::string path = values["output"].as<std::string>();
    write_file_atomically(path, machine_text(path, c, base, inputs));
  }
  if (json) {
    std::cout << calibration_json(c, base, inputs).dump(1, ' ', false, Json::error_handler_t::replace)
              << '\n';
    return kExitOk;
  }
  for (const Measurements& m : inputs) std::cout << input_text(m) << '\n';
  std::cout << "base " << base.name << ": " << base.summary << "\n\n";
  print_figures(c, how.curves.confidence);
  print_curves(c);
  print_residuals(c, values.count("residuals") != 0);
  print_lists(c);
  if (values.count("output") != 0)
    std::cout << "wrote " << values["output"].as<std::string>() << ": machine " << c.machine.name << '\n';
  return kExitOk;
}

}  // namespace swaplab
