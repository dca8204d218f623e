// Settings of the stitching allocator: the public keys (Ascend/MindSpeed smart_swap, GMLake) under their
// own names.
#pragma once

#include <cstdint>
#include <string_view>

namespace swaplab {

// Unit of physical memory and of every mapping (kGranularity of the public code).
inline constexpr std::uint64_t kStitchGranule = std::uint64_t{2} << 20;

struct StitchingConfig {
  bool stitch = true;  // vmmDefragment: 1 stitches, 0 never
  // fragLimit: smaller requests are not stitched while the device has memory left.
  std::uint64_t frag_limit = std::uint64_t{16} << 20;
  // defragLevel: 0 stitches before new memory is taken, 1 only once the device has none left.
  std::uint32_t defrag_level = 0;
  // reuseLimit: a stitched range made earlier may be up to this many times the request (GMLake: 10).
  std::uint64_t reuse_limit = 1;
  std::uint64_t auto_gc = std::uint64_t{3000} << 30;   // autoGC: stitched bytes above which idle ranges go
  std::uint64_t gc_thresh = std::uint64_t{100} << 30;  // gc_thresh: and how many bytes of them
};

// Parses "fragLimit:33554432,defragLevel:1" (fragLimit in bytes, autoGC and gc_thresh in GiB, as the
// public code reads its environment; empty or "default" is the default). Throws Error(usage) naming key,
// value and what was expected; an unknown key gets a suggestion.
StitchingConfig parse_stitching_conf(std::string_view text);

}  // namespace swaplab
