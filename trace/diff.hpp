// How far two operator sequences differ: edit distance, histogram cosine, alignment, changed bytes.
//
// Two views of an operator are compared: its name, and its signature (name, shapes, dtypes, integer
// attributes). A change of sequence length leaves every name in place and changes most signatures.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trace/model.hpp"

namespace swaplab {

using Token = std::uint32_t;  // equal tokens = equal operators; only meaningful within one comparison

// Levenshtein distance (insert, delete, substitute: 1 each). Myers' bit-parallel algorithm in blocks of
// 64 rows: time |a| |b| / 64 after the common ends are cut off, memory linear.
// G. Myers, J. ACM 46(3), 1999; block form H. Hyyrö, 2003.
std::uint64_t edit_distance(std::span<const Token> a, std::span<const Token> b);

// For every element of b the index of the equal element of a that an optimal edit script keeps, or
// kNever. Indices increase. Hirschberg's division over the distance above: twice its time, linear memory.
std::vector<std::uint32_t> align_sequences(std::span<const Token> a, std::span<const Token> b);

// Cosine of the angle between the histograms of two sequences, in parts per million, rounded down;
// 1'000'000 for two empty ones, 0 when only one is empty. Integers and one correctly rounded square root,
// so equal everywhere.
std::int64_t histogram_cosine_ppm(std::span<const Token> a, std::span<const Token> b);

struct OpRange {
  std::uint32_t first = 0, end = 0;  // half-open
  std::uint32_t size() const { return end - first; }
};
inline OpRange operators_of(const Iteration& iteration) {
  return {iteration.first_op, iteration.end_op};
}

// Tokens for the operators of several traces in one number space.
class TokenTable {
 public:
  TokenTable();
  ~TokenTable();
  TokenTable(const TokenTable&) = delete;
  TokenTable& operator=(const TokenTable&) = delete;
  // One token per operator of the range, in order.
  std::vector<Token> names(const Trace& trace, OpRange range);
  std::vector<Token> signatures(const Trace& trace, OpRange range);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct SequenceDiff {
  std::uint32_t operators_a = 0, operators_b = 0;
  std::uint64_t name_edits = 0, signature_edits = 0;
  std::int64_t name_cosine_ppm = 0, signature_cosine_ppm = 0;
  // Bytes that operators allocate, compared after alignment by name: the absolute difference where an
  // operator has a counterpart, all of them where it has none.
  Bytes changed_bytes;
  std::int64_t length_difference() const {
    return static_cast<std::int64_t>(operators_b) - static_cast<std::int64_t>(operators_a);
  }
  bool equal() const { return name_edits == 0 && signature_edits == 0 && changed_bytes == Bytes{0}; }
};

SequenceDiff diff_operators(const Trace& a, OpRange in_a, const Trace& b, OpRange in_b);

}  // namespace swaplab
