#include "policy/foresight_memory.hpp"

#include <algorithm>

namespace swaplab::foresight {

LayoutMemory::LayoutMemory(const Program& program, std::unique_ptr<MemoryFork> fork, Bytes capacity,
                           LayoutClock& clock)
    : program_(program),
      fork_(std::move(fork)),
      capacity_(capacity.value),
      clock_(clock),
      places_(program.slot_count(), Place::absent),
      blocks_(program.slot_count(), kNoBlock) {}

void LayoutMemory::adopt(std::uint32_t s, BlockId block) {
  blocks_[s] = block;
  if (block != kNoBlock) by_address_.emplace(fork_->allocator.block_address(block), s);
}

std::int64_t LayoutMemory::occupied(std::uint32_t s) const {
  return static_cast<std::int64_t>(
      fork_->allocator.config().round_size(static_cast<std::uint64_t>(program_.bytes[s].value)));
}

bool LayoutMemory::could_take(std::uint32_t s) const {
  return fork_->allocator.could_fit_cached(program_.bytes[s], program_.home_stream[s]) ||
         fork_->device.used() + fork_->allocator.config().growth(static_cast<std::uint64_t>(occupied(s))) <=
             fork_->device.capacity();
}

std::int64_t LayoutMemory::missing(std::uint32_t s) const {
  return static_cast<std::int64_t>(fork_->device.used()) - capacity_ +
         static_cast<std::int64_t>(fork_->allocator.config().growth(static_cast<std::uint64_t>(occupied(s))));
}

Request LayoutMemory::request(std::uint32_t s) const {
  const std::int64_t bytes = occupied(s);
  return {bytes, bytes > static_cast<std::int64_t>(kSmallSize), program_.home_stream[s]};
}

bool LayoutMemory::allocate(std::uint32_t s) {
  const auto retries = fork_->allocator.stats().num_alloc_retries;
  const AllocResult got = fork_->allocator.alloc(program_.bytes[s], program_.home_stream[s]);
  if (fork_->allocator.stats().num_alloc_retries != retries) ++recoveries_;
  if (got.status != AllocStatus::ok) return false;
  blocks_[s] = got.block;
  if (got.block != kNoBlock) by_address_.emplace(got.address, s);
  LayoutClock::SlotTimes& t = clock_.of(s);
  t.used = std::max(t.used, static_cast<std::int64_t>(got.tag.compute));
  t.copied_out = std::max(t.copied_out, static_cast<std::int64_t>(got.tag.d2h));
  return true;
}

void LayoutMemory::leave(std::uint32_t s) {
  places_[s] = Place::outgoing;
  outgoing_.push_back(s);
  outgoing_bytes_ += program_.bytes[s].value;
}

void LayoutMemory::stay(std::uint32_t s) {
  places_[s] = Place::device;
  outgoing_bytes_ -= program_.bytes[s].value;
}

void LayoutMemory::release(std::uint32_t s) {
  if (places_[s] == Place::outgoing) outgoing_bytes_ -= program_.bytes[s].value;
  if (places_[s] == Place::device || places_[s] == Place::outgoing) give(s);
  places_[s] = Place::absent;
}

bool LayoutMemory::hand_on_oldest() {
  while (outgoing_head_ < outgoing_.size()) {
    const std::uint32_t s = outgoing_[outgoing_head_++];
    if (places_[s] != Place::outgoing) continue;
    outgoing_bytes_ -= program_.bytes[s].value;
    places_[s] = Place::host;
    give(s);
    return true;
  }
  return false;
}

std::vector<std::uint32_t> LayoutMemory::outgoing() const {
  std::vector<std::uint32_t> left;
  for (std::size_t i = outgoing_head_; i < outgoing_.size(); ++i) {
    if (places_[outgoing_[i]] == Place::outgoing) left.push_back(outgoing_[i]);
  }
  return left;
}

void LayoutMemory::give(std::uint32_t s) {
  if (blocks_[s] != kNoBlock) by_address_.erase(fork_->allocator.block_address(blocks_[s]));
  const LayoutClock::SlotTimes& t = clock_.of(s);
  fork_->allocator.free(blocks_[s], {static_cast<std::uint64_t>(std::max(t.used, t.copied_in)),
                                     static_cast<std::uint64_t>(t.copied_out)});
  blocks_[s] = kNoBlock;
  ++changes_;
}

}  // namespace swaplab::foresight
