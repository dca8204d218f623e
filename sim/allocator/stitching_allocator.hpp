// A caching allocator that stitches: free pieces that lie apart are mapped behind each other into one
// range of addresses (GMLake, arXiv 2401.08156; in the rules of Ascend/MindSpeed smart_swap).
//
// Physical memory comes in granules of 2 MiB. Requests of a granule and more are rounded up to whole
// granules; smaller ones share a granule (best fit, 512 B). A request of n granules is served by, in order:
//   1. from fragLimit: a stitched range made earlier, all of whose granules are free again;
//   2. the smallest free piece that is large enough, split in place (no mapping changes);
//   3. stitching (from fragLimit, defragLevel 0): the largest pieces, and as the last one the smallest
//      that is enough, its rest split off;
//   4. new memory;
//   5. stitching whatever the size, with new memory for what is missing;
//   6. giving all free granules back to the device, of every stream, and new memory;
//   7. out of memory.
// So a request fails only when fewer granules are free, in all, than it needs.
//
// This is the order of the public code. Chosen here: 5 below fragLimit too (and then 1 after 2), because step
// 6 waits for the whole device; 6 gives back single granules, not whole segments only; a granule shared by
// small blocks goes back to the large pieces as soon as it is empty; idle stitched ranges go, longest idle
// first, when autoGC is exceeded; of a range larger than the request the leading granules serve it.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "sim/allocator/block.hpp"
#include "sim/allocator/stitching_config.hpp"
#include "trace/units.hpp"

namespace swaplab {

// What lies below: physical granules, address ranges, mappings. Sizes in bytes.
template <class B>
concept StitchingBackend = requires(B& backend, std::uint64_t n) {
  { backend.create(n) } -> std::same_as<bool>;  // physical memory; false, without effect, beyond the capacity
  { backend.left() } -> std::convertible_to<std::uint64_t>;  // bytes that create() would still give
  backend.destroy(n);
  { backend.reserve(n) } -> std::same_as<std::uint64_t>;  // address of an unmapped range
  backend.release(n, n);                                  // address, size
  backend.map(n, n);                                      // address, size
  backend.unmap(n, n);                                    // address, size
  backend.synchronize();                                  // until the device has done everything
};

struct StitchingStats {
  // Occupied: granules of blocks in use, shared ones whole. Reserved: granules taken from the device.
  std::uint64_t occupied = 0, peak_occupied = 0, reserved = 0, peak_reserved = 0, reserved_at_peak = 0;
  std::uint64_t creates = 0, destroys = 0;                 // calls for physical memory
  std::uint64_t stitches = 0, stitched_reuses = 0;         // ranges mapped; served by one mapped earlier
  std::uint64_t stitched_bytes = 0;                        // mapped in stitched ranges now
  std::uint64_t collections = 0, drops = 0, failures = 0;  // autoGC, step 6, step 7
};

struct StitchedResult {
  BlockId block = kNoBlock;  // kNoBlock: out of memory
  std::uint64_t address = 0;
  ReuseTag tag;  // of the memory handed out
};

// Not thread safe. The backend must outlive the allocator, which returns nothing to it on destruction.
template <StitchingBackend Backend>
class StitchingAllocator {
 public:
  StitchingAllocator(Backend& backend, const StitchingConfig& config) : backend_(backend), config_(config) {}

  // Throws Error(invariant) for a size below 1 B or above 2^62 B.
  StitchedResult alloc(Bytes size, std::uint32_t stream);
  // Gives an allocated block back; `tag` joins the tags of its pieces.
  void free(BlockId block, const ReuseTag& tag = {});

  // Whether alloc() would succeed without step 6.
  bool could_serve(Bytes size, std::uint32_t stream) const;
  // Bytes of whole free granules that the request needs; 0 when a shared granule has room.
  Bytes wanted(Bytes size) const;

  // First address of an allocated block.
  std::uint64_t block_address(BlockId block) const {
    const auto id = static_cast<std::uint32_t>(block);
    return (id & kViewBit) != 0 ? views_[id & ~kViewBit].address : pieces_[id].address;
  }
  const StitchingStats& stats() const { return stats_; }
  // Free granules of all streams that the allocator holds, bytes.
  std::uint64_t free_bytes() const { return stats_.reserved - stats_.occupied; }
  // Where the bytes of an allocated block really lie, as addresses of their first mapping, in the order of
  // the block's own addresses.
  struct Extent {
    std::uint64_t address, size;
    bool operator==(const Extent&) const = default;
  };
  std::vector<Extent> extents(BlockId block) const;

 private:
  static constexpr std::uint32_t kNone = allocator_detail::kNone;
  static constexpr std::uint32_t kViewBit = std::uint32_t{1} << 31;
  static constexpr std::uint64_t kSmallStep = 512;

  enum class State : std::uint8_t { vacant, free, used };
  // Contiguous granules at their first address; or, `host` set, a part of a shared granule.
  struct Piece {
    std::uint64_t address = 0, size = 0;
    ReuseTag tag;
    std::uint32_t prev = kNone, next = kNone;  // neighbours, address order
    std::uint32_t segment = kNone;             // address range it was created in
    std::uint32_t host = kNone;                // shared granule
    std::uint32_t stream = 0;
    State state = State::vacant;
  };
  struct Segment {
    std::uint64_t address, size, mapped;
  };
  struct View {                                      // a stitched range
    std::uint64_t address = 0, size = 0, range = 0;  // mapped bytes; reserved bytes
    std::uint64_t idle_since = 0;
    std::vector<Extent> extents;        // size in all
    std::vector<std::uint32_t> pieces;  // while in use: the leading `in_use` bytes
    std::uint64_t in_use = 0;
    std::uint32_t stream = 0;
    bool vacant = true;
  };
  using Key = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>;  // size, address, id
  struct Pool {
    std::set<Key> large, small, views;  // free pieces; idle ranges
    std::uint64_t free = 0;             // bytes of `large`
  };

  static std::uint64_t rounded(std::uint64_t size) {
    const std::uint64_t unit = size < kStitchGranule ? kSmallStep : kStitchGranule;
    return (size + unit - 1) / unit * unit;
  }
  static Key key(const Piece& piece, std::uint32_t id) { return {piece.size, piece.address, id}; }
  Pool& pool(std::uint32_t stream) {
    if (stream >= pools_.size()) pools_.resize(stream + 1);
    return pools_[stream];
  }
  std::uint32_t new_piece();
  void insert_free(std::uint32_t id);
  void erase_free(std::uint32_t id);
  std::uint32_t split(std::uint32_t id, std::uint64_t size);
  void to_free(std::uint32_t id, const ReuseTag& tag);
  void absorb_next(std::uint32_t id);

  StitchedResult alloc_small(std::uint64_t size, std::uint32_t stream);
  StitchedResult alloc_large(std::uint64_t size, std::uint32_t stream);
  StitchedResult hand_out(std::uint32_t id, std::uint64_t size);
  std::uint32_t create(std::uint64_t size, std::uint32_t stream);
  std::uint32_t covering(const Extent& extent, std::uint32_t stream) const;
  bool usable(const View& view, std::uint64_t size) const;
  std::uint32_t find_view(std::uint64_t size, std::uint32_t stream) const;
  StitchedResult reuse(std::uint32_t id, std::uint64_t size);
  StitchedResult stitch(std::uint64_t size, std::uint32_t stream);
  StitchedResult use_view(std::uint32_t id, std::uint64_t size, std::vector<std::uint32_t>&& pieces);
  void remove_view(std::uint32_t id);
  void collect();
  void drop_caches();
  void occupy(std::uint64_t size);

  Backend& backend_;
  const StitchingConfig config_;
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> vacant_pieces_;
  std::vector<Segment> segments_;
  std::vector<View> views_;
  std::vector<std::uint32_t> vacant_views_;
  std::vector<Pool> pools_;                            // by stream
  std::map<std::uint64_t, std::uint32_t> by_address_;  // pieces that are not part of a shared granule
  std::uint64_t clock_ = 0;
  StitchingStats stats_;
};

}  // namespace swaplab

#include "sim/allocator/stitching_allocator_impl.hpp"  // IWYU pragma: export
