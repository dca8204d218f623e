#include "sim/allocator/snapshot_truth.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>

#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/snapshot_start.hpp"
#include "trace/import/wording.hpp"

namespace swaplab {
namespace {

// A device that gives out the addresses of the history, so that ties which PyTorch breaks by address are
// broken alike. A segment that the history does not have comes from above all of them.
class RecordedDevice {
 public:
  struct Event {};
  struct Segment {
    std::uint64_t address, bytes;
  };

  std::uint64_t capacity() const { return std::uint64_t{1} << 40; }
  std::uint64_t device_malloc(std::uint64_t bytes, std::uint32_t) {
    if (bytes > capacity()) return 0;
    if (!expected_.empty() && expected_.front().bytes == bytes && usable(expected_.front().address)) {
      const std::uint64_t address = expected_.front().address;
      expected_.pop_front();
      ++agreed;
      return address;
    }
    made_otherwise.push_back(bytes);
    const std::uint64_t address = next_;
    next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return address;
  }
  void device_free(std::uint64_t, std::uint64_t, std::uint32_t) {}
  std::uint64_t va_reserve(std::uint64_t bytes) { return device_malloc(bytes, 0); }
  void va_free(std::uint64_t, std::uint64_t) {}
  bool map(std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t) { return true; }
  void unmap(std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t) {}
  Event record_event(std::uint32_t) { return {}; }
  bool query(const Event&) { return true; }
  void synchronize(const Event&) {}
  void synchronize_stream(std::uint32_t) {}

  void expect(const Segment& segment) { expected_.push_back(segment); }
  // What the history made and the replay did not.
  std::deque<Segment> take_expected() { return std::exchange(expected_, {}); }

  std::uint64_t agreed = 0;
  std::vector<std::uint64_t> made_otherwise;

 private:
  static bool usable(std::uint64_t address) {
    return address != 0 && address % kMinBlockSize == 0 && address < kAbove;
  }
  static constexpr std::uint64_t kAbove = std::uint64_t{1} << 47;  // what CUDA gives a process lies below
  static constexpr std::uint64_t kAlignment = std::uint64_t{2} << 20;
  std::deque<Segment> expected_;
  std::uint64_t next_ = kAbove;
};
static_assert(AllocatorBackend<RecordedDevice>);

class Replay {
 public:
  Replay(const TorchSnapshot& snapshot, std::size_t device, const SnapshotStart& start)
      : events_(snapshot.devices[device]),
        allocator_(device_, parse_alloc_conf(snapshot.conf), Combinations::as_pytorch) {
    truth_.device = static_cast<std::int64_t>(device);
    unknown_start_ = start.unknown;
    assumed_extents_ = start.assumed_extents;
    if (start.unknown.empty() && !start.segments.empty()) rebuild(start);
  }
  bool start_could_not_be_rebuilt() const { return rebuild_failed_; }

  SnapshotTruth run() {
    for (const SnapshotEvent& e : events_) {
      switch (e.action) {
        case SnapshotAction::segment_alloc:
          ++truth_.segments;
          theirs_[e.address] = static_cast<std::uint64_t>(e.bytes);
          device_.expect({e.address, static_cast<std::uint64_t>(e.bytes)});
          break;
        case SnapshotAction::segment_free:
          // PyTorch frees segments in one sweep of its cache, before which ours is still whole.
          if (!sweeping_) allocator_.empty_cache();
          sweeping_ = true;
          theirs_.erase(e.address);
          continue;
        case SnapshotAction::alloc:
          alloc(e);
          break;
        case SnapshotAction::free_completed:
          free(e);
          break;
        case SnapshotAction::segment_map:
        case SnapshotAction::segment_unmap:
          ++maps_;
          break;
        default:
          break;
      }
      sweeping_ = false;
    }
    truth_.segments_agree = device_.agreed - agreed_at_start_;
    explain();
    return truth_;
  }

 private:
  // Brings the allocator into the state of the start by ordinary requests: each segment is made whole, then
  // cut from its beginning while nothing else is free; what was free is given back at the end.
  void rebuild(const SnapshotStart& start) {
    std::vector<BlockId> spaces;
    for (const StartSegment& segment : start.segments) {
      const std::uint32_t on = stream(segment.stream);
      rebuild_failed_ |= on >= kMaxAllocatorStreams;
      if (rebuild_failed_) return;
      device_.expect({segment.address, segment.bytes});
      allocator_.free(request(segment.large ? segment.bytes : kMinBlockSize, on, segment.address));
      if (!device_.take_expected().empty() || rebuild_failed_) {
        rebuild_failed_ = true;
        return;
      }
      for (const StartRegion& region : segment.regions) {
        const std::uint64_t most = segment.large ? region.bytes : kSmallSize;
        for (std::uint64_t at = 0; at < region.bytes; at += most) {
          const BlockId block = request(std::min(most, region.bytes - at), on, region.address + at);
          if (rebuild_failed_) return;
          if (region.live) {
            live_[region.address] = block;
          } else {
            spaces.push_back(block);
          }
        }
      }
      theirs_[segment.address] = segment.bytes;
    }
    for (const BlockId space : spaces) allocator_.free(space);
    device_.made_otherwise.clear();
    agreed_at_start_ = device_.agreed;
    truth_.rebuilt = true;
    truth_.start_segments = start.segments.size();
    truth_.start_blocks = start.live_blocks;
    truth_.start_bytes = start.live_bytes;
  }
  BlockId request(std::uint64_t bytes, std::uint32_t on, std::uint64_t address) {
    const AllocResult result = allocator_.alloc(Bytes{static_cast<std::int64_t>(bytes)}, on);
    rebuild_failed_ |= result.status != AllocStatus::ok || result.address != address;
    return result.block;
  }

  std::uint32_t stream(std::uint64_t handle) {
    return streams_.try_emplace(handle, static_cast<std::uint32_t>(streams_.size())).first->second;
  }
  // Whether the history has made the segment that holds `address`.
  bool in_history(std::uint64_t address) const {
    const auto after = theirs_.upper_bound(address);
    if (after == theirs_.begin()) return false;
    const auto segment = std::prev(after);
    return address - segment->first < segment->second;
  }
  void differ(const SnapshotEvent& e, const std::string& what) {
    if (!truth_.first_difference.empty()) return;
    truth_.first_difference =
        "allocation " + std::to_string(truth_.allocations) + " of " + std::to_string(e.bytes) + " B: " + what;
  }

  void alloc(const SnapshotEvent& e) {
    ++truth_.allocations;
    const std::uint32_t on = stream(e.stream);
    if (on >= kMaxAllocatorStreams) return;
    const AllocResult result = allocator_.alloc(Bytes{e.bytes}, on);
    for (const std::uint64_t bytes : std::exchange(device_.made_otherwise, {})) {
      ++truth_.segments_extra;
      differ(e, "the replay makes a segment of " + std::to_string(bytes) + " B");
    }
    for (const RecordedDevice::Segment& segment : device_.take_expected())
      differ(e, "PyTorch makes a segment of " + std::to_string(segment.bytes) + " B, the replay does not");
    if (result.status != AllocStatus::ok || result.block == kNoBlock) return;
    live_[e.address] = result.block;
    if (!in_history(e.address)) return;
    ++truth_.placed;
    if (result.address == e.address) {
      ++truth_.placed_agree;
    } else {
      differ(e, "PyTorch places it at address " + std::to_string(e.address) + ", the replay at " +
                    std::to_string(result.address));
    }
  }

  void free(const SnapshotEvent& e) {
    const auto found = live_.find(e.address);
    if (found == live_.end()) {
      ++truth_.unmatched_frees;
      return;
    }
    allocator_.free(found->second);
    live_.erase(found);
  }

  void explain() {
    truth_.complete = !truth_.rebuilt && truth_.unmatched_frees == 0 && truth_.placed == truth_.allocations &&
                      truth_.allocations != 0;
    const auto reason = [&](const std::string& text) { truth_.reasons.push_back(text); };
    const auto count = [](std::uint64_t n, std::string_view noun) {
      return counted(static_cast<std::int64_t>(n), noun);
    };
    const bool late = !truth_.complete && !truth_.rebuilt && truth_.allocations != 0;
    if (truth_.rebuilt)
      reason("starts late, from " + count(truth_.start_segments, "segment") + " with " +
             count(truth_.start_blocks, "block") + ", rebuilt from the block map");
    if (late)
      reason("starts late, and what it starts from cannot be told (" +
             (unknown_start_.empty() ? std::string("its segments are not PyTorch's sizes") : unknown_start_) +
             "): " + std::to_string(truth_.allocations - truth_.placed) +
             " allocations lie in segments from before it, " + std::to_string(truth_.unmatched_frees) +
             " frees are of blocks from before it");
    if (maps_ != 0) reason("expandable segments: " + std::to_string(maps_) + " map events are not compared");
    if (streams_.size() > kMaxAllocatorStreams) reason("more streams than the allocator models");
    if (truth_.allocations == 0) reason("the history holds no allocation");
    if (truth_.agrees() || truth_.allocations == 0) return;
    if (truth_.rebuilt && assumed_extents_ != 0)
      reason("the lengths of " + std::to_string(assumed_extents_) +
             " blocks at the start are assumed: the file has their requests only, and PyTorch does not split "
             "off 1 MiB or less");
    else if (!late && maps_ == 0)
      reason("a rule differs, or PyTorch's version does: see the first difference");
  }

  const std::vector<SnapshotEvent>& events_;
  RecordedDevice device_;
  CachingAllocator<RecordedDevice> allocator_;
  SnapshotTruth truth_;
  std::map<std::uint64_t, std::uint64_t> theirs_;  // live segments of the history: address, bytes
  std::unordered_map<std::uint64_t, BlockId> live_;
  std::unordered_map<std::uint64_t, std::uint32_t> streams_;
  std::string unknown_start_;
  std::uint64_t maps_ = 0, agreed_at_start_ = 0, assumed_extents_ = 0;
  bool sweeping_ = false, rebuild_failed_ = false;
};

}  // namespace

std::vector<SnapshotTruth> compare_with_snapshot(const TorchSnapshot& snapshot) {
  std::vector<SnapshotTruth> all;
  for (std::size_t d = 0; d < snapshot.devices.size(); ++d) {
    if (snapshot.devices[d].empty()) continue;
    const SnapshotStart start = state_at_start(snapshot, d);
    Replay replay(snapshot, d, start);
    // A start that ordinary requests do not reach leaves an allocator of no use: without it, then.
    all.push_back(replay.start_could_not_be_rebuilt() ? Replay(snapshot, d, SnapshotStart{}).run()
                                                      : replay.run());
  }
  return all;
}

}  // namespace swaplab
