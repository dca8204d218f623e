// Layers of v2: the longest operator sequence that occurs exactly K times. The public code tries every
// length and counts; here a suffix array gives all groups of equal sequences at once, in O(n log n).
#include <algorithm>
#include <deque>
#include <numeric>

#include "policy/chameleon/generator.hpp"

namespace swaplab::chameleon {
namespace {

// Positions in the lexicographic order of their suffixes (prefix doubling with counting sort).
std::vector<std::uint32_t> suffix_array(std::span<const std::uint32_t> text) {
  const auto n = static_cast<std::uint32_t>(text.size());
  std::vector<std::uint32_t> order(n), rank(n), next(n), count;
  // Initial ranks: dense ids of the names.
  std::vector<std::uint32_t> distinct(text.begin(), text.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (std::uint32_t i = 0; i < n; ++i) {
    rank[i] = static_cast<std::uint32_t>(std::lower_bound(distinct.begin(), distinct.end(), text[i]) -
                                         distinct.begin());
  }
  std::vector<std::uint32_t> second(n);
  std::iota(second.begin(), second.end(), 0U);
  auto ranks = static_cast<std::uint32_t>(distinct.size());
  for (std::uint32_t width = 0;; width = width == 0 ? 1 : 2 * width) {
    if (width > 0) {  // by the second half: suffixes without one come first
      std::uint32_t at = 0;
      for (std::uint32_t i = n - width; i < n; ++i) second[at++] = i;
      for (std::uint32_t i = 0; i < n; ++i) {
        if (order[i] >= width) second[at++] = order[i] - width;
      }
    }
    count.assign(ranks + 1, 0);
    for (std::uint32_t i = 0; i < n; ++i) ++count[rank[i] + 1];
    for (std::uint32_t r = 0; r < ranks; ++r) count[r + 1] += count[r];
    for (std::uint32_t i = 0; i < n; ++i) order[count[rank[second[i]]]++] = second[i];
    const auto half = [&](std::uint32_t i) { return i + width < n ? std::int64_t{rank[i + width]} : -1; };
    std::uint32_t fresh = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (i > 0) {
        const std::uint32_t a = order[i - 1], b = order[i];
        const bool same = rank[a] == rank[b] && (width == 0 || half(a) == half(b));
        if (!same) ++fresh;
      }
      next[order[i]] = fresh;
    }
    rank.swap(next);
    ranks = fresh + 1;
    if (ranks == n || width >= n) return order;
  }
}

// common[i]: length of the common prefix of the suffixes order[i-1] and order[i] (Kasai).
std::vector<std::uint32_t> common_prefixes(std::span<const std::uint32_t> text,
                                           const std::vector<std::uint32_t>& order) {
  const auto n = static_cast<std::uint32_t>(text.size());
  std::vector<std::uint32_t> place(n), common(n + 1, 0);
  for (std::uint32_t i = 0; i < n; ++i) place[order[i]] = i;
  std::uint32_t length = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (place[i] == 0) {
      length = 0;
      continue;
    }
    const std::uint32_t j = order[place[i] - 1];
    while (i + length < n && j + length < n && text[i + length] == text[j + length]) ++length;
    common[place[i]] = length;
    if (length > 0) --length;
  }
  return common;
}

}  // namespace

std::vector<std::int64_t> pattern_layer_starts(std::span<const std::uint32_t> names,
                                               std::span<const std::uint8_t> is_attention,
                                               std::int64_t count) {
  const auto n = static_cast<std::uint32_t>(names.size());
  if (count < 1 || count > static_cast<std::int64_t>(n)) return {};
  const auto k = static_cast<std::uint32_t>(count);
  const std::vector<std::uint32_t> order = suffix_array(names);
  const std::vector<std::uint32_t> common = common_prefixes(names, order);
  // Shortest sequence from a position that holds an attention operator.
  std::vector<std::uint32_t> needed(n);
  for (std::uint32_t i = n, next = kNever; i-- > 0;) {
    if (is_attention[i] != 0) next = i;
    needed[i] = next == kNever ? kNever : next - i + 1;
  }
  // Every window of K neighbouring suffixes is the group of one sequence, for lengths above what it
  // shares with its neighbours and up to what its members share.
  std::uint32_t best_length = 0, best_window = 0, best_first = kNever;
  std::deque<std::uint32_t> shared_minimum, first_minimum;  // indices, values ascending
  for (std::uint32_t i = 0; i < n; ++i) {
    while (!first_minimum.empty() && order[first_minimum.back()] > order[i]) first_minimum.pop_back();
    first_minimum.push_back(i);
    while (!shared_minimum.empty() && common[shared_minimum.back()] >= common[i]) shared_minimum.pop_back();
    shared_minimum.push_back(i);
    if (i + 1 < k) continue;
    const std::uint32_t begin = i + 1 - k;
    while (first_minimum.front() < begin) first_minimum.pop_front();
    while (!shared_minimum.empty() && shared_minimum.front() <= begin) shared_minimum.pop_front();
    const std::uint32_t first = order[first_minimum.front()];
    const std::uint32_t shared = k == 1 ? n - first : common[shared_minimum.front()];
    const std::uint32_t outside = std::max(common[begin], i + 1 < n ? common[i + 1] : 0U);
    const std::uint32_t length = std::min(shared, n / k);
    if (length == 0 || length <= outside || length < needed[first]) continue;
    if (length > best_length || (length == best_length && first < best_first)) {
      best_length = length;
      best_window = begin;
      best_first = first;
    }
  }
  if (best_length == 0) return {};
  std::vector<std::int64_t> starts(order.begin() + best_window, order.begin() + best_window + k);
  std::sort(starts.begin(), starts.end());
  starts.erase(starts.begin());
  return starts;
}

}  // namespace swaplab::chameleon
