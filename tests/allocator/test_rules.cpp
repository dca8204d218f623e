// One small hand-worked case per rule of the caching allocator.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/stub_device.hpp"
#include "trace/error.hpp"

namespace {

using namespace swaplab;
using namespace swaplab::unit_literals;
using Log = StubDevice::LogKind;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kBase = 0x100000000000, kVirtualBase = 0x200000000000;

struct Rig {
  explicit Rig(const char* conf = "", std::uint64_t capacity_mib = 4096)
      : device(capacity_mib * kMiB), allocator(device, parse_alloc_conf(conf)) {}
  BlockId take(Bytes size, std::uint32_t stream = 0) {
    const AllocResult result = allocator.alloc(size, stream);
    REQUIRE(result.status == AllocStatus::ok);
    return result.block;
  }
  // MiB offset of the block from the first cudaMalloc address.
  std::uint64_t offset_mib(BlockId block) const { return (allocator.block_address(block) - kBase) / kMiB; }
  bool fails(Bytes size, std::uint32_t stream = 0) {
    return allocator.alloc(size, stream).status == AllocStatus::out_of_memory;
  }
  std::int64_t reserved_mib() const {
    return allocator.stats().all.reserved_bytes.current / static_cast<std::int64_t>(kMiB);
  }
  std::vector<Log> kinds() {
    std::vector<Log> kinds;
    for (const auto& entry : device.log()) kinds.push_back(entry.kind);
    device.log().clear();
    return kinds;
  }

  StubDevice device;
  CachingAllocator<StubDevice> allocator;
};

}  // namespace

TEST_CASE("rounding to 512 bytes; statistics before and after rounding") {
  Rig rig;
  const BlockId one = rig.take(1_B);
  CHECK(rig.allocator.block_bytes(one) == 512_B);
  CHECK(rig.allocator.block_bytes(rig.take(513_B)) == 1_KiB);
  CHECK(rig.allocator.stats().all.requested_bytes.current == 514);
  CHECK(rig.allocator.stats().all.allocated_bytes.current == 1536);
}

TEST_CASE("zero bytes never enter the allocator") {
  Rig rig;
  const AllocResult result = rig.allocator.alloc(0_B, 0);
  CHECK(result.status == AllocStatus::ok);
  CHECK(result.block == kNoBlock);
  CHECK(result.address == 0);
  rig.allocator.free(result.block);
  rig.allocator.record_stream(result.block, 1);
  CHECK(rig.device.log().empty());
}

TEST_CASE("pools divide at one MiB after rounding") {
  Rig rig;
  rig.take(1_MiB);
  CHECK(rig.allocator.stats().small_pool.reserved_bytes.current == (2 << 20));
  rig.take(Bytes{(1 << 20) + 1});
  CHECK(rig.allocator.stats().large_pool.reserved_bytes.current == (20 << 20));
}

TEST_CASE("segment sizes: 2 MiB, 20 MiB, then multiples of 2 MiB of the rounded size") {
  CHECK(AllocatorConfig::segment_size(512) == 2 * kMiB);
  CHECK(AllocatorConfig::segment_size(kMiB + 512) == 20 * kMiB);
  CHECK(AllocatorConfig::segment_size(10 * kMiB - 512) == 20 * kMiB);
  CHECK(AllocatorConfig::segment_size(10 * kMiB) == 10 * kMiB);
  CHECK(AllocatorConfig::segment_size(10 * kMiB + 512) == 12 * kMiB);
  Rig rig;
  rig.take(Bytes{(10 << 20) - 511});  // rounds up to 10 MiB
  CHECK(rig.reserved_mib() == 10);
}

TEST_CASE("best fit: smallest block that is large enough, lowest address among equals") {
  Rig rig;
  const BlockId a = rig.take(30_MiB), b = rig.take(20_MiB), c = rig.take(20_MiB), d = rig.take(40_MiB);
  for (const BlockId block : {c, a, b, d}) rig.allocator.free(block);
  CHECK(rig.offset_mib(rig.take(20_MiB)) == 30);  // b, not c at 50
  CHECK(rig.offset_mib(rig.take(20_MiB)) == 50);
  CHECK(rig.offset_mib(rig.take(21_MiB)) == 0);
}

TEST_CASE("a block serves its own stream only") {
  Rig rig;
  rig.allocator.free(rig.take(20_MiB, 0));
  CHECK(rig.offset_mib(rig.take(20_MiB, 1)) == 20);
  CHECK(rig.allocator.could_fit_cached(20_MiB, 0));
  CHECK_FALSE(rig.allocator.could_fit_cached(20_MiB, 1));
  CHECK_FALSE(rig.allocator.could_fit_cached(20_MiB, 2));
}

TEST_CASE("split: large pool above 1 MiB of rest, small pool from 512 bytes") {
  Rig rig;
  rig.allocator.free(rig.take(20_MiB));
  CHECK(rig.allocator.block_bytes(rig.take(19_MiB)) == 20_MiB);  // 1 MiB of rest is not enough
  const Bytes below{(19 << 20) - 512};
  CHECK(rig.allocator.block_bytes(rig.take(below)) == below);
  CHECK(rig.allocator.block_bytes(rig.take(Bytes{(17 << 20)})) == 18_MiB);
  CHECK(rig.allocator.block_bytes(rig.take(5_MiB)) == 5_MiB);
  CHECK(rig.allocator.block_bytes(rig.take(Bytes{(1 << 20) - 512})) == Bytes{(1 << 20) - 512});
  CHECK(rig.allocator.stats().small_pool.inactive_split_bytes.current == (1 << 20) + 512);
}

TEST_CASE("free merges with free neighbours on both sides") {
  Rig rig;
  const BlockId a = rig.take(4_MiB), b = rig.take(4_MiB), c = rig.take(4_MiB);
  rig.allocator.free(a);
  CHECK_FALSE(rig.allocator.could_fit_cached(9_MiB, 0));  // 4 and 8 MiB
  rig.allocator.free(c);
  CHECK(rig.allocator.could_fit_cached(12_MiB, 0));  // c with the 8 MiB tail
  CHECK_FALSE(rig.allocator.could_fit_cached(20_MiB, 0));
  CHECK(rig.allocator.stats().all.inactive_split.current == 2);
  rig.allocator.free(b);
  CHECK(rig.allocator.could_fit_cached(20_MiB, 0));
  CHECK(rig.allocator.stats().all.inactive_split.current == 0);
  CHECK(rig.allocator.snapshot().at(0).blocks.size() == 1);
}

TEST_CASE("power-of-two roundup") {
  const AllocatorConfig config = parse_alloc_conf("roundup_power2_divisions:4");
  CHECK(config.round_size(1200) == 1536);  // not above 4 * 512: plain rounding
  CHECK(config.round_size(2049) == 2560);
  CHECK(config.round_size(4096) == 4096);
  CHECK(config.round_size(5 * kMiB + 1) == 6 * kMiB);
  const AllocatorConfig list = parse_alloc_conf("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
  CHECK(list.round_size(700 * kMiB) == 768 * kMiB);
  CHECK(list.round_size(1100 * kMiB) == 1152 * kMiB);  // '>' overrides the last listed interval
  CHECK(list.round_size(300 * kMiB + 1) == 300 * kMiB + 512);
}

TEST_CASE("retry: full release of whole segments, one more attempt, then out of memory") {
  Rig rig("", 100);
  const BlockId a = rig.take(40_MiB);
  rig.take(30_MiB);
  rig.allocator.free(a);
  rig.kinds();
  CHECK(rig.offset_mib(rig.take(60_MiB)) == 70);
  CHECK(rig.kinds() == std::vector{Log::malloc_failed, Log::segment_free, Log::segment_alloc});
  CHECK(rig.allocator.stats().num_alloc_retries == 1);
  CHECK(rig.fails(20_MiB));
  CHECK(rig.allocator.stats().num_alloc_retries == 2);
  CHECK(rig.allocator.stats().num_ooms == 1);
}

TEST_CASE("split segments are never returned; empty_cache takes the large pool first") {
  Rig rig;
  const BlockId small = rig.take(1_KiB), kept = rig.take(4_MiB), whole = rig.take(30_MiB);
  for (const BlockId block : {small, whole, rig.take(4_MiB)}) rig.allocator.free(block);
  rig.kinds();
  rig.allocator.empty_cache();
  CHECK(rig.kinds() == std::vector{Log::segment_free, Log::segment_free});
  CHECK(rig.reserved_mib() == 20);
  rig.allocator.free(kept);
  rig.allocator.empty_cache();
  CHECK(rig.reserved_mib() == 0);
  CHECK(rig.device.used() == 0);
}

TEST_CASE("record_stream: held until the events of all streams are done; polled at malloc only") {
  Rig rig;
  const BlockId block = rig.take(20_MiB);
  rig.allocator.record_stream(block, 0);  // its own stream: nothing
  rig.allocator.record_stream(block, 1);
  rig.allocator.record_stream(block, 1);
  rig.allocator.record_stream(block, 2);
  rig.allocator.free(block);
  CHECK(rig.device.calls().event_record == 2);
  CHECK(rig.allocator.stats().all.allocated_bytes.current == 0);
  CHECK(rig.allocator.stats().all.active_bytes.current == (20 << 20));
  rig.device.complete(1, 1);
  CHECK(rig.offset_mib(rig.take(20_MiB)) == 20);
  rig.device.complete(2, 1);
  CHECK_FALSE(rig.allocator.could_fit_cached(20_MiB, 0));  // nobody asked the device yet
  CHECK(rig.offset_mib(rig.take(20_MiB)) == 0);
}

TEST_CASE("events of a stream are taken in order and stop at the first that is not done") {
  Rig rig;
  const BlockId a = rig.take(20_MiB), b = rig.take(30_MiB);
  for (const BlockId block : {a, b}) {
    rig.allocator.record_stream(block, 1);
    rig.allocator.free(block);
  }
  rig.device.complete(1, 1);
  CHECK(rig.offset_mib(rig.take(30_MiB)) == 50);
  CHECK(rig.device.calls().event_query == 2);
  CHECK(rig.offset_mib(rig.take(20_MiB)) == 0);
}

TEST_CASE("pending blocks do not merge") {
  Rig rig;
  const BlockId a = rig.take(4_MiB), b = rig.take(4_MiB);
  rig.take(4_MiB);
  rig.allocator.record_stream(a, 1);
  rig.allocator.free(a);
  rig.allocator.free(b);
  CHECK_FALSE(rig.allocator.could_fit_cached(9_MiB, 0));
  rig.device.complete_all();
  CHECK(rig.offset_mib(rig.take(8_MiB)) == 0);  // the poll frees a, which merges with b
}

TEST_CASE("out of memory waits for all events but does not search the cache again") {
  Rig rig("", 20);
  const BlockId a = rig.take(8_MiB);
  rig.take(8_MiB);
  rig.allocator.record_stream(a, 1);
  rig.allocator.free(a);
  CHECK(rig.fails(8_MiB));
  CHECK(rig.device.calls().event_sync == 1);
  CHECK(rig.offset_mib(rig.take(8_MiB)) == 0);
}

TEST_CASE("memory fraction refuses without asking the device") {
  Rig rig("", 100);
  rig.allocator.set_memory_fraction(0.5);
  CHECK(rig.allocator.allowed_bytes() == 50_MiB);
  rig.take(40_MiB);
  CHECK(rig.fails(12_MiB));
  CHECK(rig.device.calls().cuda_malloc == 1);
  rig.take(10_MiB);
  CHECK_THROWS_AS(rig.allocator.set_memory_fraction(0), Error);
  CHECK_THROWS_AS(rig.allocator.set_memory_fraction(1.5), Error);
}

TEST_CASE("max_split_size: oversize blocks are not split and serve oversize requests within 20 MiB") {
  Rig rig("max_split_size_mb:64");
  rig.allocator.free(rig.take(100_MiB));
  CHECK_FALSE(rig.allocator.could_fit_cached(50_MiB, 0));
  CHECK_FALSE(rig.allocator.could_fit_cached(80_MiB, 0));
  CHECK(rig.allocator.could_fit_cached(Bytes{(80 << 20) + 1}, 0));
  CHECK(rig.allocator.block_bytes(rig.take(90_MiB)) == 100_MiB);
  CHECK(rig.allocator.stats().oversize_allocations.current == 1);
}

TEST_CASE("max_split_size: partial release of the first oversize block that would do") {
  Rig rig("max_split_size_mb:64", 250);
  for (const BlockId block : {rig.take(70_MiB), rig.take(90_MiB), rig.take(72_MiB)})
    rig.allocator.free(block);
  rig.kinds();
  rig.take(20_MiB);  // wanted is raised to 64 MiB: the 70 MiB segment goes
  CHECK(rig.kinds() == std::vector{Log::malloc_failed, Log::segment_free, Log::segment_alloc});
  CHECK(rig.reserved_mib() == 90 + 72 + 20);
  CHECK(rig.allocator.stats().num_alloc_retries == 0);
}

TEST_CASE("max_split_size: without a single block that would do, from the largest down") {
  Rig rig("max_split_size_mb:64", 240);
  for (const BlockId block : {rig.take(70_MiB), rig.take(90_MiB), rig.take(72_MiB)})
    rig.allocator.free(block);
  rig.device.log().clear();
  rig.take(160_MiB);
  REQUIRE(rig.device.log().size() == 4);
  CHECK(rig.device.log()[1].size == 90 * kMiB);
  CHECK(rig.device.log()[2].size == 72 * kMiB);
  CHECK(rig.device.log()[3].kind == Log::segment_alloc);
}

TEST_CASE("garbage collection: whole large segments of at least the mean age, with a fraction only") {
  const auto run = [](bool with_fraction) {
    Rig rig("garbage_collection_threshold:0.5", 200);
    if (with_fraction) rig.allocator.set_memory_fraction(1.0);
    const BlockId a = rig.take(40_MiB), b = rig.take(42_MiB), c = rig.take(44_MiB);
    rig.allocator.free(a);                                             // look-ups so far: 3
    for (int i = 0; i < 4; ++i) rig.allocator.free(rig.take(22_MiB));  // a whole: 40, split and merged
    rig.allocator.free(b);
    rig.allocator.free(c);
    rig.allocator.free(rig.take(44_MiB));  // c is the youngest again
    rig.kinds();
    rig.take(60_MiB);
    return rig.reserved_mib();
  };
  // Reserved 126 of 100 allowed by the threshold. Ages at the 60 MiB look-up (the 9th): a 2, b 2, c 1;
  // the mean is 5/3, so a and b go in one pass although a alone would do.
  CHECK(run(true) == 44 + 60);
  CHECK(run(false) == 126 + 60);
}

TEST_CASE("expandable: one range per stream and pool, whole pages, growth of the free tail") {
  Rig rig("expandable_segments:True", 160);
  const BlockId a = rig.take(30_MiB);
  CHECK(rig.allocator.block_address(a) == kVirtualBase);
  CHECK(rig.device.log()[0].size == 180 * kMiB);  // 160 * 9/8, a multiple of 20 MiB
  CHECK(rig.reserved_mib() == 40);
  rig.kinds();
  CHECK(rig.allocator.block_address(rig.take(25_MiB)) == kVirtualBase + 30 * kMiB);  // 10 cached + 15
  CHECK(rig.reserved_mib() == 60);
  CHECK(rig.kinds() == std::vector{Log::map});
  rig.take(1_KiB);
  CHECK(rig.reserved_mib() == 62);
  CHECK(rig.allocator.stats().all.segment.current == 0);
  CHECK(rig.allocator.stats().all.inactive_split.current == 0);
}

TEST_CASE("expandable: out of memory unmaps whole free pages and tries again") {
  Rig rig("expandable_segments:True", 100);
  const BlockId a = rig.take(50_MiB), b = rig.take(30_MiB);
  rig.allocator.free(a);  // pages 0 and 1 are whole, half of page 2 is used by b
  rig.device.log().clear();
  rig.take(60_MiB, 1);
  std::vector<Log> kinds = rig.kinds();
  CHECK(kinds == std::vector{Log::reserve, Log::create_failed, Log::unmap, Log::map});
  CHECK(rig.device.calls().stream_sync == 1);
  CHECK(rig.reserved_mib() == 100);
  CHECK(rig.allocator.block_address(rig.take(10_MiB)) == kVirtualBase + 40 * kMiB);
  rig.allocator.free(b);
}

TEST_CASE("expandable: the size that counts in best fit is the one a block can grow to") {
  Rig rig("expandable_segments:True", 400);
  const BlockId hole = rig.take(60_MiB), wall = rig.take(35_MiB);
  rig.allocator.free(hole);
  // Free: 60 MiB at 0, and the 5 MiB tail at 95 that could grow to the end of the range.
  CHECK(rig.allocator.block_address(rig.take(4_MiB)) == kVirtualBase);
  rig.allocator.free(wall);
}

TEST_CASE("expandable: an empty range is given back") {
  Rig rig("expandable_segments:True", 100);
  rig.allocator.free(rig.take(30_MiB));
  rig.kinds();
  rig.allocator.empty_cache();
  CHECK(rig.kinds() == std::vector{Log::unmap, Log::release});
  CHECK(rig.device.used() == 0);
}

TEST_CASE("reuse tags: stored on free, copied by a split, joined by a merge, zero when fresh") {
  Rig rig;
  const AllocResult fresh = rig.allocator.alloc(4_MiB, 0);
  CHECK(fresh.tag == ReuseTag{});
  const BlockId b = rig.take(4_MiB);
  rig.take(1_MiB + 512_B);
  rig.allocator.free(fresh.block, {5, 2});
  const AllocResult half = rig.allocator.alloc(2_MiB, 0);  // splits the 4 MiB
  CHECK(half.tag == ReuseTag{5, 2});
  rig.allocator.free(b, {3, 9});  // merges with the other half
  const AllocResult joined = rig.allocator.alloc(6_MiB, 0);
  CHECK(joined.tag == ReuseTag{5, 9});
  rig.allocator.free(joined.block);  // the old tag is kept
  CHECK(rig.allocator.alloc(6_MiB, 0).tag == ReuseTag{5, 9});
  Rig pages("expandable_segments:True");
  pages.allocator.free(pages.take(20_MiB), {7, 8});
  pages.allocator.empty_cache();
  CHECK(pages.allocator.alloc(20_MiB, 0).tag == ReuseTag{});
}

TEST_CASE("misuse is refused") {
  Rig rig;
  const BlockId block = rig.take(1_KiB);
  CHECK_THROWS_AS(rig.allocator.record_stream(block, kMaxAllocatorStreams), Error);
  rig.allocator.free(block);
  CHECK_THROWS_AS(rig.allocator.free(block), Error);
  CHECK_THROWS_AS(rig.allocator.free(BlockId{12345}), Error);
  CHECK_THROWS_AS(rig.allocator.record_stream(block, 1), Error);
  CHECK_THROWS_AS(rig.allocator.alloc(Bytes{-1}, 0), Error);
  CHECK_THROWS_AS(rig.allocator.alloc(1_B, kMaxAllocatorStreams), Error);
  CHECK(rig.fails(Bytes{std::int64_t{1} << 61}));
  StubDevice huge((std::uint64_t{1} << 40) + 1), usual(kMiB);
  CHECK_THROWS_AS(CachingAllocator<StubDevice>(huge, AllocatorConfig{}), Error);
  const AllocatorConfig both = parse_alloc_conf("expandable_segments:True,max_split_size_mb:64");
  CHECK_THROWS_AS(CachingAllocator<StubDevice>(usual, both), Error);
}

TEST_CASE("peaks restart at the current value") {
  Rig rig;
  const BlockId a = rig.take(20_MiB);
  rig.take(30_MiB);
  rig.allocator.free(a);
  CHECK(rig.allocator.stats().all.allocated_bytes.peak == (50 << 20));
  rig.allocator.reset_peak_stats();
  CHECK(rig.allocator.stats().all.allocated_bytes.peak == (30 << 20));
  CHECK(rig.allocator.stats().all.allocated_bytes.allocated() == (50 << 20));
}
