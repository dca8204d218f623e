// Passive swap-out: what happens when an allocation fails and no plan helps.
#pragma once

#include "sim/policy_api.hpp"

namespace swaplab::chameleon {

enum class Victims : std::uint8_t {
  published,  // the smallest block that is enough, else the largest; never gradients (shared buffers)
  any,        // the same; gradients too where nothing else is left
  none,
};

// Evicts one victim and says which; kNoSlot when there is none. Never one that the operator about to be
// issued accesses. Equal sizes: the least recently used.
Slot swap_out_passively(Bytes shortfall, Victims victims, const View& view, Actions& actions);

}  // namespace swaplab::chameleon
