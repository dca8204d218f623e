#include "policy/chameleon/alignment.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace swaplab::adaptive {

void Alignment::begin(const LearnedIteration* sequence, const View& view) {
  sequence_ = sequence;
  synced_ = true;
  pointer_ = 0;
  ++epoch_;
  slot_of_.clear();
  if (sequence == nullptr) return;
  slot_of_.assign(sequence->objects.size(), kNoSlot);
  for (std::uint32_t o = 0; o < sequence->objects.size(); ++o) {
    const Remembered& storage = sequence->objects[o].storage;
    if (sequence->persistent(o) && storage.alive(view)) bind(o, storage.slot);
  }
}

void Alignment::bind_survivors(std::span<const Slot> survivors, const View& view) {
  std::map<std::pair<std::int64_t, StorageClass>, std::vector<Slot>> left;  // last first
  for (std::size_t i = survivors.size(); i-- > 0;) {
    const Slot slot = survivors[i];
    if (view.residency(slot) == Residency::absent || object_of(slot) != kNever) continue;
    left[{view.size(slot).value, view.storage_class(slot)}].push_back(slot);
  }
  for (std::uint32_t o = 0; o < sequence_->objects.size(); ++o) {
    const Object& object = sequence_->objects[o];
    if (object.born != kNever || object.death == 0 || slot_of_[o] != kNoSlot) continue;
    auto& same = left[{object.bytes.value, object.cls}];
    if (same.empty()) continue;
    bind(o, same.back());
    same.pop_back();
  }
}

void Alignment::bind(std::uint32_t object, Slot slot) {
  if (slot == kNoSlot) return;
  slot_of_[object] = slot;
  const std::uint32_t s = index(slot);
  if (s >= object_of_.size()) object_of_.resize(s + std::size_t{1}, {0, 0});
  object_of_[s] = {epoch_, object};
}

// The operands of operator k play the objects of the sequence's operator `at`.
void Alignment::bind_operands(std::uint32_t k, std::uint32_t at, const Recorder& recorder) {
  const LearnedIteration& now = recorder.current();
  const auto theirs = sequence_->operands_of(at);
  const std::uint32_t begin = now.operand_begin[k], count = now.operand_begin[k + 1] - begin;
  if (theirs.size() != count) return;
  for (std::uint32_t i = 0; i < count; ++i) bind(theirs[i].object, recorder.slots()[begin + i]);
}

void Alignment::skip(std::uint32_t k, const Recorder& recorder) {
  for (std::uint32_t i = 0; i < k; ++i) bind_operands(i, i, recorder);
  pointer_ = k;
}

void Alignment::advance(std::uint32_t k, const Recorder& recorder) {
  const LearnedIteration& now = recorder.current();
  const LearnedIteration& it = *sequence_;
  if (synced_ && pointer_ < it.op_count() && it.name[pointer_] == now.name[k]) {
    bind_operands(k, pointer_++, recorder);
    return;
  }
  synced_ = false;
  constexpr std::uint32_t kRow = 3, kFarthest = 512;
  const auto matches = [&](std::uint32_t at) {
    for (std::uint32_t i = 0; i < kRow; ++i) {
      if (at < i || k < i || it.name[at - i] != now.name[k - i]) return false;
    }
    return true;
  };
  const auto end = std::min<std::uint32_t>(it.op_count(), pointer_ + kFarthest);
  for (std::uint32_t at = pointer_; at < end; ++at) {
    if (!matches(at)) continue;
    ++resynchronisations_;
    synced_ = true;
    for (std::uint32_t i = kRow; i-- > 0;) bind_operands(k - i, at - i, recorder);
    pointer_ = at + 1;
    return;
  }
}

}  // namespace swaplab::adaptive
