// The sweep file, read and checked.
#include "experiments/sweep/sweep_config.hpp"

#include <glob.h>

#include <algorithm>

#include "experiments/prepared_runs.hpp"
#include "experiments/sweep/factors.hpp"
#include "experiments/sweep/machine_override.hpp"
#include "experiments/sweep/metrics_table.hpp"
#include "experiments/sweep/sweep_keys.hpp"
#include "experiments/sweep/trace_source.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

void fail_usage_at(const ConfigPlace& place, const Error& error) {
  if (error.kind() == ErrorKind::usage) place.fail(error.what());
  throw error;
}

std::vector<std::string> expand_glob(const ConfigPlace& place) {
  const std::string& pattern = place.text();
  glob_t found{};
  const int code = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> paths;
  if (code == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (paths.empty()) place.fail("no file matches '" + pattern + "'");
  std::sort(paths.begin(), paths.end());
  return paths;
}

void add_value(std::vector<std::string>& values, const std::string& text, const ConfigPlace& place) {
  if (std::find(values.begin(), values.end(), text) != values.end())
    place.fail("'" + text + "' is listed twice");
  values.push_back(text);
}

// A scalar, a policy mapping, {values: [...]}, {glob: ...} or {range: {...}}.
std::vector<std::string> read_values(const ConfigPlace& place, const FactorKind& kind, SweepMethod method) {
  std::vector<std::string> values;
  const bool map = place.node().kind == ConfigNode::Kind::map;
  if (place.node().kind == ConfigNode::Kind::list) {
    place.fail("a bare list is ambiguous; write {values: [...]}");
  }
  if (!map || place.has("name") || place.has("file") || place.has("synth")) {
    values.push_back(kind.read(place));
    return values;
  }
  std::vector<std::string> known{"values"};
  if (kind.globs) known.emplace_back("glob");
  if (kind.range != RangeKind::none) known.emplace_back("range");
  place.allow_only(known);
  if (place.node().keys.empty()) place.fail("expected one of values, glob or range");
  if (place.has("values")) {
    for (const ConfigPlace& item : place.key("values").items()) add_value(values, kind.read(item), item);
  }
  if (place.has("glob")) {
    const ConfigPlace glob = place.key("glob");
    const std::vector<ConfigPlace> patterns =
        glob.node().kind == ConfigNode::Kind::list ? glob.items() : std::vector<ConfigPlace>{glob};
    for (const ConfigPlace& pattern : patterns) {
      for (const std::string& path : expand_glob(pattern)) add_value(values, path, pattern);
    }
  }
  if (place.has("range")) {
    const ConfigPlace range = place.key("range");
    for (const std::string& text : read_range(range, kind, method == SweepMethod::random ? 1001 : 0))
      add_value(values, text, range);
  }
  return values;
}

void read_parameters(const ConfigPlace& place, SweepConfig& config) {
  for (const auto& [name, value] : place.entries()) {
    try {
      const FactorKind kind = factor_kind(name);
      config.parameters.push_back({name, read_values(value, kind, config.method)});
    } catch (const Error& error) {
      fail_usage_at(value, error);
    }
  }
}

void fill_defaults(const ConfigPlace& top, SweepConfig& config) {
  const auto has = [&](const std::string& name) {
    return std::any_of(config.parameters.begin(), config.parameters.end(),
                       [&](const SweepParameter& p) { return p.name == name; });
  };
  for (const FactorKind& kind : factor_kinds()) {
    if (has(kind.name)) continue;
    if (!kind.fallback.empty()) {
      config.parameters.push_back({kind.name, {kind.fallback}});
      continue;
    }
    const bool everywhere =
        !config.list.empty() && std::all_of(config.list.begin(), config.list.end(), [&](const Factors& run) {
          return std::any_of(run.begin(), run.end(), [&](const auto& f) { return f.first == kind.name; });
        });
    if (!everywhere) top.fail("parameters: missing '" + kind.name + "': " + kind.summary);
  }
  config.parameters.push_back({"sample", sample_names(config.uncertainty)});
  std::stable_sort(config.parameters.begin(), config.parameters.end(),
                   [](const SweepParameter& a, const SweepParameter& b) {
                     return factor_order(a.name) < factor_order(b.name);
                   });
}

void read_list(const ConfigPlace& runs, SweepConfig& config) {
  for (const ConfigPlace& item : runs.items()) {
    Factors factors;
    for (const auto& [name, value] : item.entries()) {
      try {
        factors.emplace_back(name, factor_kind(name).read(value));
      } catch (const Error& error) {
        fail_usage_at(value, error);
      }
    }
    config.list.push_back(std::move(factors));
  }
}

void read_exclude(const ConfigPlace& place, SweepConfig& config) {
  for (const ConfigPlace& item : place.items()) {
    std::vector<std::pair<std::string, std::vector<std::string>>> rule;
    for (const auto& [name, value] : item.entries()) {
      try {
        const FactorKind kind = factor_kind(name);
        std::vector<std::string> texts;
        if (value.node().kind == ConfigNode::Kind::list) {
          for (const ConfigPlace& one : value.items()) texts.push_back(kind.read(one));
        } else {
          texts.push_back(kind.read(value));
        }
        rule.emplace_back(name, std::move(texts));
      } catch (const Error& error) {
        fail_usage_at(value, error);
      }
    }
    if (rule.empty()) item.fail("an empty exclusion would leave nothing");
    config.exclude.push_back(std::move(rule));
    config.exclude_lines.push_back(item.node().line);
  }
}

Ppm factor_at(const ConfigPlace& place) {
  const std::string& text = place.text();
  Ppm value = 0;
  if (text.size() < 2 || text.back() != 'x') place.fail("'" + text + "': expected a factor such as 0.95x");
  const std::string problem = parse_fraction(text.substr(0, text.size() - 1), 0, 1000 * kUnchanged, value);
  if (!problem.empty()) place.fail("'" + text + "': " + problem);
  return value;
}

Distribution read_distribution(const ConfigPlace& place) {
  Distribution d;
  const std::string& kind = place.key("distribution").text();
  if (kind == "uniform" || kind == "triangular") {
    d.kind = kind == "uniform" ? Distribution::Kind::uniform : Distribution::Kind::triangular;
    if (kind == "uniform") {
      place.allow_only({"distribution", "low", "high"});
    } else {
      place.allow_only({"distribution", "low", "mode", "high"});
      d.mode = factor_at(place.key("mode"));
    }
    d.low = factor_at(place.key("low"));
    d.high = factor_at(place.key("high"));
    if (d.low <= 0 || d.high < d.low) place.fail("expected 0x < low <= high");
    if (kind == "triangular" && (d.mode < d.low || d.mode > d.high))
      place.fail("expected low <= mode <= high");
  } else if (kind == "normal") {
    d.kind = Distribution::Kind::normal;
    place.allow_only({"distribution", "deviation"});
    d.deviation = factor_at(place.key("deviation"));
    if (d.deviation > kUnchanged / 2) place.fail("a deviation above 0.5x would reach below zero");
  } else {
    const std::vector<std::string> kinds{"uniform", "normal", "triangular"};
    place.fail("unknown distribution '" + kind + "'" + did_you_mean(kind, kinds) +
               "; expected uniform, normal or triangular");
  }
  return d;
}

void read_uncertainty(const ConfigPlace& place, SweepConfig& config) {
  place.allow_only({"samples", "seed", "one_at_a_time", "figures"});
  Uncertainty& u = config.uncertainty;
  if (place.has("samples")) u.samples = static_cast<std::uint32_t>(place.key("samples").integer(0, 100'000));
  if (place.has("seed"))
    u.seed = static_cast<std::uint64_t>(place.key("seed").integer(0, std::int64_t{1} << 62));
  if (place.has("one_at_a_time")) u.one_at_a_time = place.key("one_at_a_time").flag();
  for (const auto& [name, value] : place.key("figures").entries()) {
    if (name != "operator_time" && name != "operator_time.each") {
      if (!name.starts_with("machine."))
        value.fail("expected machine.<figure>, operator_time or operator_time.each");
      try {
        find_figure(name.substr(8));
      } catch (const Error& error) {
        fail_usage_at(value, error);
      }
    }
    u.figures.push_back({name, read_distribution(value)});
  }
  if (u.samples == 0 && !u.one_at_a_time) place.fail("asks for nothing: set samples, or one_at_a_time: yes");
}

void check_name(const ConfigPlace& place) {
  const std::string& name = place.text();
  if (name.empty() || name.size() > 64 ||
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") !=
          std::string::npos)
    place.fail("'" + name + "': expected 1 to 64 letters, digits, - or _");
}

}  // namespace

std::string_view method_name(SweepMethod method) {
  return kSweepMethods[static_cast<std::size_t>(method)];
}

bool policy_matches(const std::string& wanted, const std::string& factor) {
  return wanted == factor || (wanted.find(':') == std::string::npos && factor.starts_with(wanted + ":"));
}

SweepConfig parse_sweep_config(const ConfigNode& root, const std::string& file) {
  const ConfigPlace top(file, root);
  SweepConfig config;
  config.file = file;
  const std::string& schema = top.key("schema").text();
  if (schema != kSweepSchema)
    top.key("schema").fail("'" + schema + "' is not supported; expected " + kSweepSchema);
  std::vector<std::string> known;
  for (const SweepKey& key : kSweepKeys) known.emplace_back(key.name);
  top.allow_only(known);
  check_name(top.key("name"));
  config.name = top.key("name").text();
  if (top.has("description")) config.description = top.key("description").text();
  if (top.has("method")) {
    const std::string& method = top.key("method").text();
    const auto found = std::find(std::begin(kSweepMethods), std::end(kSweepMethods), method);
    if (found == std::end(kSweepMethods)) {
      const std::vector<std::string> methods(std::begin(kSweepMethods), std::end(kSweepMethods));
      top.key("method").fail("'" + method + "' is none of grid, random, list, zip" +
                             did_you_mean(method, methods));
    }
    config.method = static_cast<SweepMethod>(found - std::begin(kSweepMethods));
  }
  if (top.has("run_cap")) config.run_cap = top.key("run_cap").integer(1, 100'000'000);
  if (top.has("samples")) config.samples = top.key("samples").integer(1, 100'000'000);
  if (top.has("sampling_seed"))
    config.sampling_seed =
        static_cast<std::uint64_t>(top.key("sampling_seed").integer(0, std::int64_t{1} << 62));
  if (top.has("bounds")) config.bounds = top.key("bounds").flag();
  if (top.has("schedules")) config.schedules = top.key("schedules").flag();
  if (top.has("uncertainty") && !top.key("uncertainty").entries().empty())
    read_uncertainty(top.key("uncertainty"), config);
  if (config.method != SweepMethod::list && top.has("runs") && !top.key("runs").node().items.empty())
    top.key("runs").fail("only method list has runs");
  if (config.method == SweepMethod::list) read_list(top.key("runs"), config);
  if (top.has("parameters")) read_parameters(top.key("parameters"), config);
  fill_defaults(top, config);
  if (config.method == SweepMethod::zip) {
    std::size_t length = 1;
    std::string longest;
    for (const SweepParameter& p : config.parameters) {
      if (p.values.size() == 1 || p.name == "sample") continue;
      if (length > 1 && p.values.size() != length)
        top.fail("method zip: '" + longest + "' has " + std::to_string(length) + " values, '" + p.name +
                 "' has " + std::to_string(p.values.size()));
      length = p.values.size();
      longest = p.name;
    }
  }
  if (config.method == SweepMethod::list) {
    for (const SweepParameter& p : config.parameters) {
      if (p.values.size() > 1 && p.name != "sample")
        top.fail("method list: parameter '" + p.name + "' has several values; vary it in runs");
    }
  }
  if (top.has("exclude") && !top.key("exclude").node().items.empty())
    read_exclude(top.key("exclude"), config);
  if (top.has("metric")) {
    config.metric = top.key("metric").text();
    const auto names = result_metric_names();
    if (std::find(names.begin(), names.end(), config.metric) == names.end())
      top.key("metric").fail("unknown metric '" + config.metric + "'" + did_you_mean(config.metric, names));
  }
  if (top.has("threshold")) {
    const std::string problem =
        parse_fraction(top.key("threshold").text(), 0, kUnchanged, config.threshold_ppm);
    if (!problem.empty()) top.key("threshold").fail("'" + top.key("threshold").text() + "': " + problem);
  }
  if (top.has("baseline") && !top.key("baseline").text().empty()) {
    const std::string& wanted = top.key("baseline").text();
    std::vector<std::string> policies;
    for (const SweepParameter& p : config.parameters) {
      if (p.name == "policy") policies = p.values;
    }
    for (const Factors& run : config.list) {
      for (const auto& [name, value] : run) {
        if (name == "policy") policies.push_back(value);
      }
    }
    for (const std::string& policy : policies) {
      if (config.baseline.empty() && policy_matches(wanted, policy)) config.baseline = policy;
    }
    if (config.baseline.empty())
      top.key("baseline")
          .fail("'" + wanted + "' is no policy of this sweep" + did_you_mean(wanted, policies));
  }
  if (top.has("limits")) {
    const ConfigPlace limits = top.key("limits");
    limits.allow_only({"time", "memory"});
    if (limits.has("time")) {
      const ParsedQuantity q = parse_quantity(limits.key("time").text(), Dimension::duration);
      if (!q.problem.empty() || q.value == 0)
        limits.key("time").fail(q.problem.empty() ? "must be above 0" : q.problem);
      config.time_limit = Nanos{q.value};
    }
    if (limits.has("memory")) {
      const ParsedQuantity q = parse_quantity(limits.key("memory").text(), Dimension::size);
      if (!q.problem.empty() || q.value == 0)
        limits.key("memory").fail(q.problem.empty() ? "must be above 0" : q.problem);
      config.memory_limit = Bytes{q.value};
    }
  }
  // A deterministic run repeated says nothing new.
  for (const SweepParameter& p : config.parameters) {
    if (p.name != "seed" || p.values.size() < 2) continue;
    bool used = false;
    for (const SweepParameter& q : config.parameters) {
      for (const std::string& value : q.values) used |= q.name == "trace" && trace_source_uses_seed(value);
    }
    if (!used)
      top.key("parameters")
          .key("seed")
          .fail(
              "nothing in these runs is random (no synthetic or perturbed trace), so seeds would only repeat "
              "them");
  }
  return config;
}

SweepConfig load_sweep_config(const std::string& path, const std::vector<std::string>& overrides) {
  ConfigNode root = load_config_file(path);
  for (const std::string& assignment : overrides) apply_config_override(root, assignment);
  return parse_sweep_config(root, path);
}

}  // namespace swaplab
