// The only header that the author of a perturbation includes. A kind is one file in kinds/: a struct of
// parameters, a table that describes them, a class, one SWAPLAB_REGISTER_PERTURBATION line.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/perturb/edit.hpp"
#include "trace/perturb/random.hpp"

namespace swaplab {

struct PerturbationInfo {
  std::string_view name;     // unique
  std::string_view summary;  // one line
};

// One kind with its parameters set.
class Perturbation {
 public:
  virtual ~Perturbation() = default;
  // Iterations that a schedule counts: by default the recorded training iterations.
  virtual bool applies(const EditIteration& iteration) const {
    return !iteration.inserted && iteration.kind == IterationKind::train;
  }
  // Edits the iteration at `index`, every edit inside open_change .. close_change. Doing nothing is right
  // where there is nothing to change. Throws Error(usage) where the request cannot be met.
  virtual void apply(EditableTrace& edit, std::size_t index, Random& random) const = 0;
};

// One parameter: parsing, range check and help come from here.
template <class Params>
struct Field {
  std::string name, range, description;
  std::function<std::string(Params&, std::string_view)> set;  // "" or what was expected
  std::function<std::string(const Params&)> get;
};

// Each returns "" or what was expected.
std::string parse_count(std::string_view text, std::int64_t low, std::int64_t high, std::int64_t& into);
// "0.25" or "25%", at most six decimals, into parts per million.
std::string parse_share(std::string_view text, std::int64_t low, std::int64_t high, std::int64_t& into);
std::string share_text(std::int64_t ppm);

template <class Params>
Field<Params> count_field(std::string name, std::int64_t Params::*member, std::int64_t low, std::int64_t high,
                          std::string description) {
  return {std::move(name), std::to_string(low) + ".." + std::to_string(high), std::move(description),
          [=](Params& p, std::string_view text) { return parse_count(text, low, high, p.*member); },
          [=](const Params& p) { return std::to_string(p.*member); }};
}
template <class Params>
Field<Params> share_field(std::string name, std::int64_t Params::*ppm, std::int64_t low, std::int64_t high,
                          std::string description) {
  return {std::move(name), share_text(low) + ".." + share_text(high), std::move(description),
          [=](Params& p, std::string_view text) { return parse_share(text, low, high, p.*ppm); },
          [=](const Params& p) { return share_text(p.*ppm); }};
}
template <class Params>
Field<Params> choice_field(std::string name, std::string Params::*member,
                           const std::vector<std::string>& choices, std::string description) {
  std::string range;
  for (const std::string& choice : choices) range += (range.empty() ? "" : "|") + choice;
  return {std::move(name), range, std::move(description),
          [=](Params& p, std::string_view text) {
            for (const std::string& choice : choices) {
              if (choice != text) continue;
              p.*member = choice;
              return std::string();
            }
            return "expected one of " + range;
          },
          [=](const Params& p) { return p.*member; }};
}

struct NoFields {};

// Type-erased kind, for the table.
class PerturbationKind {
 public:
  virtual ~PerturbationKind() = default;
  virtual const PerturbationInfo& info() const = 0;
  struct Described {
    std::string name, range, description, value;
  };
  virtual std::vector<Described> describe() const = 0;  // with defaults
  using Values = std::vector<std::pair<std::string, std::string>>;
  // Throws Error(usage) for an unknown name or a bad value.
  virtual std::unique_ptr<Perturbation> make(const Values& values) const = 0;
};

void register_perturbation(const PerturbationKind* kind);
[[noreturn]] void fail_field(const PerturbationKind& kind, std::string_view name, std::string_view value,
                             const std::string& expected);

template <class Type, class Params>
class TypedPerturbationKind final : public PerturbationKind {
 public:
  TypedPerturbationKind(PerturbationInfo info, std::vector<Field<Params>> fields)
      : info_(info), fields_(std::move(fields)) {
    register_perturbation(this);
  }
  const PerturbationInfo& info() const override { return info_; }
  std::vector<Described> describe() const override {
    std::vector<Described> rows;
    for (const auto& f : fields_) rows.push_back({f.name, f.range, f.description, f.get(Params{})});
    return rows;
  }
  std::unique_ptr<Perturbation> make(const Values& values) const override {
    Params params{};
    for (const auto& [name, value] : values) {
      const Field<Params>* field = nullptr;
      for (const auto& f : fields_) field = f.name == name ? &f : field;
      if (field == nullptr) fail_field(*this, name, value, "");
      const std::string expected = field->set(params, value);
      if (!expected.empty()) fail_field(*this, name, value, expected);
    }
    return std::make_unique<Type>(params);
  }

 private:
  PerturbationInfo info_;
  std::vector<Field<Params>> fields_;
};

#define SWAPLAB_REGISTER_PERTURBATION(Class, Params, ...) \
  static const ::swaplab::TypedPerturbationKind<Class, Params> kRegistration##Class(__VA_ARGS__)

}  // namespace swaplab
