// A storage that is remembered across iterations. Its slot may name another storage once it has died
// (View::birth_rank), so it is only meant while alive().
#pragma once

#include <cstdint>

#include "sim/policy_api.hpp"

namespace swaplab {

struct Remembered {
  Slot slot = kNoSlot;
  std::uint32_t birth_rank = 0;

  bool alive(const View& view) const {
    return slot != kNoSlot && view.birth_rank(slot) == birth_rank &&
           view.residency(slot) != Residency::absent;
  }
};

inline Remembered remember(Slot slot, const View& view) {
  return {slot, slot == kNoSlot ? 0 : view.birth_rank(slot)};
}

}  // namespace swaplab
