// Predicted iterations as a program to plan on.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "policy/chameleon/learned.hpp"
#include "policy/foresight_model.hpp"
#include "sim/policy_api.hpp"

namespace swaplab::adaptive {

// A predicted iteration; the first one may have begun.
struct Lap {
  const LearnedIteration& it;
  std::uint32_t first_op;
};

// A step of a plan: lap and operator of its sequence. `object` of that sequence; kNever: the storage `slot`,
// which plays no part in it.
struct AheadStep {
  std::uint32_t lap, op;
  PlanAction action;
  std::uint32_t object;
  Slot slot;
};

// The laps as a program whose initial slots are the storages that live now. Refers to laps and view.
class AheadProgram {
 public:
  // `slot_of`: by object of the first lap, the storage that plays it, kNoSlot when not known. `leaving`:
  // storages on their way out, oldest first.
  AheadProgram(std::span<const Lap> laps, std::span<const Slot> slot_of, std::span<const Slot> leaving,
               const View& view);

  const Program& program() const { return p_; }
  // Of the initial slots.
  const foresight::Placement& placement() const { return placement_; }
  // By initial slot: the storage of the run.
  const std::vector<Slot>& live() const { return live_; }
  // Operators of the laps before `lap`.
  std::uint32_t begin_of(std::uint32_t lap) const { return lap == 0 ? 0 : p_.iterations[lap - 1].end_op; }
  // What a step of a plan for program() means in the run.
  AheadStep step(const PlanStep& planned) const;
  // The slot of program() that a step of the first lap means, kNoSlot when there is none.
  Slot slot_of(const Step& step) const;

 private:
  Slot add(Bytes bytes, StorageClass cls, bool initial);
  void adopt(Slot storage, Residency residency);
  void adopt_live(std::span<const Slot> slot_of, std::span<const Slot> leaving);
  void release(Slot slot);
  void hand_over(std::uint32_t lap);
  void write_lap(std::uint32_t lap);
  void write_op(std::uint32_t lap, std::uint32_t op, const std::vector<std::uint32_t>& dying);

  std::span<const Lap> laps_;
  const View& view_;
  const Nanos dispatch_;
  Program p_;
  foresight::Placement placement_;
  std::vector<Slot> live_;
  std::unordered_map<std::uint32_t, Slot> adopted_;  // by storage of the run
  std::vector<std::uint8_t> alive_;                  // by slot
  std::vector<Slot> object_slot_;                    // by object of the lap being written
  std::vector<Slot> by_object_;                      // of the first lap
  std::vector<std::unordered_map<std::uint32_t, std::uint32_t>> played_;  // per lap: slot -> object
};

// `program` from operator `from` on, with the same slots: those that live then are initial.
Program rest_of(const Program& program, std::uint32_t from);

}  // namespace swaplab::adaptive
