// Times of a profile for the operators of an execution trace of the same run.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "trace/import/kineto_events.hpp"

namespace swaplab::kineto {

struct Link {
  // Per operator, ns; -1 when the profile does not name it.
  std::vector<std::int64_t> device_time, host_time;
  struct Unclaimed {
    std::size_t before;  // the operator that it comes before
    std::string_view name;
    std::int64_t device_time;
  };
  std::vector<Unclaimed> unclaimed;  // device work between linked operators that none of them launched
  std::int64_t matched = 0, by_record = 0;
  std::int64_t total = 0, linked = 0, unclaimed_time = 0;  // ns of device events: all, linked, unclaimed
};

// `names` and `records` (rf_id) are those of the operators in program order. The profile's operators are
// matched by Record function id where both have one and the names agree, else by the longest common order
// of names around the place where most of them line up. `events` must outlive the result.
Link link_operators(const Events& events, std::span<const std::string_view> names,
                    std::span<const std::uint64_t> records);

}  // namespace swaplab::kineto
