// Transfer tables: every expected value is worked out by hand.
#include <doctest/doctest.h>

#include <limits>

#include "sim/machine.hpp"
#include "sim/machine_io.hpp"
#include "trace/error.hpp"

using namespace swaplab;

namespace {

std::vector<TransferPoint> points(std::initializer_list<std::pair<std::int64_t, std::int64_t>> list) {
  std::vector<TransferPoint> out;
  for (const auto& [bytes, ns] : list) out.push_back({Bytes{bytes}, Nanos{ns}});
  return out;
}

std::int64_t ns(const TransferTable& table, std::int64_t bytes) {
  return table.time(Bytes{bytes}).value;
}

}  // namespace

TEST_CASE("a link without points is bytes over rate, rounded up") {
  const TransferTable link({}, 55'000'000'000);
  CHECK(ns(link, 0) == 0);
  CHECK(ns(link, 1) == 1);   // 0.018 ns
  CHECK(ns(link, 55) == 1);  // exactly 1 ns
  CHECK(ns(link, 56) == 2);
  CHECK(ns(link, 5'500'000'000) == 100'000'000);
  CHECK(ns(link, std::int64_t{1} << 40) == 19'991'120'506);  // 1099511627776 / 55 = 19991120505.02
  CHECK(link.best_rate() == 55'000'000'000);
}

TEST_CASE("latency plus bandwidth") {
  const TransferTable link(points({{0, 2700}}), 12'400'000'000);
  CHECK(ns(link, 0) == 0);  // no copy, no latency
  CHECK(ns(link, 1) == 2701);
  CHECK(ns(link, 124) == 2710);
  CHECK(ns(link, 125) == 2711);
  CHECK(ns(link, 12'400'000'000) == 1'000'002'700);
  CHECK(link.best_rate() == 12'400'000'000);
}

TEST_CASE("interpolation between points, floor below the first, rate beyond the last") {
  const TransferTable table(points({{100, 50}, {200, 60}, {500, 60}, {1000, 110}}), 2'000'000'000);
  CHECK(ns(table, 1) == 50);
  CHECK(ns(table, 99) == 50);
  CHECK(ns(table, 100) == 50);
  CHECK(ns(table, 101) == 51);  // 50.1
  CHECK(ns(table, 110) == 51);
  CHECK(ns(table, 111) == 52);
  CHECK(ns(table, 200) == 60);
  CHECK(ns(table, 350) == 60);  // flat piece
  CHECK(ns(table, 500) == 60);
  CHECK(ns(table, 505) == 61);  // 60.5
  CHECK(ns(table, 510) == 61);
  CHECK(ns(table, 999) == 110);  // 109.9
  CHECK(ns(table, 1000) == 110);
  CHECK(ns(table, 1001) == 111);  // 110.5
  CHECK(ns(table, 1002) == 111);
  // Best: max(2e9, 100/50, 200/60, 500/60 B/ns, 1000/110) = 1000/110 B/ns = 9090909090.9, rounded up.
  CHECK(table.best_rate() == 9'090'909'091);
}

TEST_CASE("time is monotone and no copy beats the best rate") {
  for (const MachineListing& listing : list_machines()) {
    const Machine m = load_machine(listing.name);
    for (const auto* tables : {&m.pinned, &m.pageable}) {
      for (const TransferTable& table : *tables) {
        std::int64_t before = 0;
        for (std::int64_t bytes = 1; bytes < std::int64_t{1} << 36; bytes += 1 + bytes / 7) {
          const std::int64_t t = ns(table, bytes);
          REQUIRE(t >= before);
          before = t;
          REQUIRE(static_cast<long double>(bytes) * 1e9L <=
                  static_cast<long double>(t) * static_cast<long double>(table.best_rate()));
        }
      }
    }
  }
}

TEST_CASE("huge sizes saturate instead of overflowing") {
  const TransferTable slow({}, 1);
  CHECK(ns(slow, std::numeric_limits<std::int64_t>::max()) == std::numeric_limits<std::int64_t>::max() / 4);
  const TransferTable table(points({{0, 5}, {std::int64_t{1} << 61, 1'000'000'000'000'000'000}}),
                            1'000'000'000);
  CHECK(ns(table, std::int64_t{1} << 60) == 500'000'000'000'000'003);  // 5 + (10^18 - 5) / 2, rounded up
}

TEST_CASE("contradictory tables are refused") {
  CHECK_THROWS_WITH_AS(TransferTable({}, 0), "transfer table: the bandwidth must be above 0", Error);
  CHECK_THROWS_AS(TransferTable({}, -1), Error);
  CHECK_THROWS_WITH_AS(TransferTable(points({{5, 1}, {5, 2}}), 1),
                       "transfer table: sizes must increase, but 5 B in 2 ns follows 5 B in 1 ns", Error);
  CHECK_THROWS_WITH_AS(TransferTable(points({{5, 3}, {6, 2}}), 1),
                       "transfer table: a larger copy cannot be faster, but 6 B in 2 ns follows 5 B in 3 ns",
                       Error);
  CHECK_THROWS_AS(TransferTable(points({{5, 0}}), 1), Error);
  CHECK_THROWS_AS(TransferTable(points({{-5, 1}}), 1), Error);
  CHECK_THROWS_AS(TransferTable().time(Bytes{1}), Error);
}

TEST_CASE("V100: the published points are reproduced") {
  const Machine m = load_machine("v100-pcie3");
  const TransferTable& h2d = m.link(Direction::host_to_device);
  const TransferTable& d2h = m.link(Direction::device_to_host);
  // time = bytes / rate, up to the next nanosecond: 1 kB at 0.4 GB/s is 2500 ns.
  CHECK(ns(h2d, 1'000) == 2'500);
  CHECK(ns(h2d, 4'000) == 2'858);           // 1.4 GB/s: 2857.1
  CHECK(ns(h2d, 10'000) == 3'449);          // 2.9: 3448.3
  CHECK(ns(h2d, 20'000) == 4'348);          // 4.6: 4347.8
  CHECK(ns(h2d, 50'000) == 6'850);          // 7.3: 6849.3
  CHECK(ns(h2d, 100'000) == 10'870);        // 9.2: 10869.6
  CHECK(ns(h2d, 200'000) == 19'048);        // 10.5: 19047.6
  CHECK(ns(h2d, 500'000) == 43'104);        // 11.6: 43103.4
  CHECK(ns(h2d, 1'000'000) == 85'471);      // 11.7: 85470.1
  CHECK(ns(h2d, 4'000'000) == 325'204);     // 12.3: 325203.3
  CHECK(ns(h2d, 13'000'000) == 1'048'388);  // 12.4: 1048387.1
  CHECK(ns(d2h, 1'000) == 2'500);
  CHECK(ns(d2h, 10'000) == 2'703);        // 3.7: 2702.7
  CHECK(ns(d2h, 50'000) == 5'264);        // 9.5: 5263.2
  CHECK(ns(d2h, 100'000) == 9'010);       // 11.1: 9009.0
  CHECK(ns(d2h, 1'000'000) == 78'125);    // 12.8: exact
  CHECK(ns(d2h, 13'000'000) == 984'849);  // 13.2: 984848.5
  // Half-way between 10 kB and 20 kB: 3449 + 899 * 5000 / 10000 = 3898.5.
  CHECK(ns(h2d, 15'000) == 3'899);
  // 1.24 GB beyond the last point adds 100 ms.
  CHECK(ns(h2d, 13'000'000 + 1'240'000'000) == 1'048'388 + 100'000'000);
}
