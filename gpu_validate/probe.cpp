#include "gpu_validate/probe.hpp"

#include <algorithm>
#include <chrono>
#include <span>

#include "gpu_validate/real_device.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::size_t kLeastSamples = 2, kFewestSamples = 5, kMostSamples = 50, kMostSamplesFull = 200;
constexpr std::int64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;

std::vector<std::int64_t> sizes(std::int64_t from, std::int64_t to, std::int64_t factor) {
  std::vector<std::int64_t> all;
  for (std::int64_t x = from; x < to; x *= factor) all.push_back(x);
  all.push_back(to);
  return all;
}

Nanos steady_now() {
  return Nanos{std::chrono::duration_cast<std::chrono::nanoseconds>(
                   std::chrono::steady_clock::now().time_since_epoch())
                   .count()};
}

// Takes the points of one quantity, by increasing x, within a share of the time.
class QuantityProbe {
 public:
  QuantityProbe(ProbeDevice& device, const ProbeOptions& options, const std::function<Nanos()>& clock)
      : device_(device), options_(options), clock_(clock) {}

  bool supported() const { return supported_; }
  std::size_t left_out() const { return left_out_; }

  void run(std::span<const ProbePoint> points, Nanos deadline, std::vector<MeasuredSeries>& series) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (options_.interrupted != nullptr && options_.interrupted->load(std::memory_order_relaxed))
        throw Interrupted{};
      const Nanos now = clock_(), left = deadline - now;
      // The first point is always tried; what larger ones will take follows from it.
      if (supported_ && expected(points[i].x) > left) {
        left_out_ = points.size() - i;
        return;
      }
      if (!device_.prepare(points[i].quantity, points[i].x)) continue;
      supported_ = true;
      series.push_back(
          sample(points[i], now, now + left / static_cast<std::int64_t>(points.size() - i), deadline));
    }
  }

 private:
  // Time of the fewest samples at x: as long as those before took, or in proportion to x.
  Nanos expected(std::int64_t x) const {
    return Nanos{
        static_cast<std::int64_t>(static_cast<double>(least_time_.value) *
                                  std::max(1.0, static_cast<double>(x) / static_cast<double>(least_x_)))};
  }

  // As many samples as are of use until `share`, the fewest that say something until `deadline`.
  MeasuredSeries sample(const ProbePoint& point, Nanos begin, Nanos share, Nanos deadline) {
    MeasuredSeries one{point.quantity, point.x, point.unit, {}};
    const std::size_t most = options_.full ? kMostSamplesFull : kMostSamples;
    device_.sample();  // the first touches what later ones find warm
    while (one.samples.size() < most) {
      const Nanos now = clock_();
      if (one.samples.size() == kLeastSamples) least_time_ = now - begin, least_x_ = point.x;
      if (one.samples.size() >= kFewestSamples && now >= share) break;
      if (one.samples.size() >= kLeastSamples && now >= deadline) break;
      one.samples.push_back(device_.sample());
    }
    return one;
  }

  ProbeDevice& device_;
  const ProbeOptions& options_;
  const std::function<Nanos()>& clock_;
  bool supported_ = false;
  std::size_t left_out_ = 0;
  Nanos least_time_{0};  // of the fewest samples of the latest point
  std::int64_t least_x_ = 1;
};

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
  const std::function<Nanos()> clock = options.clock ? options.clock : steady_now;
  const Nanos limit = options.limit > Nanos{0} ? options.limit
                      : options.full           ? Nanos{600'000'000'000}
                                               : Nanos{90'000'000'000};
  const Nanos end = clock() + limit;
  const std::unique_ptr<ProbeDevice> device = hardware.open_probe();
  const AcceleratorInfo& info = hardware.info();
  ProbeResult result;
  result.measurements.device = {info.name, info.driver, info.runtime, options.date, info.kind};
  const std::vector<ProbePoint> points = probe_points(options, *device);
  if (points.empty()) throw Error(ErrorKind::usage, "no quantity has '" + options.only + "' in its name");
  std::vector<std::span<const ProbePoint>> quantities;
  for (std::size_t from = 0, to = 0; from < points.size(); from = to) {
    while (to < points.size() && points[to].quantity == points[from].quantity) ++to;
    quantities.push_back(std::span(points).subspan(from, to - from));
  }
  std::size_t done = 0;
  for (std::size_t q = 0; q < quantities.size(); ++q) {
    const std::string& quantity = quantities[q][0].quantity;
    if (options.progress) options.progress(done, points.size(), quantity);
    done += quantities[q].size();
    const Nanos now = clock();
    const Nanos share = std::max(Nanos{0}, (end - now) / static_cast<std::int64_t>(quantities.size() - q));
    QuantityProbe probe(*device, options, clock);
    probe.run(quantities[q], now + share, result.measurements.series);
    if (!probe.supported()) result.unsupported.push_back(quantity);
    if (probe.left_out() > 0) result.left_out.push_back({quantity, probe.left_out(), quantities[q].size()});
  }
  std::sort(result.unsupported.begin(), result.unsupported.end());
  return result;
}

}  // namespace swaplab
