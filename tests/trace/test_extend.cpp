// A recording of one iteration, continued: what lived before it is there once.
#include <doctest/doctest.h>

#include <array>

#include "trace/builder.hpp"
#include "trace/check.hpp"
#include "trace/extend.hpp"

using namespace swaplab;

namespace {

// Weights before the mark and behind it, a batch that lived before and ends here, an activation made before
// the mark and used in the iteration, a result that the next iteration replaces.
Trace one_iteration() {
  TraceBuilder b;
  TraceHeader header;
  header.device = "cuda";
  b.set_header(header);
  TraceBuilder::Signature s;
  s.name = "f";
  const SigId f = b.add_signature(s);
  const auto op = [&](std::vector<StorageId> in, std::vector<StorageId> out) {
    TraceBuilder::Op o;
    o.signature = f;
    o.device_time = Nanos{10};
    o.in = in;
    o.out = out;
    b.op(o);
  };
  const StorageId weight = b.alloc(Bytes{1000}, "cuda:0", true);
  b.tag(weight, StorageClass::parameter, "w");
  const StorageId batch = b.alloc(Bytes{200}, "cuda:0", true);
  const StorageId early = b.alloc(Bytes{50}, "cuda:0", false);
  op({}, {early});
  b.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
  const StorageId late = b.alloc(Bytes{3000}, "cuda:0", true);
  const StorageId result = b.alloc(Bytes{7}, "cuda:0", false);
  op({weight, late, batch, early}, {result});
  b.free(batch);
  b.free(early);
  b.mark(MarkKind::iter_end, "", 0, Nanos{-1});
  return b.finish();
}

}  // namespace

TEST_CASE("one recorded iteration, continued: what lived before it is there once") {
  const Trace trace = one_iteration();
  REQUIRE(trace.peak_bytes == Bytes{1000 + 200 + 50 + 3000 + 7});
  for (const std::uint32_t n : {1u, 2u, 3u, 9u}) {
    CAPTURE(n);
    const Trace longer = extend_iterations(trace, n);
    CHECK(examine_trace(longer).problems.empty());
    CHECK(longer.iterations.size() == n);
    CHECK(longer.peak_bytes == trace.peak_bytes);
    std::array<std::uint32_t, 5> count{};
    const std::array<std::int64_t, 5> sizes{1000, 3000, 200, 50, 7};
    for (const Bytes bytes : longer.storages.bytes) {
      for (std::size_t i = 0; i < sizes.size(); ++i) count[i] += bytes == Bytes{sizes[i]} ? 1 : 0;
    }
    // The weights stay; the batch and the early activation come anew; the result is replaced.
    CHECK(count == std::array<std::uint32_t, 5>{1, 1, n, n, n});
    // The operator before the mark is not part of the iteration.
    CHECK(longer.ops.size() == 1 + n);
    const auto last = static_cast<std::uint32_t>(longer.ops.size() - 1);
    CHECK(longer.inputs(last)[0] == longer.inputs(1)[0]);
    CHECK(longer.inputs(last)[1] == longer.inputs(1)[1]);
  }
}
