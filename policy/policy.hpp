// The only header that a policy author includes. A policy is one file: a struct of parameters, a
// table that describes them, a class, one SWAPLAB_REGISTER_POLICY line (see policy/README.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/policy_api.hpp"

namespace swaplab {

struct PolicyInfo {
  std::string_view name;     // unique
  std::string_view summary;  // one line
  std::string_view citation;
  Needs needs = Needs::none;
};

// One parameter of a policy: parsing, range check, printing and help all come from here.
template <class Params>
struct Parameter {
  std::string name, type, range, description;
  std::function<std::string(Params&, std::string_view)> set;  // "" or what was expected
  std::function<std::string(const Params&)> get;
};

// "" when the text is an integer in [low, high].
std::string parse_integer(std::string_view text, std::int64_t low, std::int64_t high, std::int64_t& into);
// "1MiB", "0B": units are mandatory.
std::string parse_bytes(std::string_view text, Bytes& into);
std::string format_bytes_exact(Bytes bytes);
// "0.25" or "25%", at most six decimals; `low` and `high` in ppm.
std::string parse_fraction(std::string_view text, Ppm low, Ppm high, Ppm& into);
std::string format_fraction(Ppm ppm);

template <class Params>
Parameter<Params> integer_parameter(std::string name, std::int64_t Params::*member, std::int64_t low,
                                    std::int64_t high, std::string description) {
  return {std::move(name),
          "integer",
          std::to_string(low) + ".." + std::to_string(high),
          std::move(description),
          [=](Params& p, std::string_view text) { return parse_integer(text, low, high, p.*member); },
          [=](const Params& p) { return std::to_string(p.*member); }};
}
template <class Params>
Parameter<Params> bytes_parameter(std::string name, Bytes Params::*member, std::string description) {
  return {std::move(name),
          "bytes",
          ">= 0B",
          std::move(description),
          [=](Params& p, std::string_view text) { return parse_bytes(text, p.*member); },
          [=](const Params& p) { return format_bytes_exact(p.*member); }};
}
template <class Params>
Parameter<Params> fraction_parameter(std::string name, Ppm Params::*member, Ppm low, Ppm high,
                                     std::string description) {
  return {std::move(name),
          "fraction",
          format_fraction(low) + ".." + format_fraction(high),
          std::move(description),
          [=](Params& p, std::string_view text) { return parse_fraction(text, low, high, p.*member); },
          [=](const Params& p) { return format_fraction(p.*member); }};
}
template <class Params>
Parameter<Params> choice_parameter(std::string name, std::string Params::*member,
                                   const std::vector<std::string>& choices, std::string description) {
  std::string range;
  for (const std::string& choice : choices) range += (range.empty() ? "" : "|") + choice;
  return {std::move(name),
          "choice",
          range,
          std::move(description),
          [=](Params& p, std::string_view text) {
            for (const std::string& choice : choices) {
              if (choice == text) {
                p.*member = choice;
                return std::string();
              }
            }
            return "expected one of " + range;
          },
          [=](const Params& p) { return p.*member; }};
}

// A named set of values for all parameters. Explicit parameters override it wherever they are typed,
// so it must be the first row of the table.
template <class Params>
struct Preset {
  std::string name;
  Params values;
};
template <class Params>
Parameter<Params> preset_parameter(std::string name, std::string Params::*member,
                                   std::vector<Preset<Params>> presets, std::string description) {
  std::vector<std::string> choices;
  for (const Preset<Params>& preset : presets) choices.push_back(preset.name);
  Parameter<Params> row =
      choice_parameter<Params>(std::move(name), member, std::move(choices), std::move(description));
  row.set = [presets = std::move(presets), member, check = row.set](Params& p, std::string_view text) {
    const std::string expected = check(p, text);
    for (const Preset<Params>& preset : presets) {
      if (preset.name != text) continue;
      p = preset.values;
      p.*member = preset.name;
    }
    return expected;
  };
  return row;
}

struct NoParams {};

// Type-erased policy for the registry.
class PolicyFactory {
 public:
  virtual ~PolicyFactory() = default;
  virtual const PolicyInfo& info() const = 0;
  struct Described {
    std::string name, type, range, description, value;
  };
  virtual std::vector<Described> describe() const = 0;  // with defaults
  // Throws Error(usage) for an unknown name or a bad value.
  virtual std::unique_ptr<Policy> make(
      const std::vector<std::pair<std::string, std::string>>& values) const = 0;
  // Every parameter with its value, "k=v,k=v"; same errors.
  virtual std::string resolve(const std::vector<std::pair<std::string, std::string>>& values) const = 0;
};

void register_policy(const PolicyFactory* factory);
[[noreturn]] void fail_parameter(const PolicyFactory& factory, std::string_view name, std::string_view value,
                                 const std::string& expected);

template <class PolicyType, class Params>
class TypedPolicyFactory final : public PolicyFactory {
 public:
  TypedPolicyFactory(PolicyInfo info, std::vector<Parameter<Params>> parameters)
      : info_(info), parameters_(std::move(parameters)) {
    register_policy(this);
  }
  const PolicyInfo& info() const override { return info_; }
  std::vector<Described> describe() const override {
    std::vector<Described> rows;
    for (const auto& p : parameters_)
      rows.push_back({p.name, p.type, p.range, p.description, p.get(Params{})});
    return rows;
  }
  std::unique_ptr<Policy> make(
      const std::vector<std::pair<std::string, std::string>>& values) const override {
    return std::make_unique<PolicyType>(parse(values));
  }
  std::string resolve(const std::vector<std::pair<std::string, std::string>>& values) const override {
    const Params params = parse(values);
    std::string text;
    for (const auto& p : parameters_) text += (text.empty() ? "" : ",") + p.name + "=" + p.get(params);
    return text;
  }

 private:
  Params parse(const std::vector<std::pair<std::string, std::string>>& values) const {
    for (const auto& typed : values) {
      const auto same = [&](const auto& p) { return p.name == typed.first; };
      if (std::none_of(parameters_.begin(), parameters_.end(), same)) {
        fail_parameter(*this, typed.first, typed.second, "");
      }
    }
    Params params{};
    for (const auto& p : parameters_) {  // in the order of the table: a preset comes first
      for (const auto& [name, value] : values) {
        if (p.name != name) continue;
        const std::string expected = p.set(params, value);
        if (!expected.empty()) fail_parameter(*this, name, value, expected);
      }
    }
    return params;
  }
  PolicyInfo info_;
  std::vector<Parameter<Params>> parameters_;
};

#define SWAPLAB_REGISTER_POLICY(Class, Params, ...) \
  static const ::swaplab::TypedPolicyFactory<Class, Params> kRegistration##Class(__VA_ARGS__)

// Evicts, from those with the largest score on, until `shortfall` is covered. `score(slot)` < 0: never.
void evict_by_score(Bytes shortfall, const View& view, Actions& actions,
                    const std::function<std::int64_t(Slot)>& score);
// Least recently used first.
void evict_oldest(Bytes shortfall, const View& view, Actions& actions, Bytes min_bytes);

}  // namespace swaplab
