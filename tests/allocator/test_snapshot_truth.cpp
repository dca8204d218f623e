// PyTorch's own recorded allocations: complete histories agree in every segment and every offset.
#include <doctest/doctest.h>

#include "sim/allocator/snapshot_truth.hpp"
#include "tests/support/shared.hpp"

using swaplab::SnapshotTruth;

namespace {

SnapshotTruth truth_of(const std::string& path) {
  const auto all =
      swaplab::compare_with_snapshot(swaplab::read_torch_snapshot(swaplab::ImportInput::file(path)));
  REQUIRE(all.size() == 1);
  return all[0];
}

}  // namespace

TEST_CASE("allocator truth: complete PyTorch histories agree in all segments and offsets") {
  struct Want {
    const char* file;
    std::uint64_t allocations, segments;
  };
  for (const Want& want : {Want{"decomfl_full_history", 7946, 61}, Want{"tiny_segment_alloc", 36, 9}}) {
    const auto path =
        swaplab::test::shared_path(std::string("corpus/torch_snapshot/") + want.file + ".pickle");
    if (!path) return;
    CAPTURE(want.file);
    const SnapshotTruth t = truth_of(*path);
    CHECK(t.allocations == want.allocations);
    CHECK(t.segments == want.segments);
    CHECK(t.segments_agree == want.segments);
    CHECK(t.segments_extra == 0);
    CHECK(t.placed_agree == want.allocations);
    CHECK_MESSAGE(t.agrees(), t.first_difference);
  }
}

TEST_CASE("allocator truth: a wrong segment size or offset is noticed") {
  const auto path = swaplab::test::shared_path("corpus/torch_snapshot/tiny_segment_alloc.pickle");
  if (!path) return;
  const auto original = swaplab::read_torch_snapshot(swaplab::ImportInput::file(*path));
  auto changed = original;
  for (auto& e : changed.devices[0]) {
    if (e.action == swaplab::SnapshotAction::segment_alloc) {
      e.bytes += 2 << 20;
      break;
    }
  }
  CHECK(swaplab::compare_with_snapshot(changed)[0].segments_agree < original.segments.size());
  CHECK_FALSE(swaplab::compare_with_snapshot(changed)[0].agrees());
  changed = original;
  for (auto& e : changed.devices[0]) {
    if (e.action == swaplab::SnapshotAction::alloc) {
      e.address += 512;
      break;
    }
  }
  CHECK_FALSE(swaplab::compare_with_snapshot(changed)[0].agrees());
}

TEST_CASE("allocator truth: histories that start late agree from the start that the file tells") {
  struct Want {
    const char* file;
    std::uint64_t allocations, segments, blocks;
  };
  for (const Want& want :
       {Want{"forward_bf16_128", 937, 43, 137}, Want{"gpt_medium_128_training", 6526, 377, 664},
        Want{"magma_steady", 1721, 216, 229}}) {
    const auto path =
        swaplab::test::shared_path(std::string("corpus/torch_snapshot/") + want.file + ".pickle");
    if (!path) return;
    CAPTURE(want.file);
    const SnapshotTruth t = truth_of(*path);
    CHECK_FALSE(t.complete);
    CHECK(t.rebuilt);
    CHECK(t.start_segments == want.segments);
    CHECK(t.start_blocks == want.blocks);
    CHECK(t.allocations == want.allocations);
    CHECK(t.placed_agree == want.allocations);
    CHECK(t.unmatched_frees == 0);
    CHECK_MESSAGE(t.agrees(), t.first_difference);
  }
}

TEST_CASE("allocator truth: a complete history cut anywhere agrees from there on") {
  const auto path = swaplab::test::shared_path("corpus/torch_snapshot/decomfl_full_history.pickle");
  if (!path) return;
  const auto whole = swaplab::read_torch_snapshot(swaplab::ImportInput::file(*path));
  std::uint64_t rebuilt = 0;
  for (std::ptrdiff_t cut = 1; cut < static_cast<std::ptrdiff_t>(whole.devices[0].size()); cut += 1111) {
    auto late = whole;
    late.devices[0].erase(late.devices[0].begin(), late.devices[0].begin() + cut);
    const auto t = swaplab::compare_with_snapshot(late)[0];
    CAPTURE(cut);
    CHECK(t.unmatched_frees == 0);
    // Where a start holds blocks whose lengths the file does not give, it says so.
    const bool assumed = !t.reasons.empty() && t.reasons.back().find("are assumed") != std::string::npos;
    CHECK_MESSAGE((t.agrees() || assumed), t.first_difference);
    rebuilt += t.rebuilt && t.agrees() ? 1 : 0;
  }
  CHECK(rebuilt >= 10);
}

TEST_CASE("allocator truth: a start that cannot be told is said, not guessed") {
  const auto path = swaplab::test::shared_path("corpus/torch_snapshot/magma_steady.pickle");
  if (!path) return;
  auto changed = swaplab::read_torch_snapshot(swaplab::ImportInput::file(*path));
  changed.segments.clear();
  const auto without = swaplab::compare_with_snapshot(changed)[0];
  CHECK_FALSE(without.rebuilt);
  CHECK_FALSE(without.agrees());
  REQUIRE_FALSE(without.reasons.empty());
  CHECK(without.reasons[0].find("the file has no block map") != std::string::npos);
  // A history that contradicts the block map: an allocation that is neither freed nor in the map.
  auto odd = swaplab::read_torch_snapshot(swaplab::ImportInput::file(*path));
  odd.devices[0].push_back({swaplab::SnapshotAction::alloc, 512, 512, 0, -1});
  CHECK(swaplab::compare_with_snapshot(odd)[0].reasons[0].find("the block map lacks an allocation") !=
        std::string::npos);
}
