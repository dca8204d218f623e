// The lightweight profile: an iteration as a sequence of integers, one per operator name, and the test
// whether two iterations differ.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/machine.hpp"
#include "trace/ids.hpp"

namespace swaplab::chameleon {

// Operator name -> 1, 2, ... in order of first appearance. All that the lightweight profiler keeps.
class TokenTable {
 public:
  std::uint32_t token(NameId name) {
    const std::uint32_t n = index(name);
    if (n >= tokens_.size()) tokens_.resize(n + 1, 0);
    if (tokens_[n] == 0) {
      names_.push_back(name);
      tokens_[n] = static_cast<std::uint32_t>(names_.size());
    }
    return tokens_[n];
  }
  const std::vector<NameId>& names() const { return names_; }  // of token i + 1

 private:
  std::vector<std::uint32_t> tokens_;  // by NameId; 0 unknown
  std::vector<NameId> names_;
};

enum class Detector : std::uint8_t { length_and_cosine, length, off };
enum class Similarity : std::uint8_t { sequence, counts };

struct DetectorParams {
  Detector detector = Detector::length_and_cosine;
  Similarity similarity = Similarity::sequence;
  Ppm length_ppm = 50'000;   // differ when the lengths do by at least this share of the reference
  Ppm cosine_ppm = 950'000;  // differ when the cosine is below
};

// Exact: compared as integers, no root is taken.
bool lengths_differ(std::size_t reference, std::size_t now, Ppm share);
// The shorter sequence is padded with zeros (how the paper aligns unequal lengths is not public).
bool cosine_below(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, Similarity kind,
                  Ppm threshold);
bool sequences_differ(std::span<const std::uint32_t> reference, std::span<const std::uint32_t> now,
                      const DetectorParams& params);

}  // namespace swaplab::chameleon
