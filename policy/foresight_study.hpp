// A program as the planners' rules see it: what they look up of it again and again, computed once.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "policy/foresight_gaps.hpp"
#include "policy/foresight_select.hpp"

namespace swaplab::foresight {

// Not movable: `problem` refers to the other members, and to what it was made from.
struct Study {
  // `granularity`: allocation unit.
  Study(const Program& program, const Machine& machine, const Placement& placement, Bytes budget,
        Bytes granularity)
      : gaps(find_gaps(program, granularity)),
        sizes(sizes_of(program, granularity)),
        clock(clock_of(program)),
        root_size(roots_of(program)),
        problem{program, machine, gaps, placement, sizes, clock, root_size, budget.value} {}
  Study(const Study&) = delete;
  Study& operator=(const Study&) = delete;

  const GapTable gaps;
  const std::vector<std::int64_t> sizes, clock;
  const std::vector<double> root_size;
  const Problem problem;

 private:
  static std::vector<std::int64_t> sizes_of(const Program& program, Bytes granularity) {
    std::vector<std::int64_t> sizes;
    for (const Bytes bytes : program.bytes) sizes.push_back(rounded(bytes, granularity));
    return sizes;
  }
  static std::vector<std::int64_t> clock_of(const Program& program) {
    std::vector<std::int64_t> clock(program.op_count() + std::size_t{1}, 0);
    for (std::uint32_t op = 0; op < program.op_count(); ++op)
      clock[op + 1] = clock[op] + program.device_time[op].value;
    return clock;
  }
  static std::vector<double> roots_of(const Program& program) {
    std::vector<double> roots;
    for (const Bytes bytes : program.bytes)
      roots.push_back(std::sqrt(std::sqrt(static_cast<double>(bytes.value))));
    return roots;
  }
};

}  // namespace swaplab::foresight
