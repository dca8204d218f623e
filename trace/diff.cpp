#include "trace/diff.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>

namespace swaplab {
namespace {

using Tokens = std::span<const Token>;

// Horizontal differences of the last row of the distance matrix: D[|a|][j+1] - D[|a|][j], for all j.
// `equal` is scratch with one zero word per token value.
class DistanceRows {
 public:
  explicit DistanceRows(std::size_t token_count) : equal_(token_count, 0) {}

  template <bool reversed>
  std::span<const std::int8_t> last_row(Tokens a, Tokens b) {
    steps_.assign(b.size(), 1);  // row 0: D[0][j] = j
    for (std::size_t row = 0; row < a.size(); row += 64) block<reversed>(a, row, b);
    return steps_;
  }

 private:
  template <bool reversed>
  static Token at(Tokens s, std::size_t i) {
    return reversed ? s[s.size() - 1 - i] : s[i];
  }

  template <bool reversed>
  void block(Tokens a, std::size_t row, Tokens b) {
    const std::size_t rows = std::min<std::size_t>(64, a.size() - row);
    for (std::size_t i = 0; i < rows; ++i) equal_[at<reversed>(a, row + i)] |= std::uint64_t{1} << i;
    const std::uint64_t last = std::uint64_t{1} << (rows - 1);
    std::uint64_t up = ~std::uint64_t{0}, down = 0;  // vertical differences +1, -1
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::int8_t in = steps_[j];
      std::uint64_t match = equal_[at<reversed>(b, j)];
      const std::uint64_t vertical = match | down;
      match |= in < 0 ? 1u : 0u;
      const std::uint64_t horizontal = (((match & up) + up) ^ up) | match;
      std::uint64_t right_up = down | ~(horizontal | up);
      std::uint64_t right_down = up & horizontal;
      steps_[j] =
          static_cast<std::int8_t>(((right_up & last) != 0 ? 1 : 0) - ((right_down & last) != 0 ? 1 : 0));
      right_up = right_up << 1 | (in > 0 ? 1u : 0u);
      right_down = right_down << 1 | (in < 0 ? 1u : 0u);
      up = right_down | ~(vertical | right_up);
      down = right_up & vertical;
    }
    for (std::size_t i = 0; i < rows; ++i) equal_[at<reversed>(a, row + i)] = 0;
  }

  std::vector<std::uint64_t> equal_;
  std::vector<std::int8_t> steps_;
};

std::size_t common_prefix(Tokens a, Tokens b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}
std::size_t common_suffix(Tokens a, Tokens b) {
  const auto ends = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return static_cast<std::size_t>(ends.first - a.rbegin());
}

std::size_t token_count(Tokens a, Tokens b) {
  Token largest = 0;
  for (const Token t : a) largest = std::max(largest, t);
  for (const Token t : b) largest = std::max(largest, t);
  return std::size_t{largest} + 1;
}

class Aligner {
 public:
  Aligner(Tokens a, Tokens b) : rows_(token_count(a, b)), kept_(b.size(), kNever) { divide(a, b, 0, 0); }
  std::vector<std::uint32_t> result() { return std::move(kept_); }

 private:
  void divide(Tokens a, Tokens b, std::size_t a0, std::size_t b0) {
    const std::size_t prefix = common_prefix(a, b);
    keep(prefix, a0, b0);
    a = a.subspan(prefix);
    b = b.subspan(prefix);
    a0 += prefix;
    b0 += prefix;
    const std::size_t suffix = common_suffix(a, b);
    keep(suffix, a0 + a.size() - suffix, b0 + b.size() - suffix);
    a = a.first(a.size() - suffix);
    b = b.first(b.size() - suffix);
    if (a.empty() || b.empty()) return;
    if (a.size() == 1) {
      const auto found = std::find(b.begin(), b.end(), a[0]);
      if (found != b.end()) keep(1, a0, b0 + static_cast<std::size_t>(found - b.begin()));
      return;
    }
    const std::size_t half = a.size() / 2;
    // The column where an optimal script crosses the middle row: the smallest sum of both halves.
    std::vector<std::int64_t> cost(b.size() + 1);
    const auto head = rows_.last_row<false>(a.first(half), b);
    cost[0] = static_cast<std::int64_t>(half);
    for (std::size_t j = 0; j < b.size(); ++j) cost[j + 1] = cost[j] + head[j];
    const auto tail = rows_.last_row<true>(a.subspan(half), b);
    auto rest = static_cast<std::int64_t>(a.size() - half);
    for (std::size_t j = b.size();; --j) {
      cost[j] += rest;
      if (j == 0) break;
      rest += tail[b.size() - j];
    }
    const auto split = static_cast<std::size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin());
    divide(a.first(half), b.first(split), a0, b0);
    divide(a.subspan(half), b.subspan(split), a0 + half, b0 + split);
  }
  void keep(std::size_t count, std::size_t a0, std::size_t b0) {
    for (std::size_t i = 0; i < count; ++i) kept_[b0 + i] = static_cast<std::uint32_t>(a0 + i);
  }

  DistanceRows rows_;
  std::vector<std::uint32_t> kept_;
};

// Bytes that each operator of the range allocates.
std::vector<std::int64_t> allocated_bytes(const Trace& trace, OpRange range) {
  std::vector<std::int64_t> bytes;
  bytes.reserve(range.size());
  for (std::uint32_t op = range.first; op < range.end; ++op) {
    std::int64_t sum = 0;
    for (const Event& event : trace.gap(op)) {
      if (event.kind == EventKind::alloc_op) sum += trace.storages.bytes[event.arg].value;
    }
    bytes.push_back(sum);
  }
  return bytes;
}

}  // namespace

std::uint64_t edit_distance(Tokens a, Tokens b) {
  const std::size_t prefix = common_prefix(a, b);
  a = a.subspan(prefix);
  b = b.subspan(prefix);
  const std::size_t suffix = common_suffix(a, b);
  a = a.first(a.size() - suffix);
  b = b.first(b.size() - suffix);
  if (a.empty() || b.empty()) return std::max(a.size(), b.size());
  DistanceRows rows(token_count(a, b));
  auto distance = static_cast<std::int64_t>(a.size());
  for (const std::int8_t step : rows.last_row<false>(a, b)) distance += step;
  return static_cast<std::uint64_t>(distance);
}

std::vector<std::uint32_t> align_sequences(Tokens a, Tokens b) {
  return Aligner(a, b).result();
}

std::int64_t histogram_cosine_ppm(Tokens a, Tokens b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty() ? 1'000'000 : 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> counts(token_count(a, b));
  for (const Token t : a) ++counts[t].first;
  for (const Token t : b) ++counts[t].second;
  std::uint64_t dot = 0, norm_a = 0, norm_b = 0;
  bool same = true;
  for (const auto& [in_a, in_b] : counts) {
    dot += in_a * in_b;
    norm_a += in_a * in_a;
    norm_b += in_b * in_b;
    same &= in_a == in_b;
  }
  if (same) return 1'000'000;  // not subject to the rounding of the product below
  const double product = static_cast<double>(norm_a) * static_cast<double>(norm_b);
  const double scaled = static_cast<double>(dot) * 1'000'000;
  const auto ppm = static_cast<std::int64_t>(scaled / std::sqrt(product));
  return std::min<std::int64_t>(ppm, 1'000'000);
}

struct TokenTable::Impl {
  std::unordered_map<std::string, Token> ids;
  Token id(std::string text) {
    return ids.try_emplace(std::move(text), static_cast<Token>(ids.size())).first->second;
  }

  template <class Text>
  std::vector<Token> tokens(const Trace& trace, OpRange range, Text text) {
    std::vector<Token> of_signature(trace.signatures.size(), kNever), result;
    result.reserve(range.size());
    for (std::uint32_t op = range.first; op < range.end; ++op) {
      const std::uint32_t signature = index(trace.ops.signature[op]);
      if (of_signature[signature] == kNever) of_signature[signature] = id(text(signature));
      result.push_back(of_signature[signature]);
    }
    return result;
  }
};

TokenTable::TokenTable() : impl_(std::make_unique<Impl>()) {}
TokenTable::~TokenTable() = default;

std::vector<Token> TokenTable::names(const Trace& trace, OpRange range) {
  return impl_->tokens(trace, range, [&](std::uint32_t signature) {
    return std::string(trace.names[trace.signatures.name[signature]]);
  });
}

std::vector<Token> TokenTable::signatures(const Trace& trace, OpRange range) {
  return impl_->tokens(trace, range, [&](std::uint32_t signature) {
    // A line end separates both texts: neither can hold one.
    return std::string(trace.names[trace.signatures.name[signature]]) + '\n' +
           std::string(trace.names[trace.signatures.detail[signature]]);
  });
}

SequenceDiff diff_operators(const Trace& a, OpRange in_a, const Trace& b, OpRange in_b) {
  TokenTable table;
  const std::vector<Token> names_a = table.names(a, in_a), names_b = table.names(b, in_b);
  const std::vector<Token> signatures_a = table.signatures(a, in_a), signatures_b = table.signatures(b, in_b);
  SequenceDiff diff;
  diff.operators_a = in_a.size();
  diff.operators_b = in_b.size();
  diff.name_edits = edit_distance(names_a, names_b);
  diff.signature_edits = edit_distance(signatures_a, signatures_b);
  diff.name_cosine_ppm = histogram_cosine_ppm(names_a, names_b);
  diff.signature_cosine_ppm = histogram_cosine_ppm(signatures_a, signatures_b);
  const std::vector<std::int64_t> bytes_a = allocated_bytes(a, in_a), bytes_b = allocated_bytes(b, in_b);
  const std::vector<std::uint32_t> kept = align_sequences(names_a, names_b);
  std::int64_t changed = 0;
  for (const std::int64_t bytes : bytes_a) changed += bytes;
  for (std::size_t j = 0; j < kept.size(); ++j) {
    if (kept[j] == kNever) {
      changed += bytes_b[j];
    } else {
      changed += std::abs(bytes_b[j] - bytes_a[kept[j]]) - bytes_a[kept[j]];
    }
  }
  diff.changed_bytes = Bytes{changed};
  return diff;
}

}  // namespace swaplab
