// Speed of the stitching allocator: nanoseconds per malloc/free pair over a device that only counts.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "sim/allocator/stitching_allocator.hpp"
#include "tests/bench/allocator_mixes.hpp"

namespace {

using namespace swaplab;

struct Counting {
  std::uint64_t left() const { return (std::uint64_t{1} << 40) - used; }
  bool create(std::uint64_t size) {
    used += size;
    return true;
  }
  void destroy(std::uint64_t size) { used -= size; }
  std::uint64_t reserve(std::uint64_t size) { return (next += size) - size; }
  void release(std::uint64_t, std::uint64_t) {}
  void map(std::uint64_t, std::uint64_t) {}
  void unmap(std::uint64_t, std::uint64_t) {}
  void synchronize() {}
  std::uint64_t used = 0, next = std::uint64_t{1} << 44;
};
using Allocator = StitchingAllocator<Counting>;

void alternating(benchmark::State& state) {
  Counting device;
  Allocator allocator(device, {});
  alternate(state, allocator);
}
BENCHMARK(alternating)->Arg(512)->Arg(1 << 20)->Arg(5 << 20)->Arg(64 << 20);

// A stitched range that is used again and again.
void stitched(benchmark::State& state) {
  Counting device;
  Allocator allocator(device, {});
  const auto parts = static_cast<std::size_t>(state.range(0));
  std::vector<BlockId> blocks(2 * parts);
  for (auto& block : blocks) block = allocator.alloc(Bytes{8 << 20}, 0).block;
  for (std::size_t i = 0; i < blocks.size(); i += 2) allocator.free(blocks[i]);
  const Bytes size{static_cast<std::int64_t>(parts) * (8 << 20)};
  for (auto _ : state) {
    const auto result = allocator.alloc(size, 0);
    benchmark::DoNotOptimize(result.address);
    allocator.free(result.block);
  }
  report_pairs(state);
}
BENCHMARK(stitched)->Arg(2)->Arg(16)->Arg(128);

void churn(benchmark::State& state) {
  Counting device;
  Allocator allocator(device, {});
  churn_population(state, allocator);
}
BENCHMARK(churn)->Arg(100)->Arg(1000)->Arg(10000);

}  // namespace

BENCHMARK_MAIN();
