// Live device bytes over the operators, and what they consist of.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/program.hpp"

namespace swaplab {

// What a storage is for. Tags of the recording come first; what has none is told by its use:
// - made in a forward (or evaluation, data) phase and read in a backward or recompute phase: activation
// - made in a backward phase and used by the optimizer, or alive behind its iteration: gradient
// - anything else: temporary.
enum class Role : std::uint8_t { parameter, optimizer_state, gradient, activation, buffer, data, temporary };
constexpr std::size_t kRoleCount = 7;
std::string_view role_name(Role role);

// By slot.
std::vector<Role> storage_roles(const Program& program);

struct LiveBytes {
  std::vector<std::array<Bytes, kRoleCount>> by_role;  // [op]: while operator op runs
  std::vector<Bytes> total;                            // their sum
  Bytes peak;
  std::uint32_t peak_op = 0;  // the first one
  // What lives at the peak, by role and by the phase that made it (unknown: from before the first operator).
  std::array<std::array<Bytes, 9>, kRoleCount> at_peak{};
};

LiveBytes live_bytes(const Program& program);

}  // namespace swaplab
