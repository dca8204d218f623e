// Request mixes that every allocator is measured with.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "sim/allocator/block.hpp"
#include "trace/units.hpp"

namespace swaplab {

// Items and nanoseconds per malloc/free pair.
inline void report_pairs(benchmark::State& state, std::int64_t pairs = 1) {
  state.SetItemsProcessed(state.iterations() * pairs);
  state.counters["per_pair"] = benchmark::Counter(static_cast<double>(state.iterations() * pairs),
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// One block of range(0) bytes at a time.
template <class Allocator>
void alternate(benchmark::State& state, Allocator& allocator) {
  const Bytes size{state.range(0)};
  for (auto _ : state) {
    const auto result = allocator.alloc(size, 0);
    benchmark::DoNotOptimize(result.address);
    allocator.free(result.block);
  }
  report_pairs(state);
}

// A steady population of range(0) blocks of every size; each step frees a random one and allocates another.
template <class Allocator>
void churn_population(benchmark::State& state, Allocator& allocator) {
  std::mt19937_64 random(1);
  std::vector<std::int64_t> sizes(1 << 16);
  for (auto& size : sizes) {
    const auto log2 = 3 + random() % 24;
    size = static_cast<std::int64_t>((std::uint64_t{1} << log2) + random() % (std::uint64_t{1} << log2));
  }
  std::vector<std::uint32_t> picks(1 << 16);
  std::vector<BlockId> live(static_cast<std::size_t>(state.range(0)));
  for (auto& pick : picks) pick = static_cast<std::uint32_t>(random() % live.size());
  std::size_t step = 0;
  for (auto& block : live) block = allocator.alloc(Bytes{sizes[step++ & 0xffff]}, 0).block;
  for (auto _ : state) {
    BlockId& block = live[picks[step & 0xffff]];
    allocator.free(block);
    block = allocator.alloc(Bytes{sizes[step & 0xffff]}, 0).block;
    ++step;
  }
  report_pairs(state);
}

}  // namespace swaplab
