// Which figures of two machine descriptions differ, by how much, and where each came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/machine.hpp"

namespace swaplab {

struct MachineDifference {
  std::string figure;  // "links.h2d.bandwidth", "links.h2d.time[1048576 B]"
  std::string unit;    // base unit of the integers: "bytes_per_s", "ns", "ppm", ...
  std::int64_t a = 0, b = 0;
  FigureSource source_a, source_b;
  // b / a - 1; nothing when a is 0 or either side is unlimited.
  std::optional<double> change;
};

struct MachineDiff {
  std::vector<MachineDifference> differences;  // in the order of the file
  std::size_t equal = 0;                       // figures with the same value
  std::size_t equal_other_source = 0;          // of these, how many state another source
};

// Links whose tables differ are compared by bandwidth, by latency where both have one, and by the times of
// copies from 4 KiB to 1 GiB.
MachineDiff diff_machines(const Machine& a, const Machine& b);

// "12.40 GB/s", "2.5 us", "87.0 %", "989.5 TFLOP/s": an integer of a base unit for people.
std::string human_figure(std::int64_t value, const std::string& unit);

}  // namespace swaplab
