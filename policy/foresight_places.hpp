// Where in the allocator's segments a request could be served, and who would have to leave for it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/allocator/caching_allocator.hpp"

namespace swaplab::foresight {

// Who has a block, and what it costs to send that storage away; cost < 0: it must stay.
struct Tenant {
  std::uint32_t slot;
  std::int64_t cost;
};
using TenantAt = std::function<Tenant(std::uint64_t address)>;

struct Request {
  std::int64_t bytes;  // rounded as the allocator does
  bool large;          // pool
  std::uint32_t stream;
};

// The neighbours with the smallest sum of costs whose blocks, with free ones between them, make a place for
// the request; the first, by address, of equals, so that repeated requests sweep through the memory and leave
// what stays in one piece. Empty when no segment has such a place.
std::vector<std::uint32_t> cheapest_place(std::span<const SegmentInfo> segments, const Request& request,
                                          const TenantAt& tenant_at);

// Tenants of the segments that cost least per byte, until `missing` bytes of segments are empty (those that
// are empty already count), so that the allocator can give them back to the device for a new one.
std::vector<std::uint32_t> cheapest_segments(std::span<const SegmentInfo> segments, std::int64_t missing,
                                             const TenantAt& tenant_at);

}  // namespace swaplab::foresight
