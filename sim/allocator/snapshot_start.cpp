#include "sim/allocator/snapshot_start.hpp"

#include <algorithm>
#include <map>

#include "sim/allocator/config.hpp"

namespace swaplab {
namespace {

struct Live {
  std::uint64_t requested, bytes;  // bytes: of the block, 0 when only the request is known
};
struct Segment {
  std::uint64_t bytes, stream;
  bool large;
};

class Undo {
 public:
  Undo(const TorchSnapshot& snapshot, std::size_t device) : s_(snapshot), device_(device) {}

  SnapshotStart run() {
    if (!read_end()) return std::move(start_);
    const std::vector<SnapshotEvent>& events = s_.devices[device_];
    for (std::size_t i = events.size(); i-- > 0 && start_.unknown.empty();) undo(events[i]);
    if (start_.unknown.empty()) lay_out();
    return std::move(start_);
  }

 private:
  bool read_end() {
    for (const SnapshotSegment& segment : s_.segments) {
      if (segment.device != static_cast<std::int64_t>(device_)) continue;
      if (segment.expandable) return unknown("expandable segments grow and shrink in pages");
      segments_[segment.address] = {static_cast<std::uint64_t>(segment.bytes), segment.stream, segment.large};
      for (const SnapshotBlock& block : segment.blocks) {
        if (!block.active) continue;
        const auto bytes = static_cast<std::uint64_t>(block.bytes);
        live_[block.address] = {block.requested >= 0 ? static_cast<std::uint64_t>(block.requested) : bytes,
                                bytes};
      }
    }
    return !segments_.empty() || unknown("the file has no block map");
  }
  bool unknown(const std::string& why) {
    start_.unknown = why;
    return false;
  }

  void undo(const SnapshotEvent& e) {
    const auto bytes = static_cast<std::uint64_t>(e.bytes);
    switch (e.action) {
      case SnapshotAction::alloc:
        if (live_.erase(e.address) == 0)
          unknown("the block map lacks an allocation that the history does not free");
        return;
      case SnapshotAction::free_completed:
        if (!live_.try_emplace(e.address, Live{bytes, 0}).second)
          unknown("the history frees a block that it did not allocate again");
        return;
      case SnapshotAction::segment_alloc: {
        const auto found = segments_.find(e.address);
        if (found == segments_.end() || found->second.bytes != bytes) {
          unknown("the block map lacks a segment that the history does not free");
          return;
        }
        segments_.erase(found);
        return;
      }
      case SnapshotAction::segment_free:
        if (!segments_.try_emplace(e.address, Segment{bytes, e.stream, bytes != kSmallBuffer}).second)
          unknown("the history frees a segment that it did not make again");
        return;
      case SnapshotAction::segment_map:
      case SnapshotAction::segment_unmap:
        unknown("expandable segments grow and shrink in pages");
        return;
      default:
        return;
    }
  }

  void lay_out() {
    auto block = live_.begin();
    for (const auto& [address, segment] : segments_) {
      if (block != live_.end() && block->first < address) break;
      StartSegment out{address, segment.bytes, segment.stream, segment.large, {}};
      const std::uint64_t end = address + segment.bytes;
      std::uint64_t at = address;
      for (; block != live_.end() && block->first < end; ++block) {
        if (block->first < at) {
          unknown("two blocks of the start overlap");
          return;
        }
        if (block->first > at) out.regions.push_back({at, block->first - at, false});
        const auto next = std::next(block);
        const std::uint64_t limit = next != live_.end() && next->first < end ? next->first : end;
        const std::uint64_t length = extent(block->first, block->second, limit, segment.large);
        if (length == 0) {
          unknown("a block of the start does not fit before the next");
          return;
        }
        out.regions.push_back({block->first, length, true});
        ++start_.live_blocks;
        start_.live_bytes += length;
        at = block->first + length;
      }
      if (at < end) out.regions.push_back({at, end - at, false});
      start_.segments.push_back(std::move(out));
    }
    if (block != live_.end()) unknown("a block of the start lies in no segment");
  }

  // 0 when the block does not fit.
  std::uint64_t extent(std::uint64_t address, const Live& live, std::uint64_t limit, bool large) {
    const std::uint64_t room = limit - address;
    if (live.bytes != 0) return live.bytes <= room ? live.bytes : 0;
    const std::uint64_t rounded =
        (std::max<std::uint64_t>(live.requested, 1) + kMinBlockSize - 1) / kMinBlockSize * kMinBlockSize;
    if (rounded > room) return 0;
    if (!large || rounded == room) return rounded;
    if (room - rounded <= kSmallSize) return room;  // was not split off, and no large block is that short
    ++start_.assumed_extents;
    return rounded;
  }

  const TorchSnapshot& s_;
  std::size_t device_;
  std::map<std::uint64_t, Live> live_;
  std::map<std::uint64_t, Segment> segments_;
  SnapshotStart start_;
};

}  // namespace

SnapshotStart state_at_start(const TorchSnapshot& snapshot, std::size_t device) {
  return Undo(snapshot, device).run();
}

}  // namespace swaplab
