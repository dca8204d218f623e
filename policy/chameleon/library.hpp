// Recognition: the sequences that `adaptive` knows, which of them an iteration is, and which should come
// next.
//
// A sequence is known by its signatures (names and shapes), so that other lengths and other routings are
// other sequences. An iteration that is within a few edits of a known one, with about its memory, counts as
// that one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "policy/chameleon/learned.hpp"
#include "policy/chameleon/tuning.hpp"

namespace swaplab::adaptive {

struct Entry {
  LearnedIteration it;
  std::vector<std::int64_t> clock;  // ns of kernels, or of issuing them, before each operator
  Tuning tuning;
  std::uint64_t plans = 0;  // made so far
  Bytes peak{0};            // largest sum of objects alive
  std::int64_t used = 0;    // iteration that used it last
};

Bytes peak_of(const LearnedIteration& it);

class Library {
 public:
  static constexpr std::size_t kNone = ~std::size_t{0};

  // `kept`: entries, at least 1. Iterations share an entry when less than `same_sequence` of the operators
  // are edited and the peaks are at most `same_memory` apart.
  Library(std::int64_t kept, Ppm same_sequence, Ppm same_memory)
      : kept_(static_cast<std::size_t>(kept)), same_sequence_(same_sequence), same_memory_(same_memory) {}

  Entry& operator[](std::size_t entry) { return *entries_[entry]; }
  const Entry& operator[](std::size_t entry) const { return *entries_[entry]; }

  // Entry of the newest iteration that is over; kNone before the first.
  std::size_t last() const { return history_.empty() ? kNone : history_.back(); }
  // What should follow it; kNone before the first.
  std::size_t next() const { return history_.empty() ? kNone : predict(history_); }
  // What should follow while `running` runs, nearest first.
  std::vector<std::size_t> forecast(std::size_t running, std::size_t count) const;

  struct Match {
    std::size_t entry = kNone;
    bool exact = false;  // by signature; else by name only
  };
  // The entry but `except` that begins with operators [0, k] of `now`: by signature where there is one, the
  // most recently used.
  Match beginning_with(const LearnedIteration& now, std::uint32_t k, std::size_t except) const;
  // The entry that a whole iteration belongs to, kNone when it is new.
  std::size_t find(const LearnedIteration& it) const;
  static bool identical(const LearnedIteration& a, const LearnedIteration& b);

  // In a new place, or in that of the least recently used entry, which is forgotten.
  std::size_t add(std::unique_ptr<Entry> entry);
  // `iteration` is over and was `entry`.
  void note(std::size_t entry, std::int64_t iteration);

 private:
  static constexpr std::ptrdiff_t kHistory = 4096;
  std::size_t predict(const std::vector<std::size_t>& past) const;

  const std::size_t kept_;
  const Ppm same_sequence_, same_memory_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::size_t> history_;  // entries of the iterations so far, oldest first; kNone: forgotten
};

}  // namespace swaplab::adaptive
