// Machine files: what is accepted, what is refused and with which one-line message.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "sim/machine_io.hpp"
#include "sim/quantity_text.hpp"
#include "tests/support/shared.hpp"
#include "trace/error.hpp"

using namespace swaplab;

namespace {

std::string message_of(const std::string& text) {
  try {
    parse_machine(text, "m.yaml");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "(accepted)";
}

std::string problem(std::string_view text, Dimension dimension) {
  return parse_quantity(text, dimension).problem;
}

std::string ideal_text() {
  return test::read_file(test::source_path("configs/machines/ideal-55gbps.yaml"));
}

// One edit of the ideal machine: `from` (its first occurrence after `section`) becomes `to`. The
// error must name the line of `line_of` (the edited place by default) and say exactly `message`.
struct Malformed {
  std::string section, from, to, message, line_of;
};

std::size_t line_at(const std::string& text, std::size_t position) {
  return 1 + static_cast<std::size_t>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
}

}  // namespace

TEST_CASE("quantities are exact") {
  CHECK(parse_quantity("12.4 GB/s", Dimension::bandwidth).value == 12'400'000'000);
  CHECK(parse_quantity("12.4GB/s", Dimension::bandwidth).value == 12'400'000'000);
  CHECK(parse_quantity("93.0 GiB/s", Dimension::bandwidth).value == 99'857'989'632);
  CHECK(parse_quantity("3.9 TB/s", Dimension::bandwidth).value == 3'900'000'000'000);
  CHECK(parse_quantity("0.1 us", Dimension::duration).value == 100);
  CHECK(parse_quantity("9007199254740993 B", Dimension::size).value == 9'007'199'254'740'993);  // 2^53 + 1
  CHECK(parse_quantity("1.5 KiB", Dimension::size).value == 1536);
  CHECK(parse_quantity("989.5 TFLOP/s", Dimension::flop_rate).value == 989'500'000'000'000);
  CHECK(parse_quantity("71.54 %", Dimension::share).value == 715'400);
  CHECK(parse_quantity("0.95x", Dimension::share).value == 950'000);
}

TEST_CASE("quantities that are refused") {
  CHECK(problem("12.4", Dimension::bandwidth).find("has no unit; expected one of B/s") != std::string::npos);
  CHECK(problem("12.4 Gb/s", Dimension::bandwidth).find("did you mean 'GB/s'?") != std::string::npos);
  CHECK(problem("4 GB", Dimension::duration).find("unknown unit") != std::string::npos);
  CHECK(problem("0.5 B", Dimension::size) == "'0.5 B' is not a whole number of base units (bytes)");
  CHECK(problem("-1 us", Dimension::duration) == "'-1 us' is negative");
  CHECK(problem("nan", Dimension::duration).find("is not a number") != std::string::npos);
  CHECK(problem("inf s", Dimension::duration).find("is not a number") != std::string::npos);
  CHECK(problem("1e3 us", Dimension::duration).find("unknown unit") != std::string::npos);
  CHECK(problem("1.2.3 us", Dimension::duration).find("unknown unit") != std::string::npos);
  CHECK(problem("1. us", Dimension::duration).find("is not a number") != std::string::npos);
  CHECK(problem(".5 us", Dimension::duration).find("is not a number") != std::string::npos);
  CHECK(problem("", Dimension::duration).find("is not a number") != std::string::npos);
  CHECK(problem("99999999999 TB", Dimension::size).find("too large") != std::string::npos);
  CHECK(problem("99999999999999999999999999999999999999999 B", Dimension::size).find("too many digits") !=
        std::string::npos);
}

TEST_CASE("every shipped machine loads, names itself and has a source for every figure") {
  const std::vector<std::string> expected = {"a100-40g-pcie4", "a100-80g-pcie4", "ascend-910b",
                                             "gh200-c2c",      "h100-pcie5",     "h200-pcie5",
                                             "ideal-55gbps",   "v100-pcie3"};
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_path("configs/machines")))
    if (entry.path().extension() == ".yaml") found.push_back(entry.path().stem().string());
  std::sort(found.begin(), found.end());
  CHECK(found == expected);
  for (const std::string& name : expected) {
    CAPTURE(name);
    const Machine m = load_machine(name);
    CHECK(m.name == name);
    CHECK_FALSE(m.summary.empty());
    std::set<std::string> figures;
    for (const FigureSource& s : m.sources) {
      CHECK(figures.insert(s.figure).second);
      CHECK((s.status == "published" || s.status == "assumed"));  // nothing is measured here yet
      CHECK(s.source.size() > 5);
    }
    // 31 scalar figures, one flag, nine efficiency rows, four links of two figures.
    CHECK(figures.size() == 31 + 1 + 9 + 8);
    for (const char* figure : {"links.h2d.bandwidth", "pageable_links.d2h.latency", "efficiency.matmul",
                               "host.copy_submit", "host_memory.round_to_power_of_two", "hbm.capacity"})
      CHECK(figures.count(figure) == 1);
  }
}

TEST_CASE("the ideal machine is the idealised study's") {
  const Machine m = load_machine("ideal-55gbps");
  for (const std::int64_t rate :
       {m.flop_rates.fp32, m.flop_rates.tf32, m.flop_rates.fp16, m.flop_rates.bf16, m.flop_rates.fp64})
    CHECK(rate == 400'000'000'000'000);
  CHECK(m.hbm_bytes_per_second == 3'900'000'000'000);
  CHECK(m.kernel_floor == Nanos{4000});
  CHECK(m.launch_queue_depth == 0);
  CHECK(m.host.op_dispatch == Nanos{0});
  CHECK(m.host.copy_submit == Nanos{0});
  CHECK(m.host.device_malloc == Nanos{0});
  CHECK(m.host_memory.capacity == Bytes{kUnlimitedBytes});
  CHECK(m.host_memory.pin_per_gib == Nanos{0});
  CHECK_FALSE(m.host_memory.round_to_power_of_two);
  for (const Direction d : {Direction::device_to_host, Direction::host_to_device}) {
    CHECK(m.link(d).points().empty());
    CHECK(m.link(d).bytes_per_second() == 55'000'000'000);
  }
  CHECK(m.interference.d2h_during_h2d == kUnchanged);
  CHECK(m.interference.kernel_during_h2d == kUnchanged);
  for (const Efficiency& e : m.efficiency) CHECK((e.compute == kUnchanged && e.memory == kUnchanged));
}

TEST_CASE("canonical JSON reads back unchanged") {
  for (const MachineListing& listing : list_machines()) {
    CAPTURE(listing.name);
    const Machine m = load_machine(listing.path);
    CHECK(listing.summary == m.summary);
    const std::string json = machine_json(m);
    const Machine again = parse_machine(json, "canonical.json");
    CHECK(machine_json(again) == json);
    CHECK(again.sources.size() == m.sources.size());
    CHECK(again.hbm_bytes_per_second == m.hbm_bytes_per_second);
    CHECK(again.host.map_page == m.host.map_page);
    CHECK(again.launch_queue_depth == m.launch_queue_depth);
    CHECK(again.host_memory.capacity == m.host_memory.capacity);
    CHECK(again.interference.h2d_during_d2h == m.interference.h2d_during_d2h);
    for (const std::int64_t bytes : {1, 1000, 123'456, 98'765'432})
      CHECK(again.pinned[1].time(Bytes{bytes}) == m.pinned[1].time(Bytes{bytes}));
  }
}

TEST_CASE("malformed files: one line naming file, line and key") {
  const std::vector<Malformed> cases = {
      {"", "schema: swaplab/machine@1", "schema: swaplab/machine@2",
       "schema: 'swaplab/machine@2' is not supported; expected swaplab/machine@1", ""},
      {"", "\nsummary:", "\nsumary:", "sumary: unknown key (did you mean 'summary'?)", "sumary:"},
      {"", "hbm:", "hbm: 5\nhbmx:", "hbmx: unknown key (did you mean 'hbm'?)", "hbmx:"},
      {"hbm:", "3.9 TB/s", "3.9",
       "hbm.bandwidth.value: '3.9' has no unit; expected one of B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, "
       "GiB/s, "
       "TiB/s",
       ""},
      {"hbm:", "3.9 TB/s", "0 TB/s", "hbm.bandwidth.value: must be above 0", ""},
      {"hbm:", "3.9 TB/s", "-3.9 TB/s", "hbm.bandwidth.value: '-3.9 TB/s' is negative", ""},
      {"hbm:", "3.9 TB/s", ".nan",
       "hbm.bandwidth.value: '.nan' is not a number with a unit (B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, "
       "GiB/s, "
       "TiB/s)",
       ""},
      {"hbm:", "3.9 TB/s", "3.9 TiB",
       "hbm.bandwidth.value: '3.9 TiB' has an unknown unit (did you mean 'TiB/s'?); expected one of B/s, "
       "kB/s, "
       "MB/s, "
       "GB/s, TB/s, KiB/s, MiB/s, GiB/s, TiB/s",
       ""},
      {"hbm:", "{value: 3.9 TB/s", "{valeu: 3.9 TB/s",
       "hbm.bandwidth.valeu: unknown key (did you mean 'value'?)", ""},
      {"hbm:", "{value: 3.9 TB/s", "{value: 3.9 TB/s, value: 4 TB/s", "hbm.bandwidth.value: duplicate key",
       ""},
      {"hbm:", "{value: 3.9 TB/s", "{value: 3.9 TB/s, value_bytes_per_s: 4",
       "hbm.bandwidth.value_bytes_per_s: given twice, also as 'value'", ""},
      {"hbm:", "{value: 3.9 TB/s", "{value_bytes_per_s: 4.5",
       "hbm.bandwidth.value_bytes_per_s: '4.5' is not an integer from 0 to 2^61", ""},
      {"bandwidth:", "status: assumed", "status: guessed",
       "hbm.bandwidth.status: 'guessed' is none of measured, published, assumed", ""},
      {"bandwidth:", "status: assumed, ", "", "hbm.bandwidth: missing key 'status'", "bandwidth:"},
      {"bandwidth:", "source: \"conditions of the idealised lower-bound study\"", "source: \" \"",
       "hbm.bandwidth.source: is empty; every figure names its source", ""},
      {"hbm:", "  bandwidth:", "  bandwith:", "hbm.bandwith: unknown key (did you mean 'bandwidth'?)", ""},
      {"compute:", "  kernel_floor:", "  #", "compute: missing key 'kernel_floor'", "  fp32:"},
      {"compute:", "{value: unlimited", "{value: 0 kernels",
       "compute.launch_queue_depth.value: must be above 0", ""},
      {"efficiency:", "compute: 100 %", "compute: 101 %", "efficiency.matmul.compute: '101 %' is above 100 %",
       ""},
      {"efficiency:", "compute: 100 %", "compute: [100 %]",
       "efficiency.matmul.compute: expected a text or number", ""},
      {"round_to_power_of_two", "value: no", "value: maybe",
       "host_memory.round_to_power_of_two.value: 'maybe' is neither yes nor no", ""},
      {"links:", "    latency:",
       "    table: {status: assumed, source: here, points: [{size: 2 kB, time: 5 us}, "
       "{size: 3 kB, time: 4 us}]} #",
       "links.d2h.table.points[1]: takes 4000 ns, less than the smaller copy before it (5000 ns)", ""},
      {"links:", "    latency:",
       "    table: {status: assumed, source: here, points: [{size: 2 kB, time: 5 us}, "
       "{size: 2 kB, time: 6 us}]} #",
       "links.d2h.table.points[1]: sizes must increase from point to point", ""},
      {"links:", "    latency:",
       "    table: {status: assumed, source: here, points: [{size: 2 kB, bandwidth: 0 B/s}]} #",
       "links.d2h.table.points[0].bandwidth: must be above 0", ""},
      {"links:", "    latency:", "    table: {status: assumed, source: here, points: [{size: 2 kB}]} #",
       "links.d2h.table.points[0]: needs either 'bandwidth' or 'time'", ""},
      {"links:", "    latency:", "    table: {status: assumed, source: here, points: []} #",
       "links.d2h.table.points: expected a list of {size, bandwidth or time}", ""},
      {"links:", "    latency:", "    #", "links.d2h: needs either 'latency' or 'table'", "    bandwidth:"},
      {"links:", "  d2h:", "  d2d:", "links.d2d: unknown key (did you mean 'd2h'?)", ""},
      {"\ninterference:", "value: 100 %", "value: 0 %", "interference.d2h_during_h2d.value: must be above 0",
       ""},
  };
  const std::string ideal = ideal_text();
  for (const Malformed& c : cases) {
    CAPTURE(c.message);
    const std::size_t section = c.section.empty() ? 0 : ideal.find(c.section);
    REQUIRE(section != std::string::npos);
    const std::size_t at = ideal.find(c.from, section);
    REQUIRE(at != std::string::npos);
    std::string text = ideal;
    text.replace(at, c.from.size(), c.to);
    const std::size_t place = c.line_of.empty() ? at : text.find(c.line_of, section);
    REQUIRE(place != std::string::npos);
    CHECK(message_of(text) == "m.yaml:" + std::to_string(line_at(text, place)) + ": " + c.message);
  }
}

TEST_CASE("texts that are no machine description") {
  CHECK(message_of("") == "m.yaml: expected one machine description, found none");
  CHECK(message_of("a: 1\n---\nb: 2\n") == "m.yaml: expected one machine description, found several");
  CHECK(message_of(",") ==
        "m.yaml: expected one machine description, found several");  // once took all memory
  CHECK(message_of(ideal_text() + "\n,").starts_with("m.yaml:"));
  CHECK(message_of("just words") == "m.yaml:1: expected a mapping (key: value)");
  CHECK(message_of("[1, 2]") == "m.yaml:1: expected a mapping (key: value)");
  CHECK(message_of("{}") == "m.yaml:1: missing key 'schema'");
  CHECK(message_of("a: [1").starts_with("m.yaml:1: not readable as YAML"));
  CHECK(message_of(std::string(100'000, '[')).starts_with("m.yaml:1: not readable as YAML"));
  CHECK(message_of("? [1]\n: 2\n") == "m.yaml:1: expected a plain word as key");
}

TEST_CASE("machines are found by name, file and $SWAPLAB_MACHINES") {
  CHECK_THROWS_WITH(
      load_machine("v100-pcie4"),
      "unknown machine 'v100-pcie4' (did you mean 'v100-pcie3'?); expected a file or one of: "
      "a100-40g-pcie4, a100-80g-pcie4, ascend-910b, gh200-c2c, h100-pcie5, h200-pcie5, ideal-55gbps, "
      "v100-pcie3");
  CHECK_THROWS_WITH(load_machine("nowhere/x.yaml"), "nowhere/x.yaml: cannot be read");
  CHECK_THROWS_AS(load_machine(test::source_path("configs/machines")), Error);

  const auto folder =
      std::filesystem::temp_directory_path() / ("swaplab-test-machines-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::string text = ideal_text();
  text.replace(text.find("3.9 TB/s"), 8, "3.8 TB/s");
  std::ofstream(folder / "ideal-55gbps.yaml") << text;
  setenv("SWAPLAB_MACHINES", folder.c_str(), 1);
  CHECK(load_machine("ideal-55gbps").hbm_bytes_per_second == 3'800'000'000'000);  // hides the shipped one
  CHECK(list_machines().size() == 8);
  unsetenv("SWAPLAB_MACHINES");
  CHECK(load_machine("ideal-55gbps").hbm_bytes_per_second == 3'900'000'000'000);
  std::filesystem::remove_all(folder);
}
