#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "gpu_validate/calibrate/calibrate.hpp"
#include "sim/machine_io.hpp"
#include "tests/calibrate/known_device.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using test::KnownDevice;
using test::measure;
using test::NoiseModel;

// The truth of every figure that the known device determines, in the base unit of the figure.
std::map<std::string, double> truth(const KnownDevice& d, const Machine& base) {
  const auto mean_factor = [](double a, double b) { return 1e6 * 2 / (1 / a + 1 / b); };
  return {
      {"links.h2d.latency", d.h2d_latency},
      {"links.h2d.bandwidth", d.h2d_rate * 1e9},
      {"links.d2h.latency", d.d2h_latency},
      {"links.d2h.bandwidth", d.d2h_rate * 1e9},
      {"pageable_links.h2d.latency", d.pageable_latency},
      {"pageable_links.h2d.bandwidth", d.h2d_pageable_rate * 1e9},
      {"pageable_links.d2h.latency", d.pageable_latency},
      {"pageable_links.d2h.bandwidth", d.d2h_pageable_rate * 1e9},
      {"interference.h2d_during_d2h", d.h2d_duplex * 1e6},
      {"interference.d2h_during_h2d", d.d2h_duplex * 1e6},
      {"interference.kernel_during_h2d", mean_factor(d.compute_beside, d.memory_beside_h2d)},
      {"interference.kernel_during_d2h", mean_factor(d.compute_beside, d.memory_beside_d2h)},
      {"host.launch_latency", d.launch_latency},
      {"host.copy_submit", d.copy_submit},
      {"host.event_record", d.event_record},
      {"host.event_wait", d.event_wait},
      {"host.event_query", d.event_query},
      {"host.sync_resume", d.synchronize},
      {"compute.kernel_floor", d.kernel_empty},
      {"host.device_malloc", d.malloc_fixed},
      {"host.device_malloc_per_gib", d.malloc_per_gib},
      {"host.device_free", d.device_free},
      {"host.map_page", d.map_page},
      {"host.unmap_page", d.unmap_page},
      {"host.reserve_range", d.reserve},
      {"host_memory.pin_per_gib", d.pin_per_gib},
      {"efficiency.matmul.compute", 1e6 * d.bf16_rate * 1e9 / static_cast<double>(base.flop_rates.bf16)},
      {"efficiency.copy.memory", 1e6 * d.stream_rate * 1e9 / static_cast<double>(base.hbm_bytes_per_second)},
  };
}

const FittedFigure* figure_of(const Calibration& c, const std::string& path) {
  for (const FittedFigure& f : c.figures)
    if (f.path == path) return &f;
  return nullptr;
}

TEST_CASE("known parameters are recovered within their intervals, without bias, under heavy-tailed noise") {
  const Machine base = load_machine("h100-pcie5");
  const KnownDevice device;
  const auto expected = truth(device, base);
  struct Tally {
    int inside = 0;
    double bias = 0, width = 0;
  };
  std::map<std::string, Tally> tallies;
  constexpr int kSeeds = 200;
  CalibrationOptions options;
  options.resamples = 300;
  options.curves.form = CurveForm::line;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const Calibration c =
        calibrate({measure(device, NoiseModel{}, static_cast<std::uint64_t>(seed))}, base, options);
    REQUIRE(c.figures.size() == expected.size());
    for (const FittedFigure& f : c.figures) {
      const auto known = expected.find(f.path);
      REQUIRE_MESSAGE(known != expected.end(), f.path);
      Tally& t = tallies[f.path];
      // Figures are whole numbers of their unit.
      t.inside += static_cast<double>(f.low) <= std::ceil(known->second) &&
                          std::floor(known->second) <= static_cast<double>(f.high)
                      ? 1
                      : 0;
      t.bias += (static_cast<double>(f.value) - known->second) / kSeeds;
      t.width += static_cast<double>(f.high - f.low) / 2 / kSeeds;
    }
  }
  REQUIRE(tallies.size() == expected.size());
  int inside = 0, least = kSeeds;
  double worst_bias = 0;
  for (const auto& tally : tallies) {
    const std::string& path = tally.first;
    const Tally& t = tally.second;
    CAPTURE(path);
    CAPTURE(t.inside);
    CAPTURE(t.bias);
    CAPTURE(t.width);
    // 200 draws at 95 %: 190 expected, deviation 3.1; 176 is four and a half of them below.
    CHECK(t.inside >= 176);
    CHECK(std::fabs(t.bias) < 0.15 * t.width);
    CHECK(t.width < 0.05 * expected.at(path));  // an interval that says something
    inside += t.inside;
    least = std::min(least, t.inside);
    worst_bias = std::max(worst_bias, std::fabs(t.bias) / t.width);
  }
  MESSAGE("95 % intervals hold the truth in ", inside, " of ", kSeeds * static_cast<int>(tallies.size()),
          " cases (least for one figure: ", least, " of 200); largest bias over half width ", worst_bias);
  CHECK(inside < kSeeds * static_cast<int>(tallies.size()));  // they are not simply wide
}

TEST_CASE("without noise every figure is exact") {
  const Machine base = load_machine("h100-pcie5");
  const KnownDevice device;
  const Calibration c = calibrate({measure(device, NoiseModel{3, 0, 0}, 1)}, base, {});
  for (const auto& figure : truth(device, base)) {
    const std::string& path = figure.first;
    CAPTURE(path);
    const FittedFigure* f = figure_of(c, path);
    REQUIRE(f != nullptr);
    CHECK(static_cast<double>(f->value) == doctest::Approx(figure.second).epsilon(2e-4));
  }
  CHECK(c.machine.link(Direction::host_to_device).time(Bytes{1 << 20}) == Nanos{2600 + 19347});
  for (const Residual& r : c.residuals) {
    CAPTURE(r.quantity);
    // One factor stands for both kernel classes; overheads of a kernel are not part of a rate.
    if (!r.quantity.starts_with("kernel_") && r.quantity != "gemm_bf16" && r.quantity != "stream_copy")
      CHECK(std::fabs(r.error()) < 2e-3);
  }
}

TEST_CASE("the result names date, device and driver, reads back alike, and lists what it kept") {
  const Machine base = load_machine("h100-pcie5");
  Measurements m = measure({}, NoiseModel{}, 7);
  std::erase_if(m.series, [](const MeasuredSeries& s) {
    return s.quantity == "pin" || s.quantity.starts_with("copy_d2h_pageable");
  });
  m.series.push_back({"host_malloc_async", 1, XUnit::call, {Nanos{900}}});
  const Calibration c = calibrate({m}, base, {});
  const auto source = [&](const std::string& path) {
    for (const FigureSource& s : c.machine.sources)
      if (s.figure == path) return s;
    return FigureSource{};
  };
  CHECK(source("links.h2d.bandwidth").status == "measured");
  CHECK(source("links.h2d.bandwidth")
            .source.starts_with("measured 2026-11-30 on Known GPU, driver 580.1, CUDA 13.0 (known.json): "));
  CHECK(source("host_memory.pin_per_gib").status == "published");
  std::set<std::string> kept;
  for (const FigureSource& s : c.kept) kept.insert(s.figure);
  CHECK(kept.contains("host_memory.pin_per_gib"));
  CHECK(kept.contains("pageable_links.d2h.bandwidth"));
  CHECK(kept.contains("hbm.capacity"));
  CHECK_FALSE(kept.contains("links.h2d.bandwidth"));
  CHECK(c.machine.host_memory.pin_per_gib == base.host_memory.pin_per_gib);
  REQUIRE(c.unused.size() == 1);
  CHECK(c.unused[0].quantity == "host_malloc_async");
  const std::string yaml = machine_yaml(c.machine, "made by a test");
  CHECK(yaml.starts_with("# made by a test\n"));
  CHECK(machine_json(parse_machine(yaml, "m.yaml")) == machine_json(c.machine));
  CHECK(machine_json(parse_machine(machine_json(c.machine), "m.json")) == machine_json(c.machine));
  const Calibration again = calibrate({m}, base, {});
  CHECK(machine_json(again.machine) == machine_json(c.machine));
}

TEST_CASE("a link that is no line becomes a short table, close to the truth between the sizes, too") {
  // Start-up, a plateau where chunking begins, then the full rate.
  const TransferTable known({{Bytes{1024}, Nanos{2500}},
                             {Bytes{65'536}, Nanos{9'000}},
                             {Bytes{262'144}, Nanos{11'000}},
                             {Bytes{std::int64_t{1} << 30}, Nanos{45'000'000}}},
                            24'000'000'000);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    test::Noise noise(seed);
    Measurements m = measure({}, NoiseModel{}, seed);
    std::erase_if(m.series, [](const MeasuredSeries& s) { return s.quantity == "copy_h2d_pinned"; });
    for (std::int64_t x = 1024; x <= std::int64_t{1} << 30; x *= 2)
      m.series.push_back({"copy_h2d_pinned", x, XUnit::bytes,
                          noise.samples(static_cast<double>(known.time(Bytes{x}).value), 20, 10'000, 20)});
    const Calibration c = calibrate({m}, load_machine("h100-pcie5"), {});
    const TransferTable& fitted = c.machine.link(Direction::host_to_device);
    CHECK(fitted.points().size() >= 4);
    CHECK(fitted.points().size() <= 9);
    for (std::int64_t x = 1024; x <= std::int64_t{1} << 30; x += x / 3) {
      const auto t = static_cast<double>(known.time(Bytes{x}).value);
      CAPTURE(x);
      CHECK(std::fabs(static_cast<double>(fitted.time(Bytes{x}).value) / t - 1) < 0.03);
    }
    CHECK(static_cast<double>(fitted.bytes_per_second()) == doctest::Approx(23.9e9).epsilon(0.03));
  }
}

TEST_CASE("degenerate measurements: one size, times that fall, factors above one, rates above the peak") {
  const Machine base = load_machine("h100-pcie5");
  const auto with = [&](std::vector<MeasuredSeries> series) {
    Measurements m;
    m.file = "few.json";
    m.device = {"Few", "1", "2", "2026-11-30", "host"};
    m.series = std::move(series);
    return calibrate({m}, base, {});
  };
  const std::int64_t big = 1 << 28;
  const Calibration one = with({{"copy_h2d_pinned", big, XUnit::bytes, {Nanos{10'000'000}}}});
  CHECK(one.machine.link(Direction::host_to_device).time(Bytes{big}).value ==
        doctest::Approx(1e7).epsilon(1e-6));
  CHECK(one.machine.link(Direction::host_to_device).points().front().time == Nanos{2500});  // the base's
  CHECK(one.kept.size() + one.figures.size() == base.sources.size());

  const Calibration falling = with({{"copy_h2d_pinned", 1000, XUnit::bytes, {Nanos{5000}}},
                                    {"copy_h2d_pinned", 2000, XUnit::bytes, {Nanos{3000}}},
                                    {"copy_h2d_pinned", 4000, XUnit::bytes, {Nanos{9000}}}});
  const TransferTable& table = falling.machine.link(Direction::host_to_device);
  CHECK(table.time(Bytes{1000}) <= table.time(Bytes{2000}));

  const Calibration fast = with({{"copy_h2d_pinned", big, XUnit::bytes, {Nanos{10'000'000}}},
                                 {"copy_h2d_duplex", big, XUnit::bytes, {Nanos{9'900'000}}},
                                 {"gemm_bf16", 2'000'000'000'000, XUnit::flop, {Nanos{1'000'000}}}});
  CHECK(fast.machine.interference.h2d_during_d2h == kUnchanged);
  CHECK(fast.machine.flop_rates.bf16 == 2'000'000'000'000'000);
  CHECK(fast.machine.efficiency[0].compute == kUnchanged);
  CHECK(fast.notes.size() == 2);

  CHECK_THROWS_AS(with({}), Error);
}

TEST_CASE("samples that cannot be are excluded, counted and placed; a series of them is not used") {
  const Machine base = load_machine("h100-pcie5");
  constexpr std::int64_t kOneGiB = std::int64_t{1} << 30;
  Measurements m = measure({}, NoiseModel{}, 7);
  const Calibration clean = calibrate({m}, base, {});
  CHECK(clean.excluded.empty());
  for (MeasuredSeries& one : m.series) {
    one.line = 40;
    if (one.quantity == "copy_h2d_pinned" && one.x == kOneGiB) {
      one.samples.push_back(Nanos{0});
      one.samples.push_back(Nanos{107'374});  // a nanosecond less than 10 TB/s
      one.samples.push_back(Nanos{107'375});  // allowed, though wild
    }
    if (one.quantity == "launch_latency") one.samples.assign(20, Nanos{0});
    if (one.quantity == "host_synchronize") one.samples[3] = Nanos{3'600'000'000'001};
    if (one.quantity == "gemm_bf16") one.samples.assign(5, Nanos{1});
  }
  const Calibration c = calibrate({m}, base, {});
  std::vector<std::string> lines;
  for (const ExcludedSamples& e : c.excluded) {
    if (e.quantity != "gemm_bf16") lines.push_back(e.text());
  }
  CHECK(lines ==
        std::vector<std::string>{
            "known.json:40: copy_h2d_pinned at 1073741824 bytes: 2 of 23 samples excluded: expected at "
            "least 107375 ns (10000 GB/s), found 0 ns",
            "known.json:40: launch_latency: 20 of 20 samples impossible, the series is excluded: "
            "expected at least 1 ns, found 0 ns",
            "known.json:40: host_synchronize: 1 of 20 samples excluded: expected at most an hour, found "
            "3600000000001 ns"});
  CHECK(figure_of(c, "host.launch_latency") == nullptr);
  CHECK(c.machine.host.launch_latency == base.host.launch_latency);
  CHECK(c.machine.efficiency[0].compute == base.efficiency[0].compute);
  CHECK(c.machine.flop_rates.bf16 == base.flop_rates.bf16);
  // A few impossible samples change nothing beside the others.
  const auto before = static_cast<double>(clean.machine.link(Direction::host_to_device).bytes_per_second());
  CHECK(static_cast<double>(c.machine.link(Direction::host_to_device).bytes_per_second()) ==
        doctest::Approx(before).epsilon(0.002));
  Measurements bad;
  bad.file = "zero.json";
  bad.device = m.device;
  bad.series = {{"copy_h2d_pinned", kOneGiB, XUnit::bytes, {Nanos{0}, Nanos{0}}, 4}};
  std::string error;
  try {
    calibrate({bad}, base, {});
  } catch (const Error& e) {
    error = e.what();
  }
  CHECK(error ==
        "no plausible time was measured: zero.json:4: copy_h2d_pinned at 1073741824 bytes: 2 of 2 samples "
        "impossible, the series is excluded: expected at least 107375 ns (10000 GB/s), found 0 ns");
}

}  // namespace
}  // namespace swaplab
