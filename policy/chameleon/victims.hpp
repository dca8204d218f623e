// Eviction: who leaves when room is short in spite of the plan.
#pragma once

#include <functional>

#include "policy/chameleon/predicted_use.hpp"
#include "sim/policy_api.hpp"

namespace swaplab::adaptive {

using Evict = std::function<void(Slot)>;

// By farthest predicted use. What is used within a moment is spared as long as anything else will do; small
// storages likewise.
void evict_farthest(Bytes shortfall, const PredictedUse& use, const View& view, const Evict& evict);

// The cheapest neighbours that make one place for the request that room is short for, or that empty segments;
// false when neither is possible. Needs::places, with an allocator that has them.
bool clear_a_place(Bytes shortfall, const PredictedUse& use, const View& view, const Evict& evict);

}  // namespace swaplab::adaptive
