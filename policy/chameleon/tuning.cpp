#include "policy/chameleon/tuning.hpp"

namespace swaplab::adaptive {
namespace {

void flip(bool& value) {
  value = !value;
}
void toggle(std::int64_t& value, std::int64_t a, std::int64_t b) {
  value = value == a ? b : a;
}

void vary_layout(Tuning& t, std::uint64_t which) {
  foresight::LayoutRules& layout = t.layout;
  if (which % 6 == 0) {
    flip(layout.sweep);
    return;
  }
  if (!layout.sweep) {
    constexpr std::int64_t kMargins[] = {0, 80, 20, 160, 40};
    t.margin = kMargins[which % 5];
    return;
  }
  switch (which % 7) {
    case 0:
      return flip(layout.states_first);
    case 1:
      return toggle(layout.near, 2, 1);
    case 2:
      return toggle(layout.stray, 1, 6);
    case 3:
      return toggle(layout.reserve, 40, 20);
    case 4:
      return toggle(layout.near, 2, 3);
    case 5:
      return toggle(layout.stray, 1, 0);
    default:
      return toggle(layout.reserve, 40, 80);
  }
}

void vary_rules(foresight::Rules& rules, std::uint64_t which, std::int64_t budget) {
  switch (which % 9) {
    case 0:
      return flip(rules.in_order);
    case 1:
      return toggle(rules.min_bytes, 0, budget / 1000);
    case 2:
      return toggle(rules.size_power, 0, 1);
    case 3:
      return flip(rules.by_length);
    case 4:
      return toggle(rules.cost_weight, 0, 2);
    case 5:
      return toggle(rules.size_power, 0, 4);
    case 6:
      return flip(rules.trim);
    case 7:
      return flip(rules.early_copy_out);
    default:
      return toggle(rules.slack, 0, budget / 50);
  }
}

}  // namespace

Tuning vary(const Tuning& best, std::uint64_t which, Bytes budget, bool places) {
  Tuning t = best;
  if (places && which % 2 == 0) {
    vary_layout(t, which / 2);
  } else {
    vary_rules(t.rules, places ? which / 2 : which, budget.value);
  }
  return t;
}

}  // namespace swaplab::adaptive
