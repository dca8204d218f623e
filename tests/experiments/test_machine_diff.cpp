#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "experiments/machine_diff.hpp"
#include "sim/machine_figures.hpp"
#include "sim/machine_io.hpp"

namespace swaplab {
namespace {

const MachineDifference* find(const MachineDiff& diff, const std::string& figure) {
  for (const MachineDifference& d : diff.differences)
    if (d.figure == figure) return &d;
  return nullptr;
}

TEST_CASE("a machine does not differ from itself; every figure is compared") {
  const Machine m = load_machine("v100-pcie3");
  const MachineDiff diff = diff_machines(m, m);
  CHECK(diff.differences.empty());
  CHECK(diff.equal_other_source == 0);
  // Scalars, pinned rounding, two shares a class, four bandwidths, two latencies (the pinned links are
  // tables).
  CHECK(diff.equal == machine_figures().size() + 1 + 2 * kOpClassCount + 4 + 2);
}

TEST_CASE("each kind of figure that is changed is found, with its relative change") {
  const Machine a = load_machine("h100-pcie5");
  for (const MachineFigure& f : machine_figures()) {
    Machine b = a;
    f.field(b) += 1 + f.field(b) / 2;
    const std::string path = std::string(f.section) + "." + std::string(f.key);
    CAPTURE(path);
    const MachineDiff diff = diff_machines(a, b);
    REQUIRE(diff.differences.size() == 1);
    CHECK(diff.differences[0].figure == path);
    CHECK(diff.differences[0].source_a.figure == path);
    CHECK_FALSE(diff.differences[0].source_a.status.empty());
  }
  Machine b = a;
  b.efficiency[0].memory /= 2;
  b.pinned[1] = TransferTable({{Bytes{0}, Nanos{2500}}}, 25'000'000'000);
  b.host_memory.round_to_power_of_two = !a.host_memory.round_to_power_of_two;
  const MachineDiff diff = diff_machines(a, b);
  REQUIRE(find(diff, "efficiency.matmul.memory") != nullptr);
  CHECK(*find(diff, "efficiency.matmul.memory")->change == doctest::Approx(-0.5));
  REQUIRE(find(diff, "links.h2d.bandwidth") != nullptr);
  CHECK(*find(diff, "links.h2d.bandwidth")->change == doctest::Approx(-0.5));
  CHECK(find(diff, "links.h2d.latency") == nullptr);
  REQUIRE(find(diff, "links.h2d.time[1.00 MiB]") != nullptr);
  CHECK(find(diff, "links.h2d.time[1.00 MiB]")->b == 2500 + 41'944);  // ceil(2^20 / 25)
  CHECK_FALSE(find(diff, "host_memory.round_to_power_of_two")->change.has_value());
}

TEST_CASE("figures for people") {
  CHECK(human_figure(12'400'000'000, "bytes_per_s") == "12.40 GB/s");
  CHECK(human_figure(2'597, "ns") == "2.597 us");
  CHECK(human_figure(27'014, "ns") == "27.01 us");
  CHECK(human_figure(412, "ns") == "412 ns");
  CHECK(human_figure(870'000, "ppm") == "87.0 %");
  CHECK(human_figure(0, "kernels") == "unlimited");
}

}  // namespace
}  // namespace swaplab
