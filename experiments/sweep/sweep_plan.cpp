#include "experiments/sweep/sweep_plan.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "experiments/sweep/digest.hpp"
#include "experiments/sweep/factors.hpp"
#include "experiments/sweep/run_record.hpp"
#include "experiments/sweep/trace_source.hpp"
#include "policy/registry.hpp"
#include "sim/machine_io.hpp"
#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr Wide kMostCombinations = Wide{1} << 62;

const std::string& value_of(const Factors& factors, std::string_view name) {
  static const std::string none;
  for (const auto& [key, value] : factors) {
    if (key == name) return value;
  }
  return none;
}

// All but `sample`, which is crossed with everything.
std::vector<SweepParameter> own_dimensions(const SweepConfig& config) {
  std::vector<SweepParameter> dimensions;
  for (const SweepParameter& p : config.parameters) {
    if (p.name != "sample") dimensions.push_back(p);
  }
  return dimensions;
}

Factors combination(const std::vector<SweepParameter>& dimensions, std::uint64_t number) {
  Factors factors(dimensions.size());
  for (std::size_t d = dimensions.size(); d-- > 0;) {
    const auto& values = dimensions[d].values;
    factors[d] = {dimensions[d].name, values[number % values.size()]};
    number /= values.size();
  }
  return factors;
}

std::vector<Factors> combinations(const SweepConfig& config, std::int64_t cap) {
  const std::vector<SweepParameter> dimensions = own_dimensions(config);
  Wide product = 1;
  std::size_t longest = 1;
  for (const SweepParameter& p : dimensions) {
    product = std::min(kMostCombinations, product * static_cast<Wide>(p.values.size()));
    longest = std::max(longest, p.values.size());
  }
  Wide count = product;
  if (config.method == SweepMethod::zip) count = static_cast<Wide>(longest);
  if (config.method == SweepMethod::list) count = static_cast<Wide>(config.list.size());
  if (config.method == SweepMethod::random) count = std::min<Wide>(product, config.samples);
  const Wide total = count * static_cast<Wide>(sample_names(config.uncertainty).size());
  if (total > cap) {
    throw Error(ErrorKind::usage,
                config.file + ": " +
                    (total >= kMostCombinations ? std::string("more than 4e18")
                                                : std::to_string(static_cast<std::int64_t>(total))) +
                    " runs, more than the run_cap of " + std::to_string(cap) +
                    "; raise run_cap or give --yes");
  }
  std::vector<Factors> result;
  switch (config.method) {
    case SweepMethod::grid:
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i)
        result.push_back(combination(dimensions, static_cast<std::uint64_t>(i)));
      break;
    case SweepMethod::random: {
      std::set<std::uint64_t> drawn;
      SplitMix64 random(config.sampling_seed);
      while (static_cast<Wide>(drawn.size()) < count)
        drawn.insert(random.below(static_cast<std::uint64_t>(product)));
      for (const std::uint64_t number : drawn) result.push_back(combination(dimensions, number));
      break;
    }
    case SweepMethod::zip:
      for (std::size_t i = 0; i < longest; ++i) {
        Factors factors;
        for (const SweepParameter& p : dimensions)
          factors.emplace_back(p.name, p.values[p.values.size() == 1 ? 0 : i]);
        result.push_back(std::move(factors));
      }
      break;
    case SweepMethod::list:
      for (const Factors& own : config.list) {
        Factors factors;
        for (const SweepParameter& p : dimensions) {
          if (value_of(own, p.name).empty()) factors.emplace_back(p.name, p.values[0]);
        }
        factors.insert(factors.end(), own.begin(), own.end());
        std::sort(factors.begin(), factors.end(),
                  [](const auto& a, const auto& b) { return factor_order(a.first) < factor_order(b.first); });
        result.push_back(std::move(factors));
      }
      break;
  }
  return result;
}

bool matches(const std::vector<std::pair<std::string, std::vector<std::string>>>& rule,
             const Factors& factors) {
  return std::all_of(rule.begin(), rule.end(), [&](const auto& part) {
    const std::string& value = value_of(factors, part.first);
    return std::any_of(part.second.begin(), part.second.end(), [&](const std::string& wanted) {
      return part.first == "policy" ? policy_matches(wanted, value) : wanted == value;
    });
  });
}

// Runs that agree in these share one prepared program.
std::string group_key(const Factors& factors) {
  std::string key;
  for (const auto& [name, value] : factors) {
    if (name != "budget" && name != "policy") key += name + "=" + value + "\n";
  }
  return key;
}

void collect_inputs(SweepPlan& plan) {
  std::map<std::string, std::string> traces, machines;
  for (const PlannedRun& run : plan.runs) {
    const std::string origin = trace_source_origin(run.factor("trace"));
    if (!traces.contains(origin)) traces[origin] = trace_source_hash(run.factor("trace"));
    const std::string& machine = run.factor("machine");
    if (!machines.contains(machine)) machines[machine] = sha256_hex(machine_json(load_machine(machine)));
  }
  for (const auto& [path, hash] : traces) plan.traces.push_back({path, hash});
  for (const auto& [name, hash] : machines) plan.machines.push_back({name, hash});
}

std::string input_hash(const std::vector<InputFile>& inputs, const std::string& path) {
  for (const InputFile& input : inputs) {
    if (input.path == path) return input.sha256;
  }
  return "";
}

}  // namespace

const std::string& PlannedRun::factor(std::string_view name) const {
  return value_of(factors, name);
}

SweepPlan make_plan(const SweepConfig& config, bool allow_large) {
  SweepPlan plan;
  plan.config = config;
  const std::int64_t cap = allow_large ? std::int64_t{100'000'000} : config.run_cap;
  std::vector<std::size_t> excluded_by(config.exclude.size(), 0);
  std::vector<Factors> all;
  for (const Factors& own : combinations(config, cap)) {
    bool excluded = false;
    for (std::size_t e = 0; e < config.exclude.size(); ++e) {
      if (!matches(config.exclude[e], own)) continue;
      excluded = true;
      ++excluded_by[e];
    }
    if (excluded) {
      ++plan.excluded;
      continue;
    }
    for (const std::string& sample : sample_names(config.uncertainty)) {
      Factors factors = own;
      factors.emplace_back("sample", sample);
      std::stable_sort(factors.begin(), factors.end(), [](const auto& a, const auto& b) {
        return factor_order(a.first) < factor_order(b.first);
      });
      all.push_back(std::move(factors));
    }
  }
  for (std::size_t e = 0; e < config.exclude.size(); ++e) {
    if (excluded_by[e] == 0)
      throw Error(ErrorKind::input, config.file + ":" + std::to_string(config.exclude_lines[e]) +
                                        ": exclude[" + std::to_string(e) + "]: matches no run");
  }
  if (all.empty()) throw Error(ErrorKind::input, config.file + ": every run is excluded");

  // Groups in the order of their first run; inside a group runs keep their order.
  std::map<std::string, std::size_t> groups;
  std::vector<std::vector<Factors>> grouped;
  for (Factors& factors : all) {
    const auto [at, fresh] = groups.emplace(group_key(factors), grouped.size());
    if (fresh) grouped.emplace_back();
    grouped[at->second].push_back(std::move(factors));
  }
  for (std::size_t g = 0; g < grouped.size(); ++g) {
    plan.group_begin.push_back(plan.runs.size());
    for (Factors& factors : grouped[g]) plan.runs.push_back({plan.runs.size(), std::move(factors), "", g});
  }
  plan.group_begin.push_back(plan.runs.size());
  collect_inputs(plan);

  Json identity;
  identity["result"] = kResultSchema;
  identity["config"] = Json::parse(resolved_config_json(config));
  identity["config"].erase("description");
  identity["config"].erase("run_cap");
  for (const InputFile& input : plan.traces) identity["traces"][input.path] = input.sha256;
  for (const InputFile& input : plan.machines) identity["machines"][input.path] = input.sha256;
  plan.identity = sha256_hex(identity.dump());

  std::map<std::string, std::size_t> seen;
  const std::string uncertainty = identity["config"]["uncertainty"].dump();
  for (PlannedRun& run : plan.runs) {
    Json key;
    for (const auto& [name, value] : run.factors) {
      key["factors"][name] = name == "policy" ? parse_policies(value)[0].text() : value;
    }
    key["inputs"].push_back(input_hash(plan.traces, trace_source_origin(run.factor("trace"))));
    key["inputs"].push_back(input_hash(plan.machines, run.factor("machine")));
    if (run.factor("sample") != "nominal") key["uncertainty"] = uncertainty;
    key["bounds"] = config.bounds;
    run.key = sha256_hex(key.dump()).substr(0, 16);
    const auto [at, fresh] = seen.emplace(run.key, run.index);
    if (!fresh) {
      throw Error(ErrorKind::input, config.file + ": run " + std::to_string(at->second) + " and run " +
                                        std::to_string(run.index) + " are the same (policy " +
                                        run.factor("policy") + ", budget " + run.factor("budget") +
                                        ", trace " + run.factor("trace") + ")");
    }
  }
  return plan;
}

std::string results_folder_name(const SweepPlan& plan) {
  return plan.config.name + "-" + plan.identity.substr(0, 12);
}

}  // namespace swaplab
