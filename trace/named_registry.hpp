// Things that register themselves by name before main: policies, perturbations, importers.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "trace/error.hpp"

namespace swaplab {

// `Thing` has info().name, which must be unique. Filled by registration objects, constant once main runs.
template <class Thing>
class NamedRegistry {
 public:
  // What messages call one and many of them: "policy", "policies".
  NamedRegistry(std::string_view one, std::string_view many) : one_(one), many_(many) {}

  void add(const Thing* thing) { things_.push_back(thing); }

  // By name. Throws Error(invariant) when a name was registered twice.
  std::vector<const Thing*> list() const {
    auto sorted = things_;
    std::sort(sorted.begin(), sorted.end(),
              [](const auto* a, const auto* b) { return a->info().name < b->info().name; });
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i]->info().name == sorted[i - 1]->info().name)
        throw Error(ErrorKind::invariant,
                    one_ + " '" + std::string(sorted[i]->info().name) + "' is registered twice");
    }
    return sorted;
  }

  // Throws Error(usage) with a suggestion and all names.
  const Thing& find(std::string_view name) const {
    std::vector<std::string> names;
    std::string all;
    for (const Thing* thing : list()) {
      if (thing->info().name == name) return *thing;
      names.emplace_back(thing->info().name);
      all += (all.empty() ? "" : ", ") + names.back();
    }
    throw Error(ErrorKind::usage, "unknown " + one_ + " '" + std::string(name) + "'" +
                                      did_you_mean(name, names) + "; " + many_ + ": " + all);
  }

 private:
  std::string one_, many_;
  std::vector<const Thing*> things_;
};

}  // namespace swaplab
