// The longest path of the swap-only bound at one budget; see swap_path.hpp for what its edges mean and why
// they hold.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/bounds/host_clock.hpp"
#include "sim/machine.hpp"
#include "trace/units.hpp"

namespace swaplab {

// Rates that no copy exceeds, bytes/s, the share of them that remains while a copy of the other direction
// runs, the same of kernels while copies run, and the costs of the host.
struct SwapRates {
  std::int64_t out = 0, in = 0;
  Ppm out_beside_in = kUnchanged, in_beside_out = kUnchanged;
  Ppm kernel_beside_out = kUnchanged, kernel_beside_in = kUnchanged;
  HostRules host{};
};

enum class ChainKind : std::uint8_t { compute, out, in, shared, host, slowed_by_out, slowed_by_in };

struct PathPoint {
  std::int32_t op;  // kRunStart possible
  bool end;
  Nanos time;      // compute time of the program before it
  Bytes required;  // W
};

constexpr std::uint32_t kNoVersion = 0xffffffff;

// Gaps open at the points [begin, end) whose version is complete from point `version` on; merged. Their bytes
// count in Y(p, q) for p >= `version` and in X(p, q) for p >= `from`, begin <= q < end. kNoVersion: in X
// only, with either sign, where gaps that opened at `from` are still to be closed but others have begun that
// close later.
struct PathRange {
  std::uint32_t begin, end, version, from;
  std::int64_t bytes;
};

// The host's way to the points. Its clock at a launch, less what it has spent until then, never falls.
struct HostPath {
  // From point `to` on it is at least the time of point `from` plus `offset`.
  struct Step {
    std::uint32_t from, to;
    std::int64_t offset;
  };
  std::vector<Step> steps;          // ascending by `to`
  std::vector<std::int64_t> spent;  // per point that is a start: until the kernel can start; empty: no host
};

// How the longest path reaches a point.
struct PathStep {
  std::uint32_t from;
  ChainKind kind;
  std::int64_t bytes;   // out, or in; 0 for compute and host
  std::int64_t beside;  // shared: bytes in, `bytes` being those out
};

struct LongestPath {
  std::vector<std::int64_t> longest;  // ns from the first point, per point
  std::vector<PathStep> steps;        // per point, the first has none
};

class PathSearch {
 public:
  // `ranges` ascending by begin, `by_end` its rows ascending by end. All must outlive the search.
  PathSearch(std::span<const PathPoint> points, std::span<const PathRange> ranges,
             std::span<const std::uint32_t> by_end, const HostPath& host, const SwapRates& rates,
             std::int32_t edge_span, Bytes budget);

  // O(points x points within the edge span), some three times that where the directions slow each other down.
  LongestPath run() const;

 private:
  __extension__ using Wide = __int128;

  // Time of bytes over a link: floor(bytes * num / den) ns.
  struct Link {
    std::int64_t num;
    Wide den;
    std::int64_t time(std::int64_t bytes) const { return static_cast<std::int64_t>(Wide{bytes} * num / den); }
    // time(bytes) > limit, without a division. limit >= 0.
    bool exceeds(std::int64_t bytes, std::int64_t limit) const {
      return Wide{bytes} * num >= Wide{limit + 1} * den;
    }
  };
  // What one nanosecond of each kind of edge counts, ppm.
  struct Weights {
    Ppm compute = kUnchanged, out = kUnchanged, in = kUnchanged;
  };
  // Gaps open at a point, summed by the first point at which their version is complete and by their first
  // open point: the sums of the entries up to p are Y(p,q) and X(p,q), no matrix is needed.
  class OpenGaps;
  // Edges of kind `shared` from one point to those behind it.
  struct Shared {
    std::uint32_t start;
    std::vector<std::int64_t> time;  // to point start + 1 + i
    std::vector<std::int64_t> out, in;
  };

  // `plain`: with the host's steps and slowed kernels, for which every nanosecond must count in full.
  LongestPath search(std::uint32_t first, std::uint32_t end, const Weights& weights,
                     std::span<const Shared> shared, bool plain) const;
  std::uint32_t span_end(std::uint32_t first) const;
  Shared share(std::uint32_t start, bool whole_out, Ppm slowdown) const;
  std::vector<Shared> shared_edges(const LongestPath& plain) const;

  std::span<const PathPoint> points_;
  std::span<const PathRange> ranges_;
  std::span<const std::uint32_t> by_end_;
  const HostPath& host_;
  SwapRates rates_;
  std::int32_t edge_span_;
  std::vector<std::int64_t> excess_;  // r, per point
};

}  // namespace swaplab
