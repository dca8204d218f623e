#include "policy/foresight_places.hpp"

#include <algorithm>
#include <utility>

#include "sim/program.hpp"

namespace swaplab::foresight {

std::vector<std::uint32_t> cheapest_place(std::span<const SegmentInfo> segments, const Request& request,
                                          const TenantAt& tenant_at) {
  std::int64_t best_cost = -1;
  std::vector<std::uint32_t> best;
  std::vector<Tenant> tenants;
  for (const SegmentInfo& segment : segments) {
    if (segment.large != request.large || segment.stream != request.stream) continue;
    if (static_cast<std::int64_t>(segment.size) < request.bytes) continue;
    tenants.clear();
    std::uint64_t address = segment.address;
    for (const SegmentInfo::BlockInfo& block : segment.blocks) {
      tenants.push_back(block.active ? tenant_at(address) : Tenant{kNever, 0});
      address += block.size;
    }
    const auto size_of = [&](std::size_t i) { return static_cast<std::int64_t>(segment.blocks[i].size); };
    std::int64_t size = 0, sum = 0;
    std::size_t first = 0;
    for (std::size_t last = 0; last < tenants.size(); ++last) {
      if (tenants[last].cost < 0) {
        size = sum = 0;
        first = last + 1;
        continue;
      }
      size += size_of(last);
      sum += tenants[last].cost;
      while (size - size_of(first) >= request.bytes) {
        size -= size_of(first);
        sum -= tenants[first++].cost;
      }
      if (size < request.bytes || (best_cost >= 0 && sum >= best_cost)) continue;
      best_cost = sum;
      best.clear();
      for (std::size_t i = first; i <= last; ++i) {
        if (tenants[i].slot != kNever) best.push_back(tenants[i].slot);
      }
    }
  }
  return best;
}

std::vector<std::uint32_t> cheapest_segments(std::span<const SegmentInfo> segments, std::int64_t missing,
                                             const TenantAt& tenant_at) {
  struct Choice {
    double cost_per_byte;
    std::int64_t size;
    std::vector<std::uint32_t> tenants;
  };
  std::vector<Choice> choices;
  for (const SegmentInfo& segment : segments) {
    Choice choice{0, static_cast<std::int64_t>(segment.size), {}};
    std::uint64_t address = segment.address;
    std::int64_t cost = 0;
    for (const SegmentInfo::BlockInfo& block : segment.blocks) {
      if (block.active && cost >= 0) {
        const Tenant tenant = tenant_at(address);
        choice.tenants.push_back(tenant.slot);
        cost = tenant.cost < 0 ? -1 : cost + tenant.cost;
      }
      address += block.size;
    }
    if (cost < 0) continue;
    choice.cost_per_byte = static_cast<double>(cost) / static_cast<double>(choice.size);
    if (choice.tenants.empty()) {
      missing -= choice.size;
    } else {
      choices.push_back(std::move(choice));
    }
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.cost_per_byte < b.cost_per_byte; });
  std::vector<std::uint32_t> result;
  for (const Choice& choice : choices) {
    if (missing <= 0) break;
    missing -= choice.size;
    result.insert(result.end(), choice.tenants.begin(), choice.tenants.end());
  }
  return result;
}

}  // namespace swaplab::foresight
