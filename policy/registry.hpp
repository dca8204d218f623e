// Policies by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/policy.hpp"

namespace swaplab {

struct PolicySpec {
  const PolicyFactory* factory = nullptr;
  std::vector<std::pair<std::string, std::string>> values;  // as typed
  std::string text() const;  // "name:k=v,k=v" with every parameter filled in; "name" without parameters
};

// All policies, by name. Throws Error(invariant) when a name was registered twice.
std::vector<const PolicyFactory*> policy_list();
// Throws Error(usage) with a suggestion.
const PolicyFactory& find_policy(std::string_view name);
// "lru,offload-activations:ahead=3,keep_last=1,size": a part with '=' and without ':' belongs to the
// policy before it. Parameters are checked here. Throws Error(usage).
std::vector<PolicySpec> parse_policies(std::string_view text);

}  // namespace swaplab
