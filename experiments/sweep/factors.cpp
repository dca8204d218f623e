#include "experiments/sweep/factors.hpp"

#include <algorithm>
#include <cmath>

#include "experiments/prepared_runs.hpp"
#include "experiments/sweep/machine_override.hpp"
#include "experiments/sweep/trace_source.hpp"
#include "policy/registry.hpp"
#include "sim/machine_io.hpp"
#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

// Turns the library's errors into errors at a place of the file.
template <class Work>
auto at_place(const ConfigPlace& place, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::usage) place.fail(error.what());
    throw;
  }
}

std::string read_policy(const ConfigPlace& place) {
  std::string text;
  if (place.node().kind == ConfigNode::Kind::map) {
    text = place.key("name").text();
    for (const auto& [key, value] : place.entries()) {
      if (key == "name") continue;
      text += (text.find(':') == std::string::npos ? ":" : ",") + key + "=" + value.text();
    }
  } else {
    text = place.text();
  }
  return at_place(place, [&] {
    const std::vector<PolicySpec> specs = parse_policies(text);
    if (specs.size() != 1)
      throw Error(ErrorKind::usage, "'" + text + "' names " + std::to_string(specs.size()) +
                                        " policies; give each as a value of its own");
    return policy_label(specs[0]);
  });
}

std::string read_budget(const ConfigPlace& place) {
  const std::string& text = place.text();
  return at_place(place, [&] {
    if (parse_budgets(text).size() != 1)
      throw Error(ErrorKind::usage, "'" + text + "' names several budgets; give each as a value of its own");
    return text;
  });
}

std::string read_machine(const ConfigPlace& place) {
  const std::string& text = place.text();
  at_place(place, [&] { return load_machine(text).name; });
  return text;
}

std::string read_choice(const ConfigPlace& place, const std::vector<std::string>& choices) {
  const std::string& text = place.text();
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    std::string list;
    for (const std::string& choice : choices) list += (list.empty() ? "" : ", ") + choice;
    place.fail("'" + text + "' is none of " + list + did_you_mean(text, choices));
  }
  return text;
}

std::string read_iterations(const ConfigPlace& place) {
  if (place.text() == "recorded") return "recorded";
  return std::to_string(place.integer(1, 1'000'000));
}

std::string read_alloc_conf(const ConfigPlace& place) {
  const std::string& text = place.text();
  return at_place(place, [&] {
    if (text.starts_with("stitching:")) {
      parse_stitching_conf(text.substr(text.find(':') + 1));
    } else {
      require_supported(parse_alloc_conf(text));
    }
    return text;
  });
}

FactorKind figure_kind(const OverridableFigure& figure) {
  FactorKind kind;
  kind.name = "machine." + figure.path;
  kind.summary = "the machine's " + figure.path + ": an amount with its unit, or a factor such as 1.5x";
  kind.example = figure.dimension == Dimension::share ? "90%" : "1.5x";
  kind.fallback = "1x";
  kind.range = RangeKind::figure;
  kind.read = [figure](const ConfigPlace& place) {
    const std::string& text = place.text();
    const std::string problem = check_figure_text(figure, text);
    if (!problem.empty()) place.fail("'" + text + "': " + problem);
    return text;
  };
  return kind;
}

// A number of the range: its integer, and how to write one of its kind.
struct RangeValue {
  std::int64_t value;
  std::function<std::string(std::int64_t)> text;
  std::string unit;
};

RangeValue range_value(const ConfigPlace& place, const FactorKind& kind) {
  const std::string text = kind.read(place);
  const auto factor_text = [](std::int64_t ppm) { return format_fraction(ppm) + "x"; };
  if (kind.range == RangeKind::integer) {
    if (text == "recorded") place.fail("a range needs numbers");
    return {std::stoll(text), [](std::int64_t v) { return std::to_string(v); }, "integer"};
  }
  if (text.ends_with('x')) {
    Ppm ppm = 0;
    const std::string problem = parse_fraction(text.substr(0, text.size() - 1), 1, 1000 * kUnchanged, ppm);
    if (!problem.empty()) place.fail(problem);
    return {ppm, factor_text, "factor"};
  }
  if (kind.range == RangeKind::budget) {
    const Bytes bytes = parse_budgets(text)[0].absolute;
    if (bytes >= kUnlimitedBudget) place.fail("a range cannot end in inf");
    return {bytes.value, [](std::int64_t v) { return format_bytes_exact(Bytes{v}); }, "amount"};
  }
  const Dimension dimension = find_figure(std::string_view(kind.name).substr(8)).dimension;
  return {parse_quantity(text, dimension).value,
          [dimension](std::int64_t v) { return figure_text(v, dimension); }, "amount"};
}

}  // namespace

const std::vector<FactorKind>& factor_kinds() {
  static const std::vector<FactorKind> kinds = {
      {"trace", "a recording" + trace_source_summary(), "configs/traces/gpt_small.jsonl.gz", "",
       RangeKind::none, true,
       [](const ConfigPlace& place) { return at_place(place, [&] { return read_trace_source(place); }); }},
      {"machine", "name or file of a machine description", "h100-pcie5", "h100-pcie5", RangeKind::none, false,
       read_machine},
      {"iterations", "length to which the recording is continued", "10", "recorded", RangeKind::integer,
       false, read_iterations},
      {"times", "device times: trace, model, or auto (trace for GPU recordings, else model)", "auto", "auto",
       RangeKind::none, false,
       [](const ConfigPlace& place) {
         return read_choice(place, {"auto", "trace", "model"});
       }},
      {"allocator", "caching (PyTorch's rules), stitching (GMLake's) or ideal (counts bytes)", "caching",
       "caching", RangeKind::none, false,
       [](const ConfigPlace& place) {
         return read_choice(place, {"caching", "stitching", "ideal"});
       }},
      {"alloc_conf",
       "PYTORCH_CUDA_ALLOC_CONF of the caching allocator, 'stitching:KEY:VALUE,...' of the stitching one; "
       "'default' for none",
       "expandable_segments:True", "default", RangeKind::none, false,
       [](const ConfigPlace& place) {
         return place.text() == "default" ? std::string("default") : read_alloc_conf(place);
       }},
      {"seed", "seed of what is random in a run: synthetic and perturbed traces", "1", "1",
       RangeKind::integer, false,
       [](const ConfigPlace& place) { return std::to_string(place.integer(0, 1'000'000'000)); }},
      {"budget", "device memory: a share of the trace's own peak, bytes with a unit, or inf", "0.6x", "0.6x",
       RangeKind::budget, false, read_budget},
      {"policy", "NAME, NAME:param=value,... or {name: NAME, param: value}", "lru", "", RangeKind::none,
       false, read_policy},
  };
  return kinds;
}

FactorKind factor_kind(std::string_view name) {
  std::vector<std::string> names;
  for (const FactorKind& kind : factor_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  if (name.starts_with("machine.")) return figure_kind(find_figure(name.substr(8)));
  for (const OverridableFigure& figure : overridable_figures()) names.push_back("machine." + figure.path);
  throw Error(ErrorKind::usage,
              "nothing in a run is called '" + std::string(name) + "'" + did_you_mean(name, names));
}

std::size_t factor_order(std::string_view name) {
  const auto& kinds = factor_kinds();
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].name == name) return i * 1000;
  }
  if (name == "sample") return factor_order("seed") + 1;
  std::size_t order = factor_order("machine") + 1;
  for (const OverridableFigure& figure : overridable_figures()) {
    if (name == "machine." + figure.path) return order;
    ++order;
  }
  throw Error(ErrorKind::invariant, "factor '" + std::string(name) + "' has no place in the order");
}

std::vector<std::string> read_range(const ConfigPlace& place, const FactorKind& kind,
                                    long long default_points) {
  if (kind.range == RangeKind::none) place.fail("'" + kind.name + "' has no range; list its values");
  place.allow_only({"start", "stop", "points", "scale"});
  const RangeValue start = range_value(place.key("start"), kind);
  const RangeValue stop = range_value(place.key("stop"), kind);
  if (start.unit != stop.unit) place.fail("start and stop must both be factors or both be amounts");
  if (stop.value < start.value) place.fail("stop is below start");
  long long points = default_points;
  if (place.has("points")) points = place.key("points").integer(1, 100'000);
  if (points == 0) place.fail("missing key 'points'");
  std::string scale = "linear";
  if (place.has("scale")) scale = read_choice(place.key("scale"), {"linear", "log"});
  if (scale == "log" && start.value == 0) place.fail("a logarithmic range cannot start at 0");
  std::vector<std::string> values;
  for (long long i = 0; i < points; ++i) {
    std::int64_t value = start.value;
    if (i > 0 && i + 1 == points) {
      value = stop.value;
    } else if (i > 0 && scale == "linear") {
      value = start.value +
              static_cast<std::int64_t>(static_cast<Wide>(stop.value - start.value) * i / (points - 1));
    } else if (i > 0) {
      // Rounded to four digits, so that the last bit of a mathematical library cannot show.
      const double ratio = static_cast<double>(stop.value) / static_cast<double>(start.value);
      const double exact = static_cast<double>(start.value) *
                           std::pow(ratio, static_cast<double>(i) / static_cast<double>(points - 1));
      const double unit = std::pow(10.0, std::max(0.0, std::floor(std::log10(exact)) - 3.0));
      value = static_cast<std::int64_t>(std::llround(exact / unit) * std::llround(unit));
    }
    std::string text = start.text(value);
    if (std::find(values.begin(), values.end(), text) == values.end()) values.push_back(std::move(text));
  }
  return values;
}

}  // namespace swaplab
