// Speed of the caching allocator: nanoseconds per malloc/free pair over a stub device.
//
// Anchors: PyTorch's own allocator over a stub runtime takes 260-410 ns per pair alternating, 285-593 ns
// on recorded traces and 640-900 ns on random mixes.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/replay.hpp"
#include "sim/allocator/stub_device.hpp"
#include "tests/bench/allocator_mixes.hpp"
#include "tests/support/shared.hpp"

namespace {

using namespace swaplab;
using Kind = AllocRequest::Kind;

constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 40;

void alternating(benchmark::State& state, const char* conf) {
  StubDevice device(kUnlimited);
  CachingAllocator<StubDevice> allocator(device, parse_alloc_conf(conf));
  alternate(state, allocator);
}
BENCHMARK_CAPTURE(alternating, default, "")->Arg(512)->Arg(1 << 20)->Arg(5 << 20)->Arg(64 << 20);
BENCHMARK_CAPTURE(alternating, expandable, "expandable_segments:True")->Arg(512)->Arg(64 << 20);

void churn(benchmark::State& state) {
  StubDevice device(kUnlimited);
  CachingAllocator<StubDevice> allocator(device, parse_alloc_conf(""));
  churn_population(state, allocator);
}
BENCHMARK(churn)->Arg(100)->Arg(1000)->Arg(10000);

// Many free holes of one size: the crowded-bin case.
void crowded(benchmark::State& state) {
  StubDevice device(kUnlimited);
  CachingAllocator<StubDevice> allocator(device, parse_alloc_conf(""));
  std::vector<BlockId> live(static_cast<std::size_t>(2 * state.range(0)));
  for (auto& block : live) block = allocator.alloc(Bytes{512}, 0).block;
  for (std::size_t i = 0; i < live.size(); i += 2) allocator.free(live[i]);
  std::mt19937_64 random(1);
  std::vector<std::uint32_t> picks(1 << 16);
  for (auto& pick : picks) pick = static_cast<std::uint32_t>(random() % live.size()) | 1u;
  std::size_t step = 0;
  for (auto _ : state) {
    BlockId& block = live[picks[step++ & 0xffff]];
    allocator.free(block);
    block = allocator.alloc(Bytes{512}, 0).block;
  }
  report_pairs(state, 1);
}
BENCHMARK(crowded)->Arg(1000)->Arg(100000);

// A whole request log on a fresh allocator; construction counts. Skipped without the shared folder.
void log_replay(benchmark::State& state, const std::string& file, const std::string& conf,
                std::uint64_t capacity) {
  const auto path = test::shared_path("reference/allocator/" + file);
  if (!path) {
    state.SkipWithError("shared reference material not found");
    return;
  }
  std::istringstream in(test::read_file(*path));
  const RequestLog log = parse_requests(in, file);
  std::int64_t mallocs = 0;
  for (const AllocRequest& request : log.requests) mallocs += request.kind == Kind::malloc ? 1 : 0;
  std::vector<BlockId> blocks(log.id_count);
  for (auto _ : state) {
    StubDevice device(capacity);
    CachingAllocator<StubDevice> allocator(device, parse_alloc_conf(conf));
    blocks.assign(blocks.size(), kNoBlock);
    for (const AllocRequest& request : log.requests) {
      BlockId& block = blocks[request.dense];
      switch (request.kind) {
        case Kind::malloc:
          block = allocator.alloc(Bytes{static_cast<std::int64_t>(request.amount)}, request.stream).block;
          break;
        case Kind::free:
          allocator.free(block);
          block = kNoBlock;
          break;
        case Kind::record_stream:
          allocator.record_stream(block, request.stream);
          break;
        case Kind::complete:
          device.complete(request.stream, request.amount);
          break;
        case Kind::complete_all:
          device.complete_all();
          break;
        case Kind::empty_cache:
          allocator.empty_cache();
          break;
      }
    }
    benchmark::DoNotOptimize(allocator.stats().all.allocated_bytes.peak);
  }
  report_pairs(state, mallocs);
}
BENCHMARK_CAPTURE(log_replay, recorded_gpt, "recorded/gpt_small.req.gz", "", kUnlimited);
BENCHMARK_CAPTURE(log_replay, recorded_gpt_expandable, "recorded/gpt_small.req.gz",
                  "expandable_segments:True", kUnlimited);
BENCHMARK_CAPTURE(log_replay, recorded_gpt_tight, "recorded/gpt_small.req.gz", "", 169869312);
BENCHMARK_CAPTURE(log_replay, recorded_checkpoint, "recorded/gpt_small_checkpoint.req.gz", "", kUnlimited);
BENCHMARK_CAPTURE(log_replay, recorded_resnet, "recorded/resnet50_fake_b256.req.gz", "", kUnlimited);
BENCHMARK_CAPTURE(log_replay, recorded_resnet_expandable, "recorded/resnet50_fake_b256.req.gz",
                  "expandable_segments:True", kUnlimited);
BENCHMARK_CAPTURE(log_replay, random_mixed, "random/s00.req.gz", "", kUnlimited);
BENCHMARK_CAPTURE(log_replay, random_recurring, "random/s01.req.gz", "", kUnlimited);
BENCHMARK_CAPTURE(log_replay, random_lengths, "random/s02.req.gz", "", kUnlimited);
BENCHMARK_CAPTURE(log_replay, random_small_streams, "random/s03.req.gz", "", kUnlimited);
BENCHMARK_CAPTURE(log_replay, random_large, "random/s04.req.gz", "", kUnlimited);
BENCHMARK_CAPTURE(log_replay, random_mixed_expandable, "random/s00.req.gz", "expandable_segments:True",
                  kUnlimited);

}  // namespace

BENCHMARK_MAIN();  // the test library that is linked for its helpers has a main of its own
