// The allocator of a layout walk: where each slot's bytes are, and who is on the way out of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "policy/foresight_clock.hpp"
#include "policy/foresight_places.hpp"
#include "sim/memory_fork.hpp"
#include "sim/program.hpp"

namespace swaplab::foresight {

enum class Place : std::uint8_t { absent, device, outgoing, host };

// Bytes that are given back carry the times of their last kernel and copies in `clock`, and whoever gets them
// next takes those over.
class LayoutMemory {
 public:
  LayoutMemory(const Program& program, std::unique_ptr<MemoryFork> fork, Bytes capacity, LayoutClock& clock);

  Place place(std::uint32_t s) const { return places_[s]; }
  void set_place(std::uint32_t s, Place place) { places_[s] = place; }
  BlockId block(std::uint32_t s) const { return blocks_[s]; }
  std::uint32_t slot_at(std::uint64_t address) const { return by_address_.at(address); }
  // The slot has a block of the fork already (kNoBlock: none).
  void adopt(std::uint32_t s, BlockId block);

  // Device bytes that the slot takes, as the allocator rounds.
  std::int64_t occupied(std::uint32_t s) const;
  bool fits(std::uint32_t s) const { return allocated() + occupied(s) <= capacity_; }
  bool could_take(std::uint32_t s) const;
  // It would fit if all that is on its way out had left.
  bool could_fit(std::uint32_t s) const {
    return allocated() - outgoing_bytes_ + program_.bytes[s].value <= capacity_;
  }
  // Bytes of segments beyond the capacity if a new one were made for the slot.
  std::int64_t missing(std::uint32_t s) const;
  Request request(std::uint32_t s) const;
  std::vector<SegmentInfo> segments() const { return fork_->allocator.snapshot(); }

  // False: the device has no room, whatever the counts say.
  bool allocate(std::uint32_t s);
  std::uint32_t recoveries() const { return recoveries_; }  // allocations that gave the cache back first

  // device -> outgoing, and back.
  void leave(std::uint32_t s);
  void stay(std::uint32_t s);
  // Freed by the program.
  void release(std::uint32_t s);
  // The oldest outgoing storage's bytes are handed on; false when none is on its way.
  bool hand_on_oldest();
  bool any_outgoing() const { return outgoing_bytes_ != 0; }
  std::vector<std::uint32_t> outgoing() const;  // oldest first

  std::uint64_t changes() const { return changes_; }  // times that bytes became free
  void forget_log() { fork_->device.log().clear(); }
  std::unique_ptr<MemoryFork> take_fork() { return std::move(fork_); }

 private:
  std::int64_t allocated() const { return fork_->allocator.stats().all.allocated_bytes.current; }
  void give(std::uint32_t s);

  const Program& program_;
  std::unique_ptr<MemoryFork> fork_;
  const std::int64_t capacity_;
  LayoutClock& clock_;
  std::vector<Place> places_;
  std::vector<BlockId> blocks_;
  std::map<std::uint64_t, std::uint32_t> by_address_;  // allocated block -> slot
  std::vector<std::uint32_t> outgoing_;                // first in, first out; stale entries allowed
  std::size_t outgoing_head_ = 0;
  std::int64_t outgoing_bytes_ = 0;
  std::uint64_t changes_ = 0;
  std::uint32_t recoveries_ = 0;
};

}  // namespace swaplab::foresight
