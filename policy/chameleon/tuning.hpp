// What the search for a sequence's plans turns on, and how it goes from one try to the next.
#pragma once

#include <cstdint>

#include "policy/foresight_layout.hpp"
#include "policy/foresight_select.hpp"

namespace swaplab::adaptive {

// What made the best plan of a sequence so far; the search goes on from there.
struct Tuning {
  foresight::Rules rules;
  foresight::LayoutRules layout{.sweep = true, .states_first = true};
  std::int64_t margin = 40;  // thousandths of the budget left unplanned where places count and nothing sweeps
};

// `best` with one thing changed, another one for each `which`. `places`: blocks have places, so that the
// layout is varied, too.
Tuning vary(const Tuning& best, std::uint64_t which, Bytes budget, bool places);

}  // namespace swaplab::adaptive
