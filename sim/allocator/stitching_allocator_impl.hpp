// Implementation of StitchingAllocator; include sim/allocator/stitching_allocator.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "sim/allocator/stitching_allocator.hpp"
#include "trace/error.hpp"

namespace swaplab {

// ---- pieces

template <StitchingBackend Backend>
std::uint32_t StitchingAllocator<Backend>::new_piece() {
  if (!vacant_pieces_.empty()) {
    const std::uint32_t id = vacant_pieces_.back();
    vacant_pieces_.pop_back();
    pieces_[id] = {};
    return id;
  }
  pieces_.emplace_back();
  return static_cast<std::uint32_t>(pieces_.size() - 1);
}

template <StitchingBackend Backend>
void StitchingAllocator<Backend>::insert_free(std::uint32_t id) {
  Piece& piece = pieces_[id];
  piece.state = State::free;
  Pool& home = pool(piece.stream);
  (piece.host == kNone ? home.large : home.small).insert(key(piece, id));
  if (piece.host == kNone) home.free += piece.size;
}

template <StitchingBackend Backend>
void StitchingAllocator<Backend>::erase_free(std::uint32_t id) {
  const Piece& piece = pieces_[id];
  Pool& home = pool(piece.stream);
  (piece.host == kNone ? home.large : home.small).erase(key(piece, id));
  if (piece.host == kNone) home.free -= piece.size;
}

// A free piece that is in no set keeps its first `size` bytes; the rest, which is returned, is a new free
// piece, in no set either. In place: both stay mapped where they are.
template <StitchingBackend Backend>
std::uint32_t StitchingAllocator<Backend>::split(std::uint32_t id, std::uint64_t size) {
  const std::uint32_t rest = new_piece();
  Piece& piece = pieces_[id];
  Piece& other = pieces_[rest];
  other = piece;
  other.address += size;
  other.size -= size;
  other.prev = id;
  piece.size = size;
  piece.next = rest;
  if (other.next != kNone) pieces_[other.next].prev = rest;
  if (other.host == kNone) by_address_.emplace(other.address, rest);
  return rest;
}

template <StitchingBackend Backend>
void StitchingAllocator<Backend>::absorb_next(std::uint32_t id) {
  const std::uint32_t gone = pieces_[id].next;
  Piece& piece = pieces_[id];
  const Piece& other = pieces_[gone];
  if (other.host == kNone) by_address_.erase(other.address);
  piece.size += other.size;
  piece.tag.join(other.tag);
  piece.next = other.next;
  if (piece.next != kNone) pieces_[piece.next].prev = id;
  pieces_[gone].state = State::vacant;
  vacant_pieces_.push_back(gone);
}

// The piece, used so far, becomes free and joins its free neighbours.
template <StitchingBackend Backend>
void StitchingAllocator<Backend>::to_free(std::uint32_t id, const ReuseTag& tag) {
  pieces_[id].tag.join(tag);
  const auto is_free = [this](std::uint32_t at) { return at != kNone && pieces_[at].state == State::free; };
  if (is_free(pieces_[id].next)) {
    erase_free(pieces_[id].next);
    absorb_next(id);
  }
  if (is_free(pieces_[id].prev)) {
    id = pieces_[id].prev;
    erase_free(id);
    absorb_next(id);
  }
  insert_free(id);
}

template <StitchingBackend Backend>
void StitchingAllocator<Backend>::occupy(std::uint64_t size) {
  stats_.occupied += size;
  if (stats_.occupied >= stats_.peak_occupied) {
    stats_.peak_occupied = stats_.occupied;
    stats_.reserved_at_peak = stats_.reserved;
  }
}

// A free piece that is in no set serves `size` bytes.
template <StitchingBackend Backend>
StitchedResult StitchingAllocator<Backend>::hand_out(std::uint32_t id, std::uint64_t size) {
  if (pieces_[id].size > size) insert_free(split(id, size));
  pieces_[id].state = State::used;
  if (pieces_[id].host == kNone) occupy(size);
  return {BlockId{id}, pieces_[id].address, pieces_[id].tag};
}

// New memory at an address range of its own, as a free piece that is in no set; kNone without effect.
template <StitchingBackend Backend>
std::uint32_t StitchingAllocator<Backend>::create(std::uint64_t size, std::uint32_t stream) {
  if (!backend_.create(size)) return kNone;
  const std::uint64_t address = backend_.reserve(size);
  backend_.map(address, size);
  const std::uint32_t id = new_piece();
  Piece& piece = pieces_[id];
  piece.address = address;
  piece.size = size;
  piece.stream = stream;
  piece.state = State::free;
  piece.segment = static_cast<std::uint32_t>(segments_.size());
  segments_.push_back({address, size, size});
  by_address_.emplace(address, id);
  stats_.reserved += size;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  ++stats_.creates;
  return id;
}

// ---- requests

template <StitchingBackend Backend>
StitchedResult StitchingAllocator<Backend>::alloc(Bytes size, std::uint32_t stream) {
  if (size.value < 1 || size.value > std::int64_t{1} << 62) {
    throw Error(ErrorKind::invariant, "a request for " + std::to_string(size.value) + " B");
  }
  pool(stream);
  const std::uint64_t bytes = rounded(static_cast<std::uint64_t>(size.value));
  return bytes < kStitchGranule ? alloc_small(bytes, stream) : alloc_large(bytes, stream);
}

template <StitchingBackend Backend>
StitchedResult StitchingAllocator<Backend>::alloc_small(std::uint64_t size, std::uint32_t stream) {
  const auto it = pools_[stream].small.lower_bound(Key{size, 0, 0});
  if (it != pools_[stream].small.end()) {
    const std::uint32_t id = std::get<2>(*it);
    pools_[stream].small.erase(it);
    return hand_out(id, size);
  }
  const StitchedResult granule = alloc_large(kStitchGranule, stream);
  if (granule.block == kNoBlock) return {};
  const std::uint32_t id = new_piece();
  Piece& piece = pieces_[id];
  piece.address = granule.address;
  piece.size = kStitchGranule;
  piece.tag = granule.tag;
  piece.host = static_cast<std::uint32_t>(granule.block);
  piece.stream = stream;
  piece.state = State::free;
  return hand_out(id, size);
}

template <StitchingBackend Backend>
StitchedResult StitchingAllocator<Backend>::alloc_large(std::uint64_t size, std::uint32_t stream) {
  // A single granule never needs stitching.
  const bool views_first = size > kStitchGranule && size >= config_.frag_limit;
  if (views_first) {
    if (const std::uint32_t view = find_view(size, stream); view != kNone) return reuse(view, size);
  }
  const auto it = pools_[stream].large.lower_bound(Key{size, 0, 0});
  if (it != pools_[stream].large.end()) {
    const std::uint32_t id = std::get<2>(*it);
    erase_free(id);
    return hand_out(id, size);
  }
  if (!views_first) {
    if (const std::uint32_t view = find_view(size, stream); view != kNone) return reuse(view, size);
  }
  if (config_.stitch && config_.defrag_level == 0 && size >= config_.frag_limit &&
      pools_[stream].free >= size) {
    return stitch(size, stream);
  }
  if (const std::uint32_t id = create(size, stream); id != kNone) return hand_out(id, size);
  if (config_.stitch && pools_[stream].free > 0) {
    if (pools_[stream].free < size) {
      const std::uint32_t id = create(size - pools_[stream].free, stream);
      if (id != kNone) insert_free(id);
    }
    if (pools_[stream].free >= size) return stitch(size, stream);
  }
  if (free_bytes() > 0) {
    drop_caches();
    if (const std::uint32_t id = create(size, stream); id != kNone) return hand_out(id, size);
  }
  ++stats_.failures;
  return {};
}

template <StitchingBackend Backend>
bool StitchingAllocator<Backend>::could_serve(Bytes size, std::uint32_t stream) const {
  const std::uint64_t bytes = rounded(static_cast<std::uint64_t>(size.value));
  const Pool* home = stream < pools_.size() ? &pools_[stream] : nullptr;
  if (bytes < kStitchGranule && home != nullptr &&
      home->small.lower_bound(Key{bytes, 0, 0}) != home->small.end())
    return true;
  const std::uint64_t whole = std::max(bytes, kStitchGranule);
  if (backend_.left() >= whole) return true;
  if (home == nullptr) return false;
  if (config_.stitch) return backend_.left() + home->free >= whole;
  return home->large.lower_bound(Key{whole, 0, 0}) != home->large.end();
}

template <StitchingBackend Backend>
Bytes StitchingAllocator<Backend>::wanted(Bytes size) const {
  const std::uint64_t bytes = rounded(static_cast<std::uint64_t>(size.value));
  if (bytes >= kStitchGranule) return Bytes{static_cast<std::int64_t>(bytes)};
  for (const Pool& each : pools_) {
    if (each.small.lower_bound(Key{bytes, 0, 0}) != each.small.end()) return Bytes{0};
  }
  return Bytes{static_cast<std::int64_t>(kStitchGranule)};
}

template <StitchingBackend Backend>
void StitchingAllocator<Backend>::free(BlockId block, const ReuseTag& tag) {
  if (block == kNoBlock) return;
  const auto id = static_cast<std::uint32_t>(block);
  if ((id & kViewBit) != 0) {
    const std::uint32_t at = id & ~kViewBit;
    View& view = views_[at];
    stats_.occupied -= view.in_use;
    view.in_use = 0;
    view.idle_since = ++clock_;
    const std::vector<std::uint32_t> pieces = std::move(view.pieces);
    view.pieces.clear();
    for (const std::uint32_t piece : pieces) {
      to_free(piece, tag);
    }
    pools_[view.stream].views.insert({view.size, view.address, at});
    return;
  }
  if (id >= pieces_.size() || pieces_[id].state != State::used) {
    throw Error(ErrorKind::invariant, "a block is freed that is not allocated");
  }
  const std::uint32_t host = pieces_[id].host;
  if (host == kNone) {
    stats_.occupied -= pieces_[id].size;
    to_free(id, tag);
    return;
  }
  // A shared granule that is empty again serves large requests.
  Piece& piece = pieces_[id];
  const auto is_free = [this](std::uint32_t at) { return at == kNone || pieces_[at].state == State::free; };
  const bool empties = is_free(piece.prev) && is_free(piece.next) &&
                       (piece.prev == kNone || pieces_[piece.prev].prev == kNone) &&
                       (piece.next == kNone || pieces_[piece.next].next == kNone);
  if (!empties) return to_free(id, tag);
  ReuseTag all = piece.tag;
  all.join(tag);
  for (const std::uint32_t other : {piece.prev, piece.next}) {
    if (other == kNone) continue;
    all.join(pieces_[other].tag);
    erase_free(other);
    pieces_[other].state = State::vacant;
    vacant_pieces_.push_back(other);
  }
  pieces_[id].state = State::vacant;
  vacant_pieces_.push_back(id);
  stats_.occupied -= kStitchGranule;
  to_free(host, all);
}

template <StitchingBackend Backend>
auto StitchingAllocator<Backend>::extents(BlockId block) const -> std::vector<Extent> {
  const auto id = static_cast<std::uint32_t>(block);
  if ((id & kViewBit) == 0) return {{pieces_[id].address, pieces_[id].size}};
  std::vector<Extent> list;
  for (const std::uint32_t piece : views_[id & ~kViewBit].pieces) {
    list.push_back({pieces_[piece].address, pieces_[piece].size});
  }
  return list;
}

// ---- stitched ranges

// The free piece of the stream that holds the whole extent, or kNone.
template <StitchingBackend Backend>
std::uint32_t StitchingAllocator<Backend>::covering(const Extent& extent, std::uint32_t stream) const {
  auto it = by_address_.upper_bound(extent.address);
  if (it == by_address_.begin()) return kNone;
  const std::uint32_t id = std::prev(it)->second;
  const Piece& piece = pieces_[id];
  const bool covers = piece.state == State::free && piece.stream == stream &&
                      extent.address + extent.size <= piece.address + piece.size;
  return covers ? id : kNone;
}

template <StitchingBackend Backend>
bool StitchingAllocator<Backend>::usable(const View& view, std::uint64_t size) const {
  for (const Extent& extent : view.extents) {
    const std::uint64_t part = std::min(size, extent.size);
    if (covering({extent.address, part}, view.stream) == kNone) return false;
    size -= part;
    if (size == 0) break;
  }
  return true;
}

template <StitchingBackend Backend>
std::uint32_t StitchingAllocator<Backend>::find_view(std::uint64_t size, std::uint32_t stream) const {
  const Pool& home = pools_[stream];
  if (home.free < size) return kNone;
  for (auto it = home.views.lower_bound(Key{size, 0, 0}); it != home.views.end(); ++it) {
    const View& view = views_[std::get<2>(*it)];
    if (view.size / config_.reuse_limit > size) break;
    if (usable(view, size)) return std::get<2>(*it);
  }
  return kNone;
}

template <StitchingBackend Backend>
StitchedResult StitchingAllocator<Backend>::reuse(std::uint32_t id, std::uint64_t size) {
  std::vector<std::uint32_t> pieces;
  std::uint64_t missing = size;
  for (const Extent& extent : views_[id].extents) {
    const std::uint64_t part = std::min(missing, extent.size);
    std::uint32_t piece = covering({extent.address, part}, views_[id].stream);
    erase_free(piece);
    if (pieces_[piece].address < extent.address) {
      const std::uint32_t right = split(piece, extent.address - pieces_[piece].address);
      insert_free(piece);
      piece = right;
    }
    if (pieces_[piece].size > part) insert_free(split(piece, part));
    pieces_[piece].state = State::used;
    pieces.push_back(piece);
    missing -= part;
    if (missing == 0) break;
  }
  const View& view = views_[id];
  pools_[view.stream].views.erase({view.size, view.address, id});
  ++stats_.stitched_reuses;
  return use_view(id, size, std::move(pieces));
}

// At least `size` bytes of the stream are free. The choice of pieces is the public code's.
template <StitchingBackend Backend>
StitchedResult StitchingAllocator<Backend>::stitch(std::uint64_t size, std::uint32_t stream) {
  std::vector<std::uint32_t> pieces;
  std::vector<Extent> extents;
  const auto& large = pools_[stream].large;
  for (std::uint64_t missing = size; missing > 0;) {
    auto it = large.lower_bound(Key{missing, 0, 0});
    if (it == large.end()) it = std::prev(it);
    const std::uint32_t id = std::get<2>(*it);
    erase_free(id);
    if (pieces_[id].size > missing) insert_free(split(id, missing));
    pieces_[id].state = State::used;
    pieces.push_back(id);
    extents.push_back({pieces_[id].address, pieces_[id].size});
    missing -= pieces_[id].size;
  }
  if (stats_.stitched_bytes + size > config_.auto_gc) collect();
  std::uint32_t id;
  if (vacant_views_.empty()) {
    id = static_cast<std::uint32_t>(views_.size());
    views_.emplace_back();
  } else {
    id = vacant_views_.back();
    vacant_views_.pop_back();
  }
  View& view = views_[id];
  view.address = backend_.reserve(size);
  backend_.map(view.address, size);
  view.size = view.range = size;
  view.extents = std::move(extents);
  view.stream = stream;
  view.vacant = false;
  stats_.stitched_bytes += size;
  ++stats_.stitches;
  return use_view(id, size, std::move(pieces));
}

template <StitchingBackend Backend>
StitchedResult StitchingAllocator<Backend>::use_view(std::uint32_t id, std::uint64_t size,
                                                     std::vector<std::uint32_t>&& pieces) {
  ReuseTag tag;
  for (const std::uint32_t piece : pieces) tag.join(pieces_[piece].tag);
  View& view = views_[id];
  view.pieces = std::move(pieces);
  view.in_use = size;
  occupy(size);
  return {BlockId{id | kViewBit}, view.address, tag};
}

// An idle range; the device must have done everything that used it.
template <StitchingBackend Backend>
void StitchingAllocator<Backend>::remove_view(std::uint32_t id) {
  View& view = views_[id];
  pools_[view.stream].views.erase({view.size, view.address, id});
  backend_.unmap(view.address, view.size);
  backend_.release(view.address, view.range);
  stats_.stitched_bytes -= view.size;
  view = {};
  vacant_views_.push_back(id);
}

template <StitchingBackend Backend>
void StitchingAllocator<Backend>::collect() {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> idle;
  for (std::uint32_t id = 0; id < views_.size(); ++id) {
    if (!views_[id].vacant && views_[id].in_use == 0) idle.push_back({views_[id].idle_since, id});
  }
  if (idle.empty()) return;
  std::sort(idle.begin(), idle.end());
  backend_.synchronize();
  ++stats_.collections;
  std::uint64_t gone = 0;
  for (const auto& [since, id] : idle) {
    gone += views_[id].size;
    remove_view(id);
    if (gone > config_.gc_thresh) break;
  }
}

// Every free granule goes back to the device, and every range that no block uses.
template <StitchingBackend Backend>
void StitchingAllocator<Backend>::drop_caches() {
  backend_.synchronize();
  ++stats_.drops;
  for (std::uint32_t id = 0; id < views_.size(); ++id) {
    View& view = views_[id];
    if (view.vacant) continue;
    if (view.in_use == 0) {
      remove_view(id);
    } else if (view.in_use < view.size) {  // the granules behind the block may go
      backend_.unmap(view.address + view.in_use, view.size - view.in_use);
      stats_.stitched_bytes -= view.size - view.in_use;
      view.size = view.in_use;
      view.extents.clear();
      for (const std::uint32_t piece : view.pieces) {
        view.extents.push_back({pieces_[piece].address, pieces_[piece].size});
      }
    }
  }
  for (Pool& each : pools_) {
    for (const Key& free : each.large) {
      const std::uint32_t id = std::get<2>(free);
      const Piece& piece = pieces_[id];
      if (piece.prev != kNone) pieces_[piece.prev].next = kNone;
      if (piece.next != kNone) pieces_[piece.next].prev = kNone;
      by_address_.erase(piece.address);
      backend_.unmap(piece.address, piece.size);
      backend_.destroy(piece.size);
      ++stats_.destroys;
      stats_.reserved -= piece.size;
      Segment& segment = segments_[piece.segment];
      segment.mapped -= piece.size;
      if (segment.mapped == 0) backend_.release(segment.address, segment.size);
      pieces_[id].state = State::vacant;
      vacant_pieces_.push_back(id);
    }
    each.large.clear();
    each.free = 0;
  }
}

}  // namespace swaplab
