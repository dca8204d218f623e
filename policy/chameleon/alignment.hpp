// Binding: where the running iteration stands in a known sequence, and which storages play its objects.
//
// While the iteration goes as the sequence does, each operator is the next one of it. Where it does not,
// operators are passed over until the sequence is met again: three in a row that stand together in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/chameleon/learned.hpp"
#include "sim/policy_api.hpp"

namespace swaplab::adaptive {

class Alignment {
 public:
  // Stands before the first operator of `sequence`, which must outlive the alignment with it; null: of none.
  // Objects that outlive the iteration are played by the storages that played them when it was learned, as
  // far as those live.
  void begin(const LearnedIteration* sequence, const View& view);
  // Other objects from before the iteration: `survivors` of equal size and class, in order.
  void bind_survivors(std::span<const Slot> survivors, const View& view);
  // The first `k` operators that `recorder` has are those of the sequence.
  void skip(std::uint32_t k, const Recorder& recorder);
  // `recorder` has operator k, about to be issued.
  void advance(std::uint32_t k, const Recorder& recorder);

  const LearnedIteration* sequence() const { return sequence_; }
  // The last operator was found in the sequence.
  bool synced() const { return synced_; }
  // Operator of the sequence that is about to be issued, and the one that should follow.
  std::uint32_t here() const { return synced_ && pointer_ > 0 ? pointer_ - 1 : pointer_; }
  std::uint32_t next() const { return pointer_; }
  std::uint32_t left() const { return sequence_->op_count() - here(); }

  // By object of the sequence; kNoSlot: not known.
  const std::vector<Slot>& slots() const { return slot_of_; }
  // Object that a storage plays; kNever when none.
  std::uint32_t object_of(Slot slot) const {
    const std::uint32_t s = index(slot);
    if (sequence_ == nullptr || s >= object_of_.size() || object_of_[s].epoch != epoch_) return kNever;
    return object_of_[s].object;
  }
  // Times that a sequence was met again, in all iterations.
  std::int64_t resynchronisations() const { return resynchronisations_; }

 private:
  void bind(std::uint32_t object, Slot slot);
  void bind_operands(std::uint32_t k, std::uint32_t at, const Recorder& recorder);

  const LearnedIteration* sequence_ = nullptr;
  bool synced_ = true;
  std::uint32_t pointer_ = 0;
  std::vector<Slot> slot_of_;  // by object
  struct Bound {
    std::uint32_t epoch, object;
  };
  std::vector<Bound> object_of_;  // by slot
  std::uint32_t epoch_ = 0;       // of begin()
  std::int64_t resynchronisations_ = 0;
};

}  // namespace swaplab::adaptive
