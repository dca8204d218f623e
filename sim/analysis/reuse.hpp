// How soon bytes are needed again: reuse distances, and idle intervals against the time of a transfer.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/machine.hpp"
#include "sim/program.hpp"

namespace swaplab {

// Reuse distance of an access: bytes of the distinct live storages that were accessed since the last access
// of the same storage, its own among them. An LRU memory of at least this size would still hold it (Mattson
// et al., IBM Systems Journal 9(2), 1970, with bytes for pages).
struct ReuseDistances {
  struct Bucket {
    Bytes up_to;  // distances below or equal, above the bucket before; powers of two
    std::uint64_t accesses = 0;
    Bytes bytes;  // of the storages accessed: what an LRU memory just below `up_to` would fetch
  };
  std::vector<Bucket> buckets;  // ascending, without empty ones at either end
  std::uint64_t first_accesses = 0, reuses = 0;
  // The smallest distance that at least this share of the reused bytes does not exceed: 50 %, 90 %, 99 %, 100
  // %.
  std::array<Bytes, 4> quantiles{};
};
ReuseDistances reuse_distances(const Program& program);

// Between two accesses of a storage. Time is device time of the operators between, as if they ran back to
// back.
struct IdleInterval {
  Slot slot;
  std::uint32_t from, to;  // operators that access it
  Bytes bytes;
  Nanos idle;
  Nanos transfer;  // out and in again on the machine's pinned link; only in when the content is on the host
                   // already
  bool hideable() const { return idle >= transfer; }
};
// All intervals with at least one operator between, ascending by (from, slot). The host copy of a storage is
// valid from its first departure until it is written again, assuming that every hideable interval is used.
std::vector<IdleInterval> idle_intervals(const Program& program, const Machine& machine);

struct IdleSummary {
  std::uint64_t intervals = 0, hideable = 0;
  Bytes at_peak, hideable_at_peak;  // bytes of intervals open at the peak operator
};
IdleSummary summarise(const std::vector<IdleInterval>& intervals, std::uint32_t peak_op);

}  // namespace swaplab
