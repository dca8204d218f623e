// The settings of PyTorch's CUDA caching allocator (PYTORCH_CUDA_ALLOC_CONF) and its size rules.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace swaplab {

// Constants of CUDACachingAllocator (PyTorch 2.4.0), bytes.
inline constexpr std::uint64_t kMinBlockSize = 512;
inline constexpr std::uint64_t kSmallSize = std::uint64_t{1} << 20;       // largest small-pool block
inline constexpr std::uint64_t kSmallBuffer = std::uint64_t{2} << 20;     // small segment and page
inline constexpr std::uint64_t kLargeBuffer = std::uint64_t{20} << 20;    // medium segment and large page
inline constexpr std::uint64_t kMinLargeAlloc = std::uint64_t{10} << 20;  // from here a segment of its own
inline constexpr std::uint64_t kRoundLarge = std::uint64_t{2} << 20;      // granularity of such segments
inline constexpr std::uint64_t kNoSplitLimit = std::numeric_limits<std::uint64_t>::max();

struct AllocatorConfig {
  bool expandable_segments = false;
  std::uint64_t max_split_size = kNoSplitLimit;         // bytes; blocks from this size are not split
  std::uint64_t max_non_split_rounding = kLargeBuffer;  // bytes an oversize block may exceed its request
  double garbage_collection_threshold = 0;              // share of the allowed memory; 0 is off
  std::array<std::uint64_t, 16> roundup_divisions{};    // by floor(log2(size)) - 20, clamped; 0, 1: off
  bool rounds_up = false;                               // any division above 1
  std::vector<std::string> without_effect;              // accepted keys that no rule here depends on

  // Bytes of the block that serves a request of `size` > 0 bytes.
  std::uint64_t round_size(std::uint64_t size) const {
    if (size < kMinBlockSize) return kMinBlockSize;
    if (rounds_up) [[unlikely]]
      return round_to_division(size);
    return (size + kMinBlockSize - 1) & ~(kMinBlockSize - 1);
  }
  // Bytes of the segment made for a block of `rounded` bytes when the cache has none.
  static std::uint64_t segment_size(std::uint64_t rounded) {
    if (rounded <= kSmallSize) return kSmallBuffer;
    if (rounded < kMinLargeAlloc) return kLargeBuffer;
    return (rounded + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
  }
  // Most bytes that the device must have left for such a block: a segment, or whole pages where segments
  // expand.
  std::uint64_t growth(std::uint64_t rounded) const {
    if (!expandable_segments) return segment_size(rounded);
    const std::uint64_t page = rounded <= kSmallSize ? kSmallBuffer : kLargeBuffer;
    return (rounded + page - 1) / page * page;
  }

 private:
  std::uint64_t round_to_division(std::uint64_t size) const;
};

// Parses the text of PYTORCH_CUDA_ALLOC_CONF ("key:value,key:value"; empty or "(default)" is the
// default). Throws Error(usage) naming key, value and what was expected; an unknown key gets a
// suggestion. backend:cudaMallocAsync is refused: it has none of these rules.
AllocatorConfig parse_alloc_conf(std::string_view text);

// Throws Error(usage) for combinations that trip an internal assertion in PyTorch 2.4 when memory
// runs short: expandable_segments together with max_split_size_mb.
void require_supported(const AllocatorConfig& config);

}  // namespace swaplab
