// The sweep file, written: every default filled in, and its JSON Schema.
#include <nlohmann/json.hpp>

#include "experiments/sweep/factors.hpp"
#include "experiments/sweep/machine_override.hpp"
#include "experiments/sweep/metrics_table.hpp"
#include "experiments/sweep/sweep_config.hpp"
#include "experiments/sweep/sweep_keys.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string resolved_config_json(const SweepConfig& config) {
  Json j;
  j["schema"] = kSweepSchema;
  j["name"] = config.name;
  j["description"] = config.description;
  j["method"] = method_name(config.method);
  j["run_cap"] = config.run_cap;
  for (const SweepParameter& p : config.parameters) {
    if (p.name == "sample") continue;  // follows from `uncertainty`
    j["parameters"][p.name]["values"] = p.values;
  }
  j["runs"] = Json::array();
  for (const Factors& run : config.list) {
    Json one = Json::object();
    for (const auto& [name, value] : run) one[name] = value;
    j["runs"].push_back(std::move(one));
  }
  j["exclude"] = Json::array();
  for (const auto& rule : config.exclude) {
    Json one = Json::object();
    for (const auto& [name, values] : rule) one[name] = values;
    j["exclude"].push_back(std::move(one));
  }
  j["samples"] = config.samples;
  j["sampling_seed"] = config.sampling_seed;
  j["baseline"] = config.baseline;
  j["metric"] = config.metric;
  j["threshold"] = format_fraction(config.threshold_ppm);
  j["limits"] = Json::object();
  if (config.time_limit > Nanos{0}) j["limits"]["time"] = std::to_string(config.time_limit.value) + " ns";
  if (config.memory_limit > Bytes{0})
    j["limits"]["memory"] = std::to_string(config.memory_limit.value) + " B";
  j["bounds"] = config.bounds;
  j["schedules"] = config.schedules;
  j["uncertainty"] = Json::object();
  if (!config.uncertainty.figures.empty()) {
    Json& u = j["uncertainty"];
    u["samples"] = config.uncertainty.samples;
    u["seed"] = config.uncertainty.seed;
    u["one_at_a_time"] = config.uncertainty.one_at_a_time;
    for (const UncertainFigure& figure : config.uncertainty.figures) {
      const Distribution& d = figure.distribution;
      Json one;
      if (d.kind == Distribution::Kind::normal) {
        one["distribution"] = "normal";
        one["deviation"] = format_fraction(d.deviation) + "x";
      } else {
        one["distribution"] = d.kind == Distribution::Kind::uniform ? "uniform" : "triangular";
        one["low"] = format_fraction(d.low) + "x";
        if (d.kind == Distribution::Kind::triangular) one["mode"] = format_fraction(d.mode) + "x";
        one["high"] = format_fraction(d.high) + "x";
      }
      u["figures"][figure.name] = std::move(one);
    }
  }
  return j.dump(2) + "\n";
}

std::string sweep_json_schema() {
  Json schema;
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["$id"] = kSweepSchema;
  schema["title"] = "swaplab sweep";
  schema["type"] = "object";
  schema["additionalProperties"] = false;
  schema["required"] = {"schema", "name"};
  Json& properties = schema["properties"];
  for (const SweepKey& key : kSweepKeys) {
    Json& p = properties[key.name];
    p["type"] = key.json_type;
    p["description"] = key.description;
    if (key.fallback != nullptr && std::string_view(key.json_type) == "string") p["default"] = key.fallback;
    if (key.fallback != nullptr && std::string_view(key.json_type) == "integer")
      p["default"] = std::stoll(key.fallback);
    if (key.fallback != nullptr && std::string_view(key.json_type) == "boolean")
      p["default"] = std::string_view(key.fallback) == "yes";
  }
  properties["schema"]["const"] = kSweepSchema;
  properties["name"]["pattern"] = "^[A-Za-z0-9_-]{1,64}$";
  properties["method"]["enum"] = kSweepMethods;
  properties["metric"]["enum"] = result_metric_names();
  properties["run_cap"]["minimum"] = 1;
  properties["samples"]["minimum"] = 1;
  properties["limits"]["additionalProperties"] = false;
  properties["limits"]["properties"]["time"] = {{"type", "string"}, {"examples", {"10 s"}}};
  properties["limits"]["properties"]["memory"] = {{"type", "string"}, {"examples", {"2 GiB"}}};
  const auto factor_schema = [](const FactorKind& kind) {
    Json value = {{"type", {"string", "integer"}}, {"examples", {kind.example}}};
    if (kind.name == "policy") value = {{"type", {"string", "object"}}, {"examples", {kind.example}}};
    if (kind.name == "trace") value = {{"type", {"string", "object"}}, {"examples", {kind.example}}};
    Json several = {{"type", "object"}, {"additionalProperties", false}};
    several["properties"]["values"] = {{"type", "array"}, {"minItems", 1}, {"items", value}};
    if (kind.globs) several["properties"]["glob"] = {{"type", {"string", "array"}}};
    if (kind.range != RangeKind::none) {
      Json range = {{"type", "object"}, {"additionalProperties", false}, {"required", {"start", "stop"}}};
      range["properties"]["start"] = value;
      range["properties"]["stop"] = value;
      range["properties"]["points"] = {{"type", "integer"}, {"minimum", 1}};
      range["properties"]["scale"] = {{"enum", {"linear", "log"}}};
      several["properties"]["range"] = std::move(range);
    }
    Json one;
    one["description"] = kind.summary;
    if (!kind.fallback.empty()) one["default"] = kind.fallback;
    one["anyOf"] = Json::array({value, several});
    return one;
  };
  Json& parameters = properties["parameters"];
  parameters["additionalProperties"] = false;
  for (const FactorKind& kind : factor_kinds()) parameters["properties"][kind.name] = factor_schema(kind);
  for (const OverridableFigure& figure : overridable_figures())
    parameters["properties"]["machine." + figure.path] = factor_schema(factor_kind("machine." + figure.path));
  Json& uncertainty = properties["uncertainty"];
  uncertainty["additionalProperties"] = false;
  uncertainty["properties"]["samples"] = {{"type", "integer"}, {"minimum", 0}};
  uncertainty["properties"]["seed"] = {{"type", "integer"}, {"minimum", 0}};
  uncertainty["properties"]["one_at_a_time"] = {{"type", "boolean"}};
  Json distribution = {{"type", "object"}, {"required", {"distribution"}}, {"additionalProperties", false}};
  distribution["properties"]["distribution"] = {{"enum", {"uniform", "normal", "triangular"}}};
  for (const char* key : {"low", "mode", "high", "deviation"})
    distribution["properties"][key] = {{"type", "string"}, {"pattern", "^[0-9]+(\\.[0-9]+)?x$"}};
  uncertainty["properties"]["figures"] = {{"type", "object"}, {"additionalProperties", distribution}};
  return schema.dump(2) + "\n";
}

}  // namespace swaplab
