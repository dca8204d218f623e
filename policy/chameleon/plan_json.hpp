// A plan as JSON text, in the fields and units of the public golden files (README, "swaplab plan").
#pragma once

#include <string>

#include "policy/chameleon/generator.hpp"

namespace swaplab::chameleon {

// One JSON object. Storages by ProfiledTensor::id, stages by index into `stages.name`; seconds, bytes;
// scores and what is left of budgets to 12 digits. `config_json`: one JSON object as text, put first.
std::string plan_to_json(const IterationProfile& profile, const GeneratorParams& params, const SwapPlan& plan,
                         const std::string& config_json);

// CRC-32 of the remaining needs in bytes, joined by commas, as 8 hexadecimal digits.
std::string needs_checksum(const SwapPlan& plan);

}  // namespace swaplab::chameleon
