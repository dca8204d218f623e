#include "gpu_validate/probe.hpp"

#include <algorithm>
#include <chrono>
#include <set>

#include "gpu_validate/real_device.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFewestSamples = 5, kMostSamples = 50, kMostSamplesFull = 200;
constexpr std::int64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;

Nanos since(Clock::time_point begin) {
  return Nanos{std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count()};
}

std::vector<std::int64_t> sizes(std::int64_t from, std::int64_t to, std::int64_t factor) {
  std::vector<std::int64_t> all;
  for (std::int64_t x = from; x < to; x *= factor) all.push_back(x);
  all.push_back(to);
  return all;
}

}  // namespace

std::vector<ProbePoint> probe_points(const ProbeOptions& options, const ProbeDevice& device) {
  std::vector<ProbePoint> points;
  const auto add = [&](const std::string& quantity, const std::vector<std::int64_t>& xs, XUnit unit) {
    if (quantity.find(options.only) == std::string::npos) return;
    for (const std::int64_t x : xs) points.push_back({quantity, x, unit});
  };
  const std::int64_t step = options.full ? 2 : 4;
  const std::vector<std::int64_t> curve = sizes(kKiB, kGiB, step),
                                  middle = sizes(64 * kKiB, 256 * kMiB, step);
  for (const std::string direction : {"h2d", "d2h"})
    add("copy_" + direction + "_pinned", curve, XUnit::bytes);
  for (const std::string direction : {"h2d", "d2h"})
    add("copy_" + direction + "_duplex", middle, XUnit::bytes);
  // Background work covers a copy of this size several times over.
  const std::vector<std::int64_t> beside = options.full ? sizes(kMiB, 64 * kMiB, 4) : std::vector{16 * kMiB};
  const std::vector<std::int64_t> work =
      options.full ? sizes(1 << 10, 1 << 16, 4) : sizes(1 << 12, 1 << 14, 4);
  for (const std::string kernel : {"compute", "memory"}) {
    add("kernel_" + kernel, work, XUnit::work);
    for (const std::string copies : {"h2d", "d2h", "both"})
      add("kernel_" + kernel + "_beside_" + copies, work, XUnit::work);
    for (const std::string direction : {"h2d", "d2h"})
      add("copy_" + direction + "_beside_" + kernel, beside, XUnit::bytes);
  }
  add("kernel_empty", {1}, XUnit::call);
  add("launch_latency", {1}, XUnit::call);
  for (const char* call : {"launch", "event_record", "event_query", "event_wait", "synchronize"})
    add(std::string("host_") + call, {1}, XUnit::call);
  add("host_copy_submit", {kMiB}, XUnit::bytes);
  const std::vector<std::int64_t> blocks =
      options.full ? sizes(2 * kMiB, kGiB, 4) : std::vector{2 * kMiB, 20 * kMiB, 256 * kMiB};
  for (const char* call : {"malloc", "free", "malloc_async", "free_async"})
    add(std::string("host_") + call, blocks, XUnit::bytes);
  add("vmm_reserve", {20 * kMiB}, XUnit::bytes);
  for (const char* call : {"vmm_map", "vmm_unmap"}) add(call, blocks, XUnit::bytes);
  for (const std::string direction : {"h2d", "d2h"})
    add("copy_" + direction + "_pageable", curve, XUnit::bytes);
  add("pin", options.full ? sizes(16 * kMiB, kGiB, 4) : std::vector{64 * kMiB, 256 * kMiB}, XUnit::bytes);
  add("copy_d2d", middle, XUnit::bytes);
  add("stream_copy", middle, XUnit::bytes);
  std::vector<std::int64_t> flop;
  for (const std::int64_t n : options.full ? std::vector<std::int64_t>{256, 512, 1024, 2048, 4096, 8192}
                                           : std::vector<std::int64_t>{512, 2048, 4096})
    flop.push_back(2 * n * n * n);
  for (const char* type : {"fp32", "tf32", "bf16", "fp16"})
    add(std::string("gemm_") + type, flop, XUnit::flop);
  for (const int peer : device.peers()) {
    const std::string pair = "copy_p2p_" + std::to_string(device.number()) + "_" + std::to_string(peer);
    add(pair, middle, XUnit::bytes);
  }
  return points;
}

ProbeResult probe_device(Hardware& hardware, const ProbeOptions& options) {
  const auto begin = Clock::now();
  const Nanos limit = options.limit > Nanos{0} ? options.limit
                      : options.full           ? Nanos{600'000'000'000}
                                               : Nanos{90'000'000'000};
  const std::unique_ptr<ProbeDevice> device = hardware.open_probe();
  const AcceleratorInfo& info = hardware.info();
  ProbeResult result;
  result.measurements.device = {info.name, info.driver, info.runtime, options.date, info.kind};
  const std::vector<ProbePoint> points = probe_points(options, *device);
  if (points.empty()) throw Error(ErrorKind::usage, "no quantity has '" + options.only + "' in its name");
  std::set<std::string> unsupported, supported;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const ProbePoint& point = points[i];
    if (options.interrupted != nullptr && options.interrupted->load(std::memory_order_relaxed))
      throw Interrupted{};
    if (options.progress) options.progress(i, points.size(), point.quantity);
    const Nanos left = limit - since(begin);
    if (left <= Nanos{0}) {
      result.out_of_time = points.size() - i;
      break;
    }
    if (!device->prepare(point.quantity, point.x)) {
      unsupported.insert(point.quantity);
      continue;
    }
    supported.insert(point.quantity);
    // An equal share of what is left, so that slow points cannot starve later ones.
    const Nanos share = left / static_cast<std::int64_t>(points.size() - i);
    MeasuredSeries series{point.quantity, point.x, point.unit, {}};
    const auto started = Clock::now();
    const std::size_t most = options.full ? kMostSamplesFull : kMostSamples;
    device->sample();  // the first touches what later ones find warm
    while (series.samples.size() < most &&
           (series.samples.size() < kFewestSamples || since(started) < share)) {
      if (series.samples.size() >= 2 && since(begin) >= limit) break;
      series.samples.push_back(device->sample());
    }
    result.measurements.series.push_back(std::move(series));
  }
  for (const std::string& quantity : unsupported) {
    if (supported.count(quantity) == 0) result.unsupported.push_back(quantity);
  }
  return result;
}

}  // namespace swaplab
