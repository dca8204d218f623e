// Free blocks of one stream in one pool, ordered by (size, address).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "sim/allocator/block.hpp"

namespace swaplab::allocator_detail {

// An exact ordered set in place of PyTorch's red-black tree. A bin holds the blocks of one size (up to
// 64 KiB) or of 1/64 of a power of two (above); a two-level bitmap finds the next occupied bin. Within
// a bin the rest of (size, address) fits one 64-bit key, kept sorted in chunks of one or, for crowded
// bins, several arrays. Sizes and addresses are multiples of 512, sizes below 2^41, addresses below 2^48.
class FreeBins {
 public:
  static constexpr std::uint64_t kSizeEnd = std::uint64_t{1} << 41;

  // A position; stays valid until the next change.
  struct Cursor {
    std::uint32_t id = kNone;  // block id, kNone at the end
    std::uint32_t bin = 0, chunk = 0, slot = 0;
    explicit operator bool() const { return id != kNone; }
  };

  FreeBins() { bins_.fill({kNone, kNone}); }

  void insert(std::uint64_t size, std::uint64_t address, std::uint32_t id) {
    const Place place = place_of(size, address);
    Bin& bin = bins_[place.bin];
    if (bin.chunk == kNone) {
      bin.chunk = new_chunk();
      Chunk& fresh = chunks_[bin.chunk];
      fresh.count = 1;
      fresh.entries[0] = {place.key, id};
      mark(place.bin);
      return;
    }
    std::uint32_t index = bin.chunk;
    if (bin.wide != kNone || chunks_[index].count == kChunkEntries) [[unlikely]] {
      index = chunk_with_room(bin, place.key);
    }
    Chunk& chunk = chunks_[index];
    std::uint32_t slot = chunk.count++;
    for (; slot > 0 && chunk.entries[slot - 1].key > place.key; --slot) {
      chunk.entries[slot] = chunk.entries[slot - 1];
    }
    chunk.entries[slot] = {place.key, id};
  }

  // The block must be present.
  void erase(std::uint64_t size, std::uint64_t address) {
    const Place place = place_of(size, address);
    const Bin& bin = bins_[place.bin];
    const std::uint32_t index = bin.wide == kNone ? bin.chunk : chunk_for(bin, place.key);
    erase_slot(place.bin, index, first_at_least(chunks_[index], place.key));
  }
  void erase(const Cursor& at) { erase_slot(at.bin, at.chunk, at.slot); }

  // First block of at least `size` bytes.
  Cursor lower_bound(std::uint64_t size) const {
    if (size >= kSizeEnd) return {};
    const Place place = place_of(size, 0);
    const Bin& bin = bins_[place.bin];
    if (bin.chunk != kNone) {
      const std::uint32_t index = bin.wide == kNone ? bin.chunk : chunk_for(bin, place.key);
      const Chunk& chunk = chunks_[index];
      const std::uint32_t slot = first_at_least(chunk, place.key);
      if (slot < chunk.count) return {chunk.entries[slot].id, place.bin, index, slot};
      if (bin.wide != kNone) return next(Cursor{0, place.bin, index, chunk.count - 1});
    }
    return first_in_bin_from(place.bin + 1);
  }
  Cursor first() const { return first_in_bin_from(0); }
  Cursor last() const;
  Cursor next(const Cursor& at) const;

 private:
  static constexpr std::uint32_t kChunkEntries = 31;
  static constexpr std::uint32_t kAddressBits = 39;  // of an address in 512-byte units
  static constexpr std::uint32_t kBins = 64 * 25 + 128;
  static constexpr std::uint32_t kWords = (kBins + 63) / 64;

  struct Entry {
    std::uint64_t key = 0;
    std::uint32_t id = kNone;
  };
  struct Chunk {
    std::uint32_t count = 0;
    std::uint32_t next_free = kNone;
    std::array<Entry, kChunkEntries> entries;
  };
  struct Bin {
    std::uint32_t chunk;  // the first one, or kNone
    std::uint32_t wide;   // index into wide_ when there are several
  };
  struct Place {
    std::uint32_t bin;
    std::uint64_t key;
  };

  static Place place_of(std::uint64_t size, std::uint64_t address) {
    const std::uint64_t units = size >> 9;
    const auto width = static_cast<std::uint32_t>(std::bit_width(units | 64));
    const std::uint32_t shift = width - 7;
    const auto bin = static_cast<std::uint32_t>(std::uint64_t{64} * shift + (units >> shift));
    const std::uint64_t offset = units & ((std::uint64_t{1} << shift) - 1);
    return {bin, offset << kAddressBits | address >> 9};
  }

  static std::uint32_t first_at_least(const Chunk& chunk, std::uint64_t key) {
    std::uint32_t base = 0;
    std::uint32_t count = chunk.count;
    while (count > 4) {
      const std::uint32_t half = count / 2;
      base = chunk.entries[base + half - 1].key < key ? base + half : base;
      count -= half;
    }
    while (base < chunk.count && chunk.entries[base].key < key) ++base;
    return base;
  }

  void mark(std::uint32_t bin) {
    words_[bin >> 6] |= std::uint64_t{1} << (bin & 63);
    summary_ |= std::uint32_t{1} << (bin >> 6);
  }
  void unmark(std::uint32_t bin) {
    words_[bin >> 6] &= ~(std::uint64_t{1} << (bin & 63));
    if (words_[bin >> 6] == 0) summary_ &= ~(std::uint32_t{1} << (bin >> 6));
  }

  Cursor first_in_bin_from(std::uint32_t bin) const {
    std::uint32_t word = bin >> 6;
    if (word >= kWords) return {};
    std::uint64_t bits = words_[word] & (~std::uint64_t{0} << (bin & 63));
    if (bits == 0) {
      const std::uint32_t later = summary_ & (~std::uint32_t{0} << (word + 1));
      if (later == 0) return {};
      word = static_cast<std::uint32_t>(std::countr_zero(later));
      bits = words_[word];
    }
    const std::uint32_t found = word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
    const std::uint32_t index = bins_[found].chunk;
    return {chunks_[index].entries[0].id, found, index, 0};
  }

  void erase_slot(std::uint32_t bin_index, std::uint32_t index, std::uint32_t slot) {
    Chunk& chunk = chunks_[index];
    const std::uint32_t count = --chunk.count;
    if (count == 0) {
      Bin& bin = bins_[bin_index];
      if (bin.wide != kNone) [[unlikely]] {
        drop_from_wide(bin, index);
      } else {
        bin.chunk = kNone;
        unmark(bin_index);
      }
      chunk.next_free = free_chunk_;
      free_chunk_ = index;
      return;
    }
    for (; slot < count; ++slot) chunk.entries[slot] = chunk.entries[slot + 1];
  }

  std::uint32_t new_chunk() {
    if (free_chunk_ == kNone) [[unlikely]]
      return grow_chunks();
    const std::uint32_t index = free_chunk_;
    free_chunk_ = chunks_[index].next_free;
    return index;
  }

  std::uint32_t grow_chunks();
  std::uint32_t chunk_for(const Bin& bin, std::uint64_t key) const;  // the one whose range holds key
  std::uint32_t chunk_with_room(Bin& bin, std::uint64_t key);
  void drop_from_wide(Bin& bin, std::uint32_t index);

  std::uint32_t summary_ = 0;
  std::uint32_t free_chunk_ = kNone;
  std::array<std::uint64_t, kWords> words_{};
  std::array<Bin, kBins> bins_;
  std::vector<Chunk> chunks_;
  std::vector<std::vector<std::uint32_t>> wide_;  // chunks of crowded bins, in key order
  std::vector<std::uint32_t> free_wide_;
};

}  // namespace swaplab::allocator_detail
