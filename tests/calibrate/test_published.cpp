#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>

#include "gpu_validate/calibrate/calibrate.hpp"
#include "gpu_validate/calibrate/published_tables.hpp"
#include "sim/machine_io.hpp"
#include "tests/support/shared.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

// Largest relative deviation of a fitted curve from the published times.
double worst(const CurveFit& fit) {
  return fit.largest_error();
}

const FittedCurve& curve_of(const Calibration& c, const std::string& quantity) {
  for (const FittedCurve& curve : c.curves)
    if (curve.quantity == quantity) return curve;
  throw Error(ErrorKind::invariant, "no curve " + quantity);
}

TEST_CASE("V100 curves as published are reproduced within 3 %") {
  const auto path = test::shared_path("docs/hardware.md");
  if (!path) return;
  const Measurements table = read_calibration_data(*path);
  CHECK(table.of("copy_h2d_pinned").size() == 11);
  CHECK(table.of("copy_d2h_pinned").size() == 6);
  CHECK(table.of("copy_d2h_pinned").back()->x == 13'000'000);
  const Calibration c = calibrate({table}, load_machine("h100-pcie5"), {});
  for (const char* quantity : {"copy_h2d_pinned", "copy_d2h_pinned"}) {
    const CurveFit& fit = curve_of(c, quantity).fit;
    MESSAGE("V100 ", std::string(quantity), ": ", fit.table.points().size(), " of ", fit.points.size(),
            " points kept, largest error ", 100 * worst(fit), " %");
    CHECK(worst(fit) < 0.03);
    CHECK(fit.table.points().size() < fit.points.size() + 1);
  }
  // The published asymptotes: 12.4 and 13.2 GB/s.
  CHECK(static_cast<double>(c.machine.link(Direction::host_to_device).bytes_per_second()) ==
        doctest::Approx(12.4e9).epsilon(0.03));
  CHECK(static_cast<double>(c.machine.link(Direction::device_to_host).bytes_per_second()) ==
        doctest::Approx(13.2e9).epsilon(0.03));
  for (const FigureSource& s : c.machine.sources)
    if (s.figure == "links.h2d.bandwidth") CHECK(s.status == "published");
}

TEST_CASE("nvbandwidth's A100 figures are reproduced within 3 %") {
  const auto path = test::shared_path("corpus/optrace/nvbandwidth_readme_output.txt");
  if (!path) return;
  const Measurements table = read_calibration_data(*path);
  const Machine base = load_machine("a100-40g-pcie4");
  const Calibration c = calibrate({table}, base, {});
  const Bytes buffer{std::int64_t{512} << 20};
  // Means over the eight GPUs of the README.
  const auto mean_rate = [&](const std::string& quantity) {
    double sum = 0;
    const auto series = table.of(quantity);
    REQUIRE(series.size() == 1);
    REQUIRE(series[0]->samples.size() == 8);
    for (const Nanos t : series[0]->samples)
      sum += static_cast<double>(buffer.value) / static_cast<double>(t.value);
    return sum / 8;
  };
  const auto alone = static_cast<double>(c.machine.link(Direction::host_to_device).time(buffer).value);
  const double rate = static_cast<double>(buffer.value) / alone;
  const double duplex = rate * static_cast<double>(c.machine.interference.h2d_during_d2h) / 1e6;
  MESSAGE("A100 H2D ", rate, " GB/s (published mean ", mean_rate("copy_h2d_pinned"), "), beside D2H ", duplex,
          " GB/s (published mean ", mean_rate("copy_h2d_duplex"), ")");
  CHECK(rate == doctest::Approx(mean_rate("copy_h2d_pinned")).epsilon(0.03));
  CHECK(duplex == doctest::Approx(mean_rate("copy_h2d_duplex")).epsilon(0.03));
  CHECK(mean_rate("copy_h2d_pinned") == doctest::Approx(26.006).epsilon(1e-3));  // by hand, from the file
  std::size_t peers = 0;
  for (const FittedCurve& curve : c.curves) {
    if (!curve.quantity.starts_with("copy_p2p_")) continue;
    ++peers;
    CHECK(worst(curve.fit) < 0.03);
    CHECK(curve.fit.bandwidth.value == doctest::Approx(276e9).epsilon(0.01));
  }
  CHECK(peers == 56);
}

TEST_CASE("vTrain's all-reduce curve is reproduced within 3 % by a short table") {
  const auto path = test::shared_path("corpus/optrace/vtrain_a100_AR_GPU2.csv");
  if (!path) return;
  const Measurements table = read_calibration_data(*path);
  CHECK(table.of("allreduce_2").size() == 1024);  // the number of GPUs follows from the bus bandwidth
  const Calibration c = calibrate({table}, load_machine("a100-40g-pcie4"), {});
  const CurveFit& fit = curve_of(c, "allreduce_2").fit;
  MESSAGE("all-reduce: ", fit.table.points().size(), " of ", fit.points.size(),
          " points kept, largest error ", 100 * worst(fit), " %");
  CHECK(worst(fit) < 0.03);
  CHECK(fit.table.points().size() < 64);
}

std::string error_of(const std::string& text) {
  try {
    parse_published_table(text, "t.txt");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "read without an error";
}

TEST_CASE("bandwidthTest's outputs are read, text and CSV") {
  const Measurements csv = parse_published_table(
      "[CUDA Bandwidth Test] - Starting...\n"
      "bandwidthTest-H2D-Pinned, Bandwidth = 0.4 GB/s, Time = 0.00000 s, Size = 1000 bytes, NumDevsUsed = 1\n"
      "bandwidthTest-D2H-Paged, Bandwidth = 6100.0 MB/s, Time = 0.1 s, Size = 1000000 bytes, NumDevsUsed = "
      "1\n",
      "t.csv");
  REQUIRE(csv.of("copy_h2d_pinned").size() == 1);
  CHECK(csv.of("copy_h2d_pinned")[0]->samples[0] == Nanos{2500});
  REQUIRE(csv.of("copy_d2h_pageable").size() == 1);
  CHECK(csv.of("copy_d2h_pageable")[0]->samples[0] == Nanos{163'934});
  const Measurements text = parse_published_table(
      " Host to Device Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n"
      "   Transfer Size (Bytes)\tBandwidth(GB/s)\n   1000\t\t\t0.4\n   2000\t\t\t0.8\n\n"
      " Device to Host Bandwidth, 1 Device(s)\n PAGEABLE Memory Transfers\n"
      "   Transfer Size (Bytes)\tBandwidth(MB/s)\n   1000000\t\t\t6100.0\n",
      "t.txt");
  CHECK(text.of("copy_h2d_pinned").size() == 2);
  CHECK(text.of("copy_d2h_pageable")[0]->samples[0] == Nanos{163'934});
}

// As nvbandwidth 0.8 prints it on two devices; the figures are made up.
constexpr const char* kNvbandwidth = R"(nvbandwidth Version: v0.8
CUDA Runtime Version: 12080
Device 0: A device (00000000:1b:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     50.00     50.20

SUM host_to_device_memcpy_ce 100.20

Running device_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0     40.00     40.20

SUM device_to_host_memcpy_ce 80.20

Running host_to_device_bidirectional_memcpy_ce.
memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)
           0         1
 0     30.06     30.06

Running device_to_host_bidirectional_memcpy_ce.
memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)
           0         1
 0     32.08     32.08

Waived:
Running device_to_device_memcpy_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    371.45
 1    371.40       N/A

Running all_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0     12.00     12.00

Running host_device_latency_sm.
memory latency SM CPU(row) <-> GPU(column) (ns)
           0         1
 0    772.58    771.19

Running device_local_copy.
memcpy local GPU(column) bandwidth (GB/s)
           0         1
 0   1393.25   1391.12
)";

// The same as nvbandwidth -j writes it.
constexpr const char* kNvbandwidthJson = R"json({
  "nvbandwidth" : {
    "CUDA Runtime Version" : 12080,
    "testcases" : [
      {"bandwidth_description" : "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
                     "bandwidth_matrix" : [[ "50.00", "50.20" ]],
                     "name" : "host_to_device_memcpy_ce",
                     "status" : "Passed"
},
      {"bandwidth_matrix" : [ [ "40.00", "40.20" ] ], "name" : "device_to_host_memcpy_ce"},
      {"bandwidth_matrix" : [ [ "30.06", "30.06" ] ], "name" : "host_to_device_bidirectional_memcpy_ce"},
      {"bandwidth_matrix" : [ [ "32.08", "32.08" ] ], "name" : "device_to_host_bidirectional_memcpy_ce"},
      {"bandwidth_matrix" : [ [ "N/A", "371.45" ], [ "371.40", "N/A" ] ], "name" : "device_to_device_memcpy_write_ce"},
      {"name" : "device_to_device_memcpy_read_ce", "status" : "Waived"},
      {"bandwidth_matrix" : [ [ "12.00", "12.00" ] ], "name" : "all_to_host_memcpy_ce"},
      {"bandwidth_matrix" : [ [ "772.58", "771.19" ] ], "name" : "host_device_latency_sm"},
      {"bandwidth_matrix" : [ [ 1393.25, 1391.12 ] ], "name" : "device_local_copy"}
    ]
}
})json";

TEST_CASE("nvbandwidth's four host matrices become both links and both interferences, from text and JSON") {
  const auto path = std::filesystem::temp_directory_path() / "swaplab-test-nvbandwidth.json";
  write_file_atomically(path.string(), kNvbandwidthJson);
  const Measurements json = read_calibration_data(path.string());
  std::filesystem::remove(path);
  const Measurements text = parse_published_table(kNvbandwidth, "nv.txt");
  REQUIRE(text.series.size() == 7);
  REQUIRE(json.series.size() == text.series.size());
  for (std::size_t i = 0; i < text.series.size(); ++i) {
    CHECK(json.series[i].quantity == text.series[i].quantity);
    CHECK(json.series[i].samples == text.series[i].samples);
  }
  CHECK(text.of("copy_p2p_1_0")[0]->samples[0] == Nanos{1'445'338});  // GPU 0 <- GPU 1, row 0
  CHECK(text.ignored == std::vector<std::string>{"all_to_host_memcpy_ce", "host_device_latency_sm"});
  CHECK(json.ignored == text.ignored);
  CHECK(text.of("copy_d2h_pinned")[0]->line == 15);
  const Calibration c = calibrate({text}, load_machine("h100-pcie5"), {});
  const Machine& m = c.machine;
  const auto rate = [&](Direction d) { return static_cast<double>(m.link(d).bytes_per_second()); };
  CHECK(rate(Direction::host_to_device) == doctest::Approx(50.1e9).epsilon(1e-3));
  CHECK(rate(Direction::device_to_host) == doctest::Approx(40.1e9).epsilon(1e-3));
  CHECK(static_cast<double>(m.interference.h2d_during_d2h) == doctest::Approx(600'000).epsilon(1e-3));
  CHECK(static_cast<double>(m.interference.d2h_during_h2d) == doctest::Approx(800'000).epsilon(1e-3));
  std::size_t unused = 0;
  for (const UnusedQuantity& u : c.unused) unused += u.quantity == "all_to_host_memcpy_ce" ? 1u : 0u;
  CHECK(unused == 1);
}

TEST_CASE("tables that are damaged or unknown are refused with their place") {
  CHECK(error_of("hello\n").starts_with("t.txt: neither a measurement file nor a published table"));
  CHECK(error_of("Running host_to_device_memcpy_ce.\n  0 1\n0 26.0\n") ==
        "t.txt:3: expected a row number and 2 bandwidths");
  CHECK(error_of("Running host_to_device_memcpy_ce.\n  0 1\n0 26.0 x\n") ==
        "t.txt:3: 'x' is not a bandwidth");
  CHECK(error_of("Running host_to_device_memcpy_ce.\n  0 1\n0 26.0 0.00\n") ==
        "t.txt:3: a bandwidth must lie above 0 and not above 10000 GB/s, found 0");
  CHECK(error_of("Running host_to_device_memcpy_ce.\n  0 1\n0 26.0 -5\n") ==
        "t.txt:3: a bandwidth must lie above 0 and not above 10000 GB/s, found -5");
  CHECK(error_of("Running host_to_device_memcpy_ce.\n  0 1\n0 26.0 10001\n") ==
        "t.txt:3: a bandwidth must lie above 0 and not above 10000 GB/s, found 10001");
  CHECK(error_of("Running host_to_device_memcpy_ce.\n  0 1\n0 26.0 nan\n") ==
        "t.txt:3: 'nan' is not a bandwidth");
  CHECK(error_of("Running host_to_device_memcpy_sm.\n  0\n0 26.0\n") ==
        "t.txt:1: this table holds no figure that can be used");
  CHECK(error_of("| Size | 1 KB | 4 QB |\n|---|---|---|\n| H2D | 0.4 | 1.4 |\n") ==
        "t.txt:1: '4 QB' has no unit that is known (B, kB, MB, GB, KiB, MiB, GiB)");
  CHECK(error_of("| Size | 1 KB | 4 KB |\n|---|---|---|\n| H2D | 0.4 |\n") ==
        "t.txt:3: has 4 cells, its head 5");
  CHECK(error_of("| Size | 1 KB | 4 KB |\n|---|---|---|\n| H2D | 0.4 | fast |\n") ==
        "t.txt:3: 'fast' is not a bandwidth above 0");
  CHECK(error_of("size(B),count,type,time(ns),busbw(GB/s)\n1048576,1,float,100,99\n") ==
        "t.txt:2: its bus bandwidth is none of an all-reduce");
}

}  // namespace
}  // namespace swaplab
