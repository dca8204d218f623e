// The swap-only bound of a whole run: per iteration, over its steady part, and of one steady lap.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/bounds/swap_path.hpp"

namespace swaplab {

struct RunBound {
  SwapBound steady;                // the steady iterations as one window
  std::uint32_t steady_count = 0;  // iterations in it
  // Per iteration of the program, each as a window of its own. One iteration can borrow from its neighbours,
  // so these may add up to less than `steady.total`, which is what an average has to be compared with.
  std::vector<Nanos> iterations;

  // Average over the steady iterations, rounded down.
  Nanos per_steady_iteration() const {
    return steady_count == 0 ? Nanos{0} : steady.total / static_cast<std::int64_t>(steady_count);
  }
};

// Prepares the windows once; `at` evaluates any number of budgets and may be called from several threads.
class RunBounds {
 public:
  // Throws as SwapPathBound, and Error(usage) when the program has no operators.
  RunBounds(const Program& program, SwapRates rates, SwapPathOptions options = {});
  RunBound at(Bytes budget) const;

  // Why `at` proves nothing about the steady part; empty when it does.
  std::string refusal() const;

  // Bytes that must exist at the worst operator of the steady part.
  Bytes required_peak() const;

 private:
  std::vector<std::optional<SwapPathBound>> iterations_;  // empty for an iteration without operators
  std::optional<SwapPathBound> steady_;
  std::uint32_t steady_count_ = 0;
};

// The strongest one-lap window: of the spans from an operator p of `iteration` to the same place in the next
// iteration, the one with the largest bound. Every span is bounded by its own window, so when the iterations
// repeat no schedule can have a shorter period, nor a smaller average over many laps. Start places tried:
// the iteration's beginning and the ends of the links of the two-lap chain.
// Nothing when there is no next iteration or it differs in its number of operators.
std::optional<SwapBound> lap_bound(const Program& program, const std::shared_ptr<const SwapGapTable>& table,
                                   std::uint32_t iteration, Bytes budget, SwapRates rates,
                                   SwapPathOptions options = {});

}  // namespace swaplab
