#include "sim/machine.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kNanosPerSecond = 1'000'000'000;

std::string describe(const TransferPoint& point) {
  return std::to_string(point.bytes.value) + " B in " + std::to_string(point.time.value) + " ns";
}

void check_points(std::span<const TransferPoint> points, std::int64_t bytes_per_second) {
  if (bytes_per_second <= 0) throw Error(ErrorKind::input, "transfer table: the bandwidth must be above 0");
  for (std::size_t i = 0; i < points.size(); ++i) {
    const TransferPoint& p = points[i];
    if (p.bytes.value < 0 || p.time.value < 0 || p.time.value > kSaturated)
      throw Error(ErrorKind::input, "transfer table: point out of range: " + describe(p));
    if (p.bytes.value > 0 && p.time.value == 0)
      throw Error(ErrorKind::input, "transfer table: a copy cannot take no time: " + describe(p));
    if (i == 0) continue;
    if (p.bytes <= points[i - 1].bytes)
      throw Error(ErrorKind::input, "transfer table: sizes must increase, but " + describe(p) + " follows " +
                                        describe(points[i - 1]));
    if (p.time < points[i - 1].time)
      throw Error(ErrorKind::input, "transfer table: a larger copy cannot be faster, but " + describe(p) +
                                        " follows " + describe(points[i - 1]));
  }
}

}  // namespace

TransferTable::TransferTable(std::vector<TransferPoint> points, std::int64_t bytes_per_second)
    : points_(std::move(points)), bytes_per_second_(bytes_per_second), best_rate_(bytes_per_second) {
  check_points(points_, bytes_per_second);
  // bytes/time is monotone along a straight piece, so its maximum is at a point or at infinite size.
  for (const TransferPoint& p : points_)
    if (p.bytes.value > 0)
      best_rate_ = std::max(best_rate_, ceil_mul_div(p.bytes.value, kNanosPerSecond, p.time.value));
}

Nanos TransferTable::time(Bytes bytes) const {
  if (bytes.value <= 0) return {0};
  if (bytes_per_second_ == 0) throw Error(ErrorKind::invariant, "transfer table without a bandwidth");
  if (points_.empty()) return {ceil_mul_div(bytes.value, kNanosPerSecond, bytes_per_second_)};
  const TransferPoint& last = points_.back();
  if (bytes >= last.bytes) {
    const std::int64_t tail = ceil_mul_div((bytes - last.bytes).value, kNanosPerSecond, bytes_per_second_);
    return {std::min(last.time.value + tail, kSaturated)};
  }
  const auto right = std::upper_bound(points_.begin(), points_.end(), bytes,
                                      [](Bytes b, const TransferPoint& p) { return b < p.bytes; });
  if (right == points_.begin()) return right->time;
  const TransferPoint& left = *(right - 1);
  const std::int64_t rise = (right->time - left.time).value;
  const std::int64_t run = (right->bytes - left.bytes).value;
  return {left.time.value + ceil_mul_div((bytes - left.bytes).value, rise, run)};
}

std::string_view op_class_name(OpClass cls) {
  constexpr std::array<std::string_view, kOpClassCount> names = {"matmul",      "attention", "convolution",
                                                                 "elementwise", "reduction", "normalization",
                                                                 "optimizer",   "copy",      "other"};
  return names[static_cast<std::size_t>(cls)];
}

}  // namespace swaplab
