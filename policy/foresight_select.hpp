// From rules to a plan: which storages leave in which gaps, and when they come back.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/foresight_gaps.hpp"
#include "policy/foresight_model.hpp"
#include "sim/machine.hpp"
#include "sim/policy_api.hpp"
#include "sim/program.hpp"

namespace swaplab::foresight {

// Decision of the search about a gap, by key.
enum class Wish : std::int8_t { free = 0, swap = 1, keep = -1 };

// How victims are ranked where the memory runs short, and what is done with them.
struct Rules {
  // Score of a gap, in nanoseconds of device time: time of its next use when `by_length` is off, else
  // its length; less `cost_weight` / 4 times the time of the copies that it takes, when that is not 0;
  // times the `size_power` / 4-th power of its bytes.
  bool by_length = false;
  std::int64_t cost_weight = 0;
  std::int64_t size_power = 0;
  bool trim = true;            // give victims up again that later victims made needless
  bool in_order = true;        // copies back strictly by deadline; else a small one may overtake
  bool early_copy_out = true;  // copy to the host as soon as the version is complete
  std::int64_t min_bytes = 0;  // smaller storages stay unless nothing else helps
  std::int64_t slack = 0;      // bytes of the budget that the plan leaves unused
  auto operator<=>(const Rules&) const = default;
};

struct Selection {
  Plan plan;
  std::vector<std::uint32_t> swapped_keys;  // of the gaps chosen, each once, ascending
  // Operators at which even evicting everything that is not in use does not make enough room.
  std::uint32_t hopeless = 0;
};

struct Problem {
  const Program& program;
  const Machine& machine;
  const GapTable& gaps;
  const Placement& placement;
  std::span<const std::int64_t> sizes;  // occupied bytes per slot
  std::span<const std::int64_t> clock;  // ns of device time before each operator; op_count() + 1
  std::span<const double> root_size;    // per slot: fourth root of its bytes
  std::int64_t budget;
};

// Plans operators [0, end_op). `wishes` by key, may be empty (all free).
Selection select(const Problem& problem, const Rules& rules, std::span<const Wish> wishes,
                 std::uint32_t end_op);

}  // namespace swaplab::foresight
