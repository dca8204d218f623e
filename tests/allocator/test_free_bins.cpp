// FreeBins against std::set, through crowded bins and every position.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include "sim/allocator/free_bins.hpp"

namespace {

using swaplab::allocator_detail::FreeBins;
using Key = std::pair<std::uint64_t, std::uint64_t>;  // size, address

void check_order(const FreeBins& bins, const std::map<Key, std::uint32_t>& model) {
  auto expected = model.begin();
  for (FreeBins::Cursor at = bins.first(); at; at = bins.next(at), ++expected) {
    REQUIRE(expected != model.end());
    REQUIRE(at.id == expected->second);
  }
  REQUIRE(expected == model.end());
  REQUIRE(static_cast<bool>(bins.last()) == !model.empty());
  if (!model.empty()) REQUIRE(bins.last().id == model.rbegin()->second);
}

// `draw` gives a size; blocks come and go, growing to `target` and shrinking to none.
template <class Draw>
void churn(std::uint64_t seed, std::size_t target, Draw draw) {
  std::mt19937_64 random(seed);
  FreeBins bins;
  std::map<Key, std::uint32_t> model;
  std::uint32_t next_id = 0;
  bool growing = true;
  for (int step = 0; step < 60000; ++step) {
    if (model.size() >= target) growing = false;
    if (model.empty()) growing = true;
    const bool insert = model.empty() || random() % 4 < (growing ? 3u : 1u);
    if (insert) {
      const Key key{draw(random), (random() >> 16) & ~std::uint64_t{511}};
      if (!model.try_emplace(key, next_id).second) continue;
      bins.insert(key.first, key.second, next_id++);
    } else {
      auto victim = model.lower_bound({draw(random), 0});
      const FreeBins::Cursor found = bins.lower_bound(std::min(draw(random), FreeBins::kSizeEnd - 512));
      if (victim == model.end()) victim = model.begin();
      if (found && random() % 2 == 0) {
        const auto same = std::find_if(model.begin(), model.end(),
                                       [&](const auto& entry) { return entry.second == found.id; });
        REQUIRE(same != model.end());
        bins.erase(found);
        model.erase(same);
      } else {
        bins.erase(victim->first.first, victim->first.second);
        model.erase(victim);
      }
    }
    const std::uint64_t size = draw(random);
    const auto expected = model.lower_bound({size, 0});
    const FreeBins::Cursor found = bins.lower_bound(size);
    REQUIRE(static_cast<bool>(found) == (expected != model.end()));
    if (found) REQUIRE(found.id == expected->second);
    if (step % 1000 == 0) check_order(bins, model);
  }
  check_order(bins, model);
}

}  // namespace

TEST_CASE("free bins: all sizes up to 2 TiB") {
  churn(1, 300, [](std::mt19937_64& random) {
    const std::uint64_t top = std::uint64_t{1} << (9 + random() % 32);
    return (top + random() % top) & ~std::uint64_t{511};
  });
}

TEST_CASE("free bins: few sizes, crowded") {
  churn(2, 600, [](std::mt19937_64& random) { return 512 * (1 + random() % 3); });
}

TEST_CASE("free bins: sizes that share a bin, crowded") {
  churn(3, 600, [](std::mt19937_64& random) { return (std::uint64_t{1} << 30) + 512 * (random() % 32768); });
}

TEST_CASE("free bins: nothing is as large as the end of the size range") {
  FreeBins bins;
  bins.insert(FreeBins::kSizeEnd - 512, (std::uint64_t{1} << 48) - 512, 7);
  CHECK(bins.lower_bound(512).id == 7);
  CHECK(bins.lower_bound(FreeBins::kSizeEnd - 512).id == 7);
  CHECK_FALSE(bins.lower_bound(FreeBins::kSizeEnd));
  CHECK_FALSE(bins.next(bins.first()));
}
