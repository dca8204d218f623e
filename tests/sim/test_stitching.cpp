// The stitching allocator: addresses worked out by hand, and that it never fails while granules are free.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/allocator/stitching_allocator.hpp"
#include "sim/memory.hpp"
#include "sim/run.hpp"
#include "trace/error.hpp"

using namespace swaplab;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kG = kStitchGranule;

Bytes mib(std::int64_t n) {
  return Bytes{n << 20};
}

// Ranges are placed first fit from address 0; every call is checked against what is mapped.
struct Vmm {
  explicit Vmm(std::uint64_t bytes) : capacity(bytes) {}
  std::uint64_t left() const { return capacity - used; }
  bool create(std::uint64_t size) {
    REQUIRE(size % kG == 0);
    if (size > left()) return false;
    used += size;
    return true;
  }
  void destroy(std::uint64_t size) {
    REQUIRE(size <= used);
    used -= size;
  }
  std::uint64_t reserve(std::uint64_t size) {
    const std::uint64_t address = space.place(size);
    ranges[address] = size;
    return address;
  }
  void release(std::uint64_t address, std::uint64_t size) {
    REQUIRE(ranges.at(address) == size);
    for (std::uint64_t at = address; at < address + size; at += kG) REQUIRE(mapped.count(at) == 0);
    ranges.erase(address);
    space.remove(address);
  }
  void map(std::uint64_t address, std::uint64_t size) {
    for (std::uint64_t at = address; at < address + size; at += kG) REQUIRE(mapped.emplace(at, true).second);
    log += "map " + std::to_string(address / kG) + "+" + std::to_string(size / kG) + " ";
  }
  void unmap(std::uint64_t address, std::uint64_t size) {
    REQUIRE(synchronized);
    for (std::uint64_t at = address; at < address + size; at += kG) REQUIRE(mapped.erase(at) == 1);
    log += "unmap " + std::to_string(address / kG) + "+" + std::to_string(size / kG) + " ";
  }
  void synchronize() {
    synchronized = true;
    log += "sync ";
  }
  std::string take_log() { return std::exchange(log, {}); }

  std::uint64_t capacity, used = 0;
  bool synchronized = false;
  AddressSpace space{0};
  std::map<std::uint64_t, std::uint64_t> ranges;
  std::map<std::uint64_t, bool> mapped;
  std::string log;
};

using Allocator = StitchingAllocator<Vmm>;
using Extents = std::vector<Allocator::Extent>;

TEST_CASE("granules, shared granules and splitting in place") {
  Vmm vmm(64 * kMiB);
  Allocator allocator(vmm, {});
  const auto a = allocator.alloc(mib(10), 0);
  CHECK(a.address == 0);
  CHECK(vmm.take_log() == "map 0+5 ");
  const auto b = allocator.alloc(Bytes{3 * 1024 * 1024 + 1}, 0);  // two granules
  CHECK(b.address == 10 * kMiB);
  CHECK(vmm.take_log() == "map 5+2 ");
  CHECK(allocator.stats().occupied == 14 * kMiB);
  const auto small = allocator.alloc(Bytes{700}, 0), next = allocator.alloc(Bytes{1}, 0);
  CHECK(small.address == 14 * kMiB);
  CHECK(next.address == 14 * kMiB + 1024);
  CHECK(allocator.stats().occupied == 16 * kMiB);
  vmm.take_log();

  allocator.free(a.block, {7, 0});
  const auto c = allocator.alloc(mib(4), 0);  // the first 4 MiB of a's 10
  CHECK(c.address == 0);
  CHECK(c.tag == ReuseTag{7, 0});
  const auto d = allocator.alloc(mib(6), 0);
  CHECK(d.address == 4 * kMiB);
  CHECK(vmm.take_log().empty());
  allocator.free(c.block, {9, 2});
  allocator.free(d.block, {8, 3});
  const auto whole = allocator.alloc(mib(10), 0);  // joined again, tags too
  CHECK(whole.address == 0);
  CHECK(whole.tag == ReuseTag{9, 3});

  // A shared granule that is empty again serves a large request.
  allocator.free(small.block, {1, 1});
  CHECK(allocator.stats().occupied == 16 * kMiB);
  allocator.free(next.block, {4, 0});
  CHECK(allocator.stats().occupied == 14 * kMiB);
  const auto large = allocator.alloc(mib(2), 0);
  CHECK(large.address == 14 * kMiB);
  CHECK(large.tag == ReuseTag{4, 1});
  allocator.free(large.block);
  CHECK_THROWS_AS(allocator.free(large.block), Error);
  CHECK_THROWS_AS(allocator.alloc(Bytes{0}, 0), Error);
}

TEST_CASE("free pieces are stitched: the largest first, the last the smallest that is enough") {
  Vmm vmm(128 * kMiB);
  Allocator allocator(vmm, {});
  // 12 | 2 | 6 | 2 | 10 | 2 MiB, each of its own: ranges at granules 0, 6, 7, 10, 11, 16.
  std::vector<BlockId> blocks;
  for (const std::int64_t size : {12, 2, 6, 2, 10, 2}) blocks.push_back(allocator.alloc(mib(size), 0).block);
  allocator.free(blocks[0], {1, 0});
  allocator.free(blocks[2], {3, 0});
  allocator.free(blocks[4], {2, 5});
  vmm.take_log();
  const auto s = allocator.alloc(mib(16), 0);  // 12, then 4 of the 6 (not of the 10)
  CHECK(s.address == 17 * kG);
  CHECK(allocator.block_address(s.block) == s.address);
  CHECK(allocator.block_address(blocks[1]) == 6 * kG);
  CHECK(vmm.take_log() == "map 17+8 ");
  CHECK(allocator.extents(s.block) == Extents{{0, 12 * kMiB}, {14 * kMiB, 4 * kMiB}});
  CHECK(s.tag == ReuseTag{3, 0});
  CHECK(allocator.stats().occupied == 6 * kMiB + 16 * kMiB);

  // Freed and asked for again: the same range, nothing mapped.
  allocator.free(s.block, {6, 0});
  const auto again = allocator.alloc(mib(16), 0);
  CHECK(again.address == s.address);
  CHECK(again.tag == ReuseTag{6, 0});
  CHECK(vmm.take_log().empty());
  CHECK(allocator.stats().stitched_reuses == 1);

  // While the 12 MiB are used by themselves, that range is not usable: 10 and 6 MiB are stitched.
  allocator.free(again.block);
  const auto twelve = allocator.alloc(mib(12), 0);
  CHECK(twelve.address == 0);
  CHECK(allocator.alloc(mib(16), 0).address == 25 * kG);
  CHECK(vmm.take_log() == "map 25+8 ");
  allocator.free(twelve.block);
  CHECK(allocator.alloc(mib(11), 0).address == 0);  // a piece by itself
}

TEST_CASE("a stitched range serves smaller requests by its leading granules") {
  Vmm vmm(256 * kMiB);
  Allocator allocator(vmm, parse_stitching_conf("reuseLimit:10"));
  std::vector<BlockId> blocks;
  for (const std::int64_t size : {12, 2, 12, 2}) blocks.push_back(allocator.alloc(mib(size), 0).block);
  allocator.free(blocks[0]);
  allocator.free(blocks[2]);
  const auto s = allocator.alloc(mib(24), 0);
  allocator.free(s.block);
  vmm.take_log();
  const auto t = allocator.alloc(mib(16), 0);  // 12 and 4 of the range of 24, which begins at 14 MiB
  CHECK(t.address == s.address);
  CHECK(vmm.take_log().empty());
  CHECK(allocator.extents(t.block) == Extents{{14 * kMiB, 12 * kMiB}, {0, 4 * kMiB}});
  CHECK(allocator.alloc(mib(8), 0).address == 4 * kMiB);  // the range's other granules are free

  // By default only a range of the request's own size is used again.
  Allocator strict(vmm, {});
  std::vector<BlockId> more;
  for (const std::int64_t size : {12, 2, 12, 2}) more.push_back(strict.alloc(mib(size), 0).block);
  strict.free(more[0]);
  strict.free(more[2]);
  strict.free(strict.alloc(mib(24), 0).block);
  strict.alloc(mib(16), 0);
  CHECK(strict.stats().stitches == 2);
}

TEST_CASE("fragLimit, defragLevel, vmmDefragment") {
  const auto fragmented = [](Allocator& allocator) {
    std::vector<BlockId> blocks;
    for (const std::int64_t size : {8, 2, 8, 2}) blocks.push_back(allocator.alloc(mib(size), 0).block);
    allocator.free(blocks[0]);
    allocator.free(blocks[2]);
  };
  SUBCASE("default: 14 MiB are new memory while there is any, then stitched") {
    Vmm vmm(40 * kMiB);
    Allocator allocator(vmm, {});
    fragmented(allocator);
    CHECK(allocator.alloc(mib(14), 0).address == 20 * kMiB);
    CHECK(allocator.stats().stitches == 0);
    allocator.alloc(mib(14), 0);
    CHECK(allocator.stats().stitches == 1);
    CHECK(allocator.stats().drops == 0);
  }
  SUBCASE("defragLevel 1: new memory first, whatever the size") {
    Vmm vmm(40 * kMiB);
    Allocator allocator(vmm, parse_stitching_conf("defragLevel:1,fragLimit:0"));
    fragmented(allocator);
    CHECK(allocator.alloc(mib(16), 0).address == 20 * kMiB);
    CHECK(allocator.stats().stitches == 0);
  }
  SUBCASE("free pieces are completed by new memory") {
    Vmm vmm(24 * kMiB);
    Allocator allocator(vmm, {});
    fragmented(allocator);
    vmm.take_log();
    const auto s = allocator.alloc(mib(20), 0);
    CHECK(vmm.take_log() == "map 10+2 map 12+10 ");
    CHECK(allocator.extents(s.block).size() == 3);
    CHECK(allocator.stats().occupied == 24 * kMiB);
    CHECK(allocator.alloc(mib(2), 0).block == kNoBlock);
    CHECK(allocator.stats().failures == 1);
  }
  SUBCASE("vmmDefragment 0: the cache is given back instead") {
    Vmm vmm(24 * kMiB);
    Allocator allocator(vmm, parse_stitching_conf("vmmDefragment:0"));
    fragmented(allocator);
    vmm.take_log();
    CHECK(allocator.could_serve(mib(8), 0));
    CHECK_FALSE(allocator.could_serve(mib(20), 0));
    CHECK(allocator.alloc(mib(20), 0).address == 10 * kG);
    CHECK(vmm.take_log() == "sync unmap 0+4 unmap 5+4 map 10+10 ");
  }
  CHECK_THROWS_WITH_AS(parse_stitching_conf("fragLimt:1"), doctest::Contains("did you mean 'fragLimit'"),
                       Error);
  CHECK_THROWS_AS(parse_stitching_conf("defragLevel:2"), Error);
  CHECK_THROWS_AS(parse_stitching_conf("autoGC"), Error);
  CHECK(parse_stitching_conf("default").frag_limit == 16 * kMiB);
  CHECK(parse_stitching_conf("autoGC:5,gc_thresh:2").auto_gc == 5120 * kMiB);
  for (const char* name : {"ideal", "caching", "stitching"})
    CHECK(allocator_name(parse_allocator(name)) == name);
  CHECK_THROWS_WITH_AS(parse_allocator("stiching"), doctest::Contains("did you mean 'stitching'"), Error);
}

TEST_CASE("other streams' granules come back through the device; ranges in use survive that") {
  Vmm vmm(40 * kMiB);
  Allocator allocator(vmm, parse_stitching_conf("reuseLimit:10"));
  std::vector<BlockId> blocks;
  for (const std::int64_t size : {12, 2, 12, 2}) blocks.push_back(allocator.alloc(mib(size), 0).block);
  allocator.free(blocks[0]);
  allocator.free(blocks[2]);
  allocator.free(allocator.alloc(mib(24), 0).block);
  const auto part = allocator.alloc(mib(16), 0);  // 12 + 4 of a range of 24
  vmm.take_log();
  const auto other = allocator.alloc(mib(18), 1);  // 12 MiB are left, 8 free on stream 0
  REQUIRE(other.block != kNoBlock);
  CHECK(other.tag == ReuseTag{});
  CHECK(allocator.stats().drops == 1);
  CHECK(allocator.stats().reserved == 38 * kMiB);
  CHECK(allocator.extents(part.block) == Extents{{14 * kMiB, 12 * kMiB}, {0, 4 * kMiB}});
  allocator.free(part.block);
  allocator.free(other.block);
  CHECK(allocator.alloc(mib(16), 0).address == part.address);
}

TEST_CASE("autoGC: idle ranges go, the longest idle first") {
  Vmm vmm(8192 * kMiB);
  StitchingConfig config;
  config.auto_gc = 60 * kMiB;
  config.gc_thresh = 1;
  Allocator allocator(vmm, config);
  std::vector<BlockId> blocks;
  for (const std::int64_t size : {16, 2, 16, 2, 16, 2}) blocks.push_back(allocator.alloc(mib(size), 0).block);
  for (const unsigned i : {0u, 2u, 4u}) allocator.free(blocks[i]);
  const auto first = allocator.alloc(mib(20), 0);
  allocator.free(first.block);
  allocator.free(allocator.alloc(mib(34), 0).block);
  CHECK(allocator.stats().stitched_bytes == 54 * kMiB);
  const auto third = allocator.alloc(mib(48), 0);
  CHECK(allocator.stats().collections == 1);
  CHECK(allocator.stats().stitched_bytes == 82 * kMiB);  // 20 gone, 48 came
  CHECK(vmm.log.find("unmap " + std::to_string(first.address / kG) + "+10") != std::string::npos);
  allocator.free(third.block);
}

// Random requests on three streams, against a plain count of granules: a request fails exactly when fewer
// granules are free than it needs, and no two blocks ever share bytes.
TEST_CASE("never out of memory while enough granules are free") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint64_t capacity = (8 + random() % 120) * kG;
    Vmm vmm(capacity);
    StitchingConfig config;
    config.stitch = seed % 5 != 0;
    config.defrag_level = seed % 2;
    config.frag_limit = (random() % 3) * 8 * kMiB;
    config.reuse_limit = 1 + random() % 10;
    config.auto_gc = (16 + random() % 512) * kMiB;
    config.gc_thresh = (random() % 64) * kMiB;
    Allocator allocator(vmm, config);
    struct Live {
      BlockId block;
      std::int64_t bytes;
      ReuseTag tag;
    };
    std::vector<Live> live;
    std::uint64_t failures = 0, occupied_peak = 0;
    for (std::uint64_t step = 0; step < 1500; ++step) {
      if (!live.empty() && random() % 100 < 45) {
        const std::size_t at = random() % live.size();
        allocator.free(live[at].block, {step, step / 2});
        live[at] = live.back();
        live.pop_back();
      } else {
        const bool small = random() % 3 == 0;
        const auto bytes = static_cast<std::int64_t>(1 + random() % (small ? kG : 1 + capacity / 3));
        const auto stream = static_cast<std::uint32_t>(random() % 3);
        const std::uint64_t granules_free = (capacity - allocator.stats().occupied) / kG;
        const std::uint64_t needed = (static_cast<std::uint64_t>(bytes) + kG - 1) / kG;
        const bool could = allocator.could_serve(Bytes{bytes}, stream);
        const std::uint64_t drops = allocator.stats().drops;
        const auto result = allocator.alloc(Bytes{bytes}, stream);
        const bool ok = result.block != kNoBlock;
        if (could) CHECK((ok && allocator.stats().drops == drops));
        if (needed <= granules_free) CHECK(ok);
        if (!ok) {
          ++failures;
          CHECK(needed > granules_free);
        } else {
          live.push_back({result.block, bytes, result.tag});
        }
      }
      CHECK(allocator.stats().occupied <= allocator.stats().reserved);
      CHECK(allocator.stats().reserved == vmm.used);
      occupied_peak = std::max(occupied_peak, allocator.stats().occupied);
      if (step % 50 != 0) continue;
      Extents all;
      std::uint64_t large = 0;
      for (const Live& one : live) {
        std::uint64_t sum = 0;
        for (const auto& extent : allocator.extents(one.block)) {
          all.push_back(extent);
          sum += extent.size;
          REQUIRE(vmm.mapped.count(extent.address / kG * kG) == 1);
        }
        CHECK(sum >= static_cast<std::uint64_t>(one.bytes));
        CHECK(sum < static_cast<std::uint64_t>(one.bytes) + kG);
        if (sum % kG == 0) large += sum;
      }
      CHECK(large <= allocator.stats().occupied);
      std::sort(all.begin(), all.end(), [](const auto& x, const auto& y) { return x.address < y.address; });
      for (std::size_t i = 1; i < all.size(); ++i) {
        REQUIRE(all[i - 1].address + all[i - 1].size <= all[i].address);
      }
    }
    CHECK(allocator.stats().failures == failures);
    CHECK(allocator.stats().peak_occupied == occupied_peak);
    for (const Live& one : live) allocator.free(one.block);
    CHECK(allocator.stats().occupied == 0);
    CHECK(allocator.alloc(Bytes{static_cast<std::int64_t>(capacity)}, 0).block != kNoBlock);
  }
}

}  // namespace
