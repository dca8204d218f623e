// When a storage will be used next, as far as the sequence that is followed tells; else by how long ago it
// was.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/chameleon/alignment.hpp"
#include "sim/policy_api.hpp"

namespace swaplab::adaptive {

struct PredictedUse {
  static constexpr std::int64_t kNoUse = std::int64_t{1} << 40;

  const Alignment& at;
  const std::vector<std::int64_t>* clock;  // Entry::clock of the sequence; null without one
  std::int64_t window;                     // operators; nothing unknown is expected sooner
  std::uint32_t first_op;                  // of the running iteration

  // Operators until its next use; kNoUse when there is none.
  std::int64_t operators_until(Slot slot, const View& view) const;
  // ns of kernels, or of issuing them, until the end of that use; < 0 when there is none.
  std::int64_t time_until(Slot slot, const View& view) const;
};

}  // namespace swaplab::adaptive
