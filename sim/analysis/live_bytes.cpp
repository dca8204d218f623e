#include "sim/analysis/live_bytes.hpp"

#include <algorithm>

namespace swaplab {
namespace {

bool makes_activations(Phase phase) {
  return phase == Phase::forward || phase == Phase::evaluation || phase == Phase::data ||
         phase == Phase::unknown;
}

// The operator that makes each slot; kNever: it has content from before.
std::vector<std::uint32_t> makers(const Program& program) {
  std::vector<std::uint32_t> maker(program.slot_count(), kNever);
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    for (const Access& access : program.accesses_of(op)) {
      if ((access.flags & kCreate) != 0 && maker[index(access.slot)] == kNever)
        maker[index(access.slot)] = op;
    }
  }
  return maker;
}

std::vector<std::uint32_t> iteration_of_operators(const Program& program) {
  std::vector<std::uint32_t> of(program.op_count(), 0);
  for (std::uint32_t i = 0; i < program.iterations.size(); ++i) {
    const ProgramIteration& it = program.iterations[i];
    std::fill(of.begin() + it.first_op, of.begin() + it.end_op, i);
  }
  return of;
}

}  // namespace

std::string_view role_name(Role role) {
  static constexpr std::string_view names[] = {
      "parameters", "optimizer_state", "gradients", "activations", "buffers", "data", "temporaries"};
  return names[static_cast<std::size_t>(role)];
}

std::vector<Role> storage_roles(const Program& program) {
  struct Use {
    bool backward = false, optimizer = false;
  };
  std::vector<Use> uses(program.slot_count());
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    const Phase phase = program.phase[op];
    for (const Access& access : program.accesses_of(op)) {
      if ((access.flags & kRead) == 0) continue;
      uses[index(access.slot)].backward |= phase == Phase::backward || phase == Phase::recompute;
      uses[index(access.slot)].optimizer |= phase == Phase::optimizer;
    }
  }
  const std::vector<std::uint32_t> maker = makers(program);
  const std::vector<std::uint32_t> iteration = iteration_of_operators(program);
  std::vector<Role> roles(program.slot_count(), Role::temporary);
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
    switch (program.cls[s]) {
      case StorageClass::parameter:
        roles[s] = Role::parameter;
        continue;
      case StorageClass::optimizer_state:
        roles[s] = Role::optimizer_state;
        continue;
      case StorageClass::gradient:
        roles[s] = Role::gradient;
        continue;
      case StorageClass::buffer:
        roles[s] = Role::buffer;
        continue;
      case StorageClass::data:
        roles[s] = Role::data;
        continue;
      case StorageClass::unknown:
        break;
    }
    if (maker[s] == kNever) continue;
    const Phase phase = program.phase[maker[s]];
    if (makes_activations(phase) && uses[s].backward) roles[s] = Role::activation;
    if (phase != Phase::backward) continue;
    // Gap g stands before operator g: a death at the iteration's end gap still belongs to it.
    const std::uint32_t end =
        program.iterations.empty() ? program.op_count() : program.iterations[iteration[maker[s]]].end_op;
    if (uses[s].optimizer || program.death[s] > end) roles[s] = Role::gradient;
  }
  return roles;
}

LiveBytes live_bytes(const Program& program) {
  const std::vector<Role> roles = storage_roles(program);
  const std::vector<std::uint32_t> maker = makers(program);
  LiveBytes live;
  live.by_role.reserve(program.op_count());
  live.total.reserve(program.op_count());
  std::array<Bytes, kRoleCount> now{};
  Bytes sum;
  const auto add = [&](std::uint32_t slot, std::int64_t sign) {
    const Bytes bytes = program.bytes[slot] * sign;
    now[static_cast<std::size_t>(roles[slot])] += bytes;
    sum += bytes;
  };
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
    if (program.initial[s] != 0) add(s, 1);
  }
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    for (const GapEvent& event : program.gap(op)) add(index(event.slot), event.is_free ? -1 : 1);
    live.by_role.push_back(now);
    live.total.push_back(sum);
    if (sum <= live.peak) continue;
    live.peak = sum;
    live.peak_op = op;
  }
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
    const bool born = program.initial[s] != 0 || program.birth[s] <= live.peak_op;
    if (!born || program.death[s] <= live.peak_op) continue;
    const Phase phase = maker[s] == kNever ? Phase::unknown : program.phase[maker[s]];
    live.at_peak[static_cast<std::size_t>(roles[s])][static_cast<std::size_t>(phase)] += program.bytes[s];
  }
  return live;
}

}  // namespace swaplab
