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

TEST_CASE("allocator truth: histories that start late say so") {
  const auto path = swaplab::test::shared_path("corpus/torch_snapshot/gpt_medium_128_training.pickle");
  if (!path) return;
  const SnapshotTruth t = truth_of(*path);
  CHECK_FALSE(t.complete);
  CHECK(t.unmatched_frees == 438);
  CHECK_FALSE(t.reasons.empty());
}
