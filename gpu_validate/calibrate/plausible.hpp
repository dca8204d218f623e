// Samples that cannot be times of what they name: a clock that stood still, a unit mistaken, a copy that
// never ran. They are excluded and counted, with their place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu_validate/calibrate/measurements.hpp"

namespace swaplab {

// 1 B/ns = 1 GB/s. No link comes near this (NVLink 5: 900 GB/s per direction), nor device memory near the
// other (8 TB/s; caches several times that); matrix units of one device reach some 10^16 FLOP/s.
constexpr std::int64_t kFastestLink = 10'000;       // B/ns, of copies to, from and between devices
constexpr std::int64_t kFastestMemory = 100'000;    // B/ns, within a device
constexpr std::int64_t kFastestMath = 100'000'000;  // FLOP/ns
constexpr Nanos kLongestSample{3'600'000'000'000};

// Least time that a sample of the series can be; at least 1 ns.
Nanos least_time(const MeasuredSeries& series);

struct ExcludedSamples {
  std::string file;
  std::size_t line = 0;  // 0: not known
  std::string quantity;
  std::int64_t x = 0;
  XUnit unit = XUnit::call;
  std::size_t excluded = 0, of = 0;
  bool whole_series = false;  // most samples were impossible, so the others are not believed either
  std::string expected;       // "at least 107375 ns (10000 GB/s), found 0 ns"
  // "probe.json:7: copy_h2d_pinned at 1073741824 bytes: 3 of 20 samples excluded: expected ..., found ..."
  std::string text() const;
};

// What is left of the measurements; `excluded` gets what is not.
Measurements plausible(const Measurements& measurements, std::vector<ExcludedSamples>& excluded);

}  // namespace swaplab
