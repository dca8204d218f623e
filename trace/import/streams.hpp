// Streams of a recording by number of the trace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trace/model.hpp"

namespace swaplab {

// `busy` is the device time, ns, of each stream. The busiest stream gets number 0 (equal ones in the order of
// their keys), and all beyond the last number share it.
template <class Key>
std::map<Key, std::uint16_t> stream_numbers(const std::map<Key, std::int64_t>& busy) {
  std::vector<std::pair<Key, std::int64_t>> order(busy.begin(), busy.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& x, const auto& y) { return x.second > y.second; });
  std::map<Key, std::uint16_t> numbers;
  for (std::size_t i = 0; i < order.size(); ++i)
    numbers[order[i].first] = static_cast<std::uint16_t>(std::min<std::size_t>(i, kMaxStreams - 1));
  return numbers;
}

// Where an operator's kernels ran on several streams: the one of most of its device time, the first of
// equals. `by_stream` must not be empty.
template <class Key>
Key busiest_stream(const std::map<Key, std::int64_t>& by_stream) {
  return std::max_element(by_stream.begin(), by_stream.end(),
                          [](const auto& x, const auto& y) { return x.second < y.second; })
      ->first;
}

}  // namespace swaplab
