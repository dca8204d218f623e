// The rare paths of FreeBins: crowded bins and iteration.
#include "sim/allocator/free_bins.hpp"

#include <algorithm>

namespace swaplab::allocator_detail {

FreeBins::Cursor FreeBins::last() const {
  if (summary_ == 0) return {};
  const auto word = 31 - static_cast<std::uint32_t>(std::countl_zero(summary_));
  const auto bit = 63 - static_cast<std::uint32_t>(std::countl_zero(words_[word]));
  const std::uint32_t found = word * 64 + bit;
  const Bin& bin = bins_[found];
  const std::uint32_t index = bin.wide == kNone ? bin.chunk : wide_[bin.wide].back();
  const Chunk& chunk = chunks_[index];
  return {chunk.entries[chunk.count - 1].id, found, index, chunk.count - 1};
}

FreeBins::Cursor FreeBins::next(const Cursor& at) const {
  const Chunk& chunk = chunks_[at.chunk];
  if (at.slot + 1 < chunk.count) {
    return {chunk.entries[at.slot + 1].id, at.bin, at.chunk, at.slot + 1};
  }
  const Bin& bin = bins_[at.bin];
  if (bin.wide != kNone) {
    const std::vector<std::uint32_t>& chunks = wide_[bin.wide];
    const auto following = std::find(chunks.begin(), chunks.end(), at.chunk) + 1;
    if (following != chunks.end()) return {chunks_[*following].entries[0].id, at.bin, *following, 0};
  }
  return first_in_bin_from(at.bin + 1);
}

std::uint32_t FreeBins::grow_chunks() {
  chunks_.emplace_back();
  return static_cast<std::uint32_t>(chunks_.size() - 1);
}

std::uint32_t FreeBins::chunk_for(const Bin& bin, std::uint64_t key) const {
  const std::vector<std::uint32_t>& chunks = wide_[bin.wide];
  const auto after = std::partition_point(chunks.begin() + 1, chunks.end(), [&](std::uint32_t index) {
    return chunks_[index].entries[0].key <= key;
  });
  return *(after - 1);
}

std::uint32_t FreeBins::chunk_with_room(Bin& bin, std::uint64_t key) {
  const std::uint32_t full = bin.wide == kNone ? bin.chunk : chunk_for(bin, key);
  if (chunks_[full].count < kChunkEntries) return full;
  if (bin.wide == kNone) {
    if (free_wide_.empty()) {
      free_wide_.push_back(static_cast<std::uint32_t>(wide_.size()));
      wide_.emplace_back();
    }
    bin.wide = free_wide_.back();
    free_wide_.pop_back();
    wide_[bin.wide].assign(1, full);
  }
  // The upper half moves to a chunk of its own behind the full one.
  const std::uint32_t upper = new_chunk();
  Chunk& from = chunks_[full];
  Chunk& to = chunks_[upper];
  constexpr std::uint32_t kept = kChunkEntries / 2;
  std::copy(from.entries.begin() + kept, from.entries.end(), to.entries.begin());
  from.count = kept;
  to.count = kChunkEntries - kept;
  std::vector<std::uint32_t>& chunks = wide_[bin.wide];
  chunks.insert(std::find(chunks.begin(), chunks.end(), full) + 1, upper);
  return key < to.entries[0].key ? full : upper;
}

void FreeBins::drop_from_wide(Bin& bin, std::uint32_t index) {
  std::vector<std::uint32_t>& chunks = wide_[bin.wide];
  chunks.erase(std::find(chunks.begin(), chunks.end(), index));
  bin.chunk = chunks.front();
  if (chunks.size() == 1) {
    free_wide_.push_back(bin.wide);
    bin.wide = kNone;
  }
}

}  // namespace swaplab::allocator_detail
