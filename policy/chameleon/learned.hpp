// What `adaptive` learns of an iteration, and how it becomes a program to plan on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/chameleon/remembered.hpp"
#include "sim/policy_api.hpp"

namespace swaplab::adaptive {

inline bool on_device(Residency residency) {
  return residency == Residency::device || residency == Residency::both;
}

// A storage of a learned iteration: named by its part in it, not by an address.
struct Object {
  Bytes bytes;
  StorageClass cls;
  std::uint32_t born = kNever;   // operator that creates it; kNever: from before
  std::uint32_t death = kNever;  // freed before this operator; kNever: alive at the end
  Remembered storage;            // in the iteration that was learned
};

struct Operand {
  std::uint32_t object;
  std::uint8_t flags;  // AccessFlags
};

struct LearnedIteration {
  // Per operator.
  std::vector<NameId> name;
  std::vector<SigId> signature;
  std::vector<Phase> phase;
  std::vector<Nanos> device_time;  // measured; empty until then
  std::vector<std::uint32_t> operand_begin{0};
  std::vector<Operand> operands;
  std::vector<Object> objects;
  // Hash of the first i + 1 signatures, and of the first i + 1 names.
  std::vector<std::uint64_t> signature_prefix, name_prefix;
  // Per object, ascending: operators that use it. Filled by finish().
  std::vector<std::uint32_t> use_begin, uses;

  std::uint32_t op_count() const { return static_cast<std::uint32_t>(name.size()); }
  std::span<const Operand> operands_of(std::uint32_t op) const {
    return {operands.data() + operand_begin[op], operands.data() + operand_begin[op + 1]};
  }
  std::span<const std::uint32_t> uses_of(std::uint32_t object) const {
    return {uses.data() + use_begin[object], uses.data() + use_begin[object + 1]};
  }
  bool persistent(std::uint32_t object) const {
    return objects[object].born == kNever && objects[object].death == kNever;
  }
};

// Records an iteration as it runs.
class Recorder {
 public:
  // Storages that live when the run starts.
  void start(const View& view);
  void begin_iteration();
  // Before operator `op` of the run, after the frees of its gap.
  void op(std::uint32_t op, const View& view);
  // Closes the iteration when its last operator has been issued. What dies behind that is seen at the next
  // one.
  LearnedIteration finish(const View& view);
  const LearnedIteration& current() const { return now_; }
  // Slots of the operands recorded so far, parallel to current().operands.
  const std::vector<Slot>& slots() const { return slots_; }
  // Before the first operator of an iteration: storages that outlived the one before, some freed since.
  const std::vector<Slot>& survivors() const { return known_; }

 private:
  std::uint32_t object_of(Slot slot, bool created, const View& view);
  void note_frees(std::span<const GapEvent> events);
  LearnedIteration now_;
  std::vector<Slot> slots_;
  std::size_t leading_frees_ = 0;      // of the newest operator's gap: already noted
  std::vector<Slot> known_;            // storages that outlived the iteration before
  std::vector<std::uint32_t> object_;  // by slot, valid in epoch_of_
  std::vector<std::uint32_t> epoch_of_;
  std::uint32_t epoch_ = 0;
  bool first_op_ = true;
};

// One step of a plan, bound to an operator of the learned iteration. `object` kNever: `storage` is meant.
struct Step {
  std::uint32_t op;
  PlanAction action;
  std::uint32_t object;
  Remembered storage;
};

// Share of unequal operators, in ppm of the longer one: edit distance (insertions and deletions) over both
// lengths, kUnchanged when it exceeds `limit`.
Ppm edit_share(std::span<const NameId> a, std::span<const NameId> b, Ppm limit);

}  // namespace swaplab::adaptive
