#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "gpu_validate/calibrate/measurements.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr const char* kDevice =
    R"("device":{"name":"Test GPU","driver":"580.1","runtime":"CUDA 13.0","date":"2026-11-30","kind":"cuda"})";

std::string file_with(const std::string& series, const std::string& device = kDevice) {
  return R"({"format":"swaplab-measurements","version":1,)" + device + R"(,"series":[)" + series + "]}";
}

std::string error_of(const std::string& text) {
  try {
    parse_measurements(text, "m.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "read without an error";
}

TEST_CASE("a measurement file is read whole, sorted by request and written back alike") {
  const Measurements m = parse_measurements(
      file_with(R"({"quantity":"copy_h2d_pinned","x":4096,"x_unit":"bytes","samples_ns":[3000,3100]},
                   {"quantity":"copy_h2d_pinned","x":1024,"x_unit":"bytes","samples_ns":[2700]},
                   {"quantity":"copy_p2p_0_12","x":1024,"x_unit":"bytes","samples_ns":[1]},
                   {"quantity":"host_malloc","x":1,"x_unit":"call","samples_ns":[0,9007199254740993]})"),
      "m.json");
  CHECK(m.device.name == "Test GPU");
  CHECK(m.device.date == "2026-11-30");
  REQUIRE(m.series.size() == 4);
  const auto copies = m.of("copy_h2d_pinned");
  REQUIRE(copies.size() == 2);
  CHECK(copies[0]->x == 1024);
  CHECK(copies[1]->samples == std::vector<Nanos>{Nanos{3000}, Nanos{3100}});
  CHECK(m.series[3].samples[1] == Nanos{9007199254740993});  // beyond 2^53: never through a double
  const Measurements again = parse_measurements(measurements_json(m), "m.json");
  CHECK(measurements_json(again) == measurements_json(m));
  CHECK(again.series[3].samples == m.series[3].samples);
}

TEST_CASE("what a measurement file does wrong is said with its place") {
  const std::string good = R"({"quantity":"pin","x":4096,"x_unit":"bytes","samples_ns":[3000]})";
  CHECK(error_of(file_with(good)) == "read without an error");
  CHECK(error_of(file_with(R"({"quantity":"copy_h2d_pined","x":1,"x_unit":"bytes","samples_ns":[3]})")) ==
        "m.json:1: /series/0/quantity: no quantity is called 'copy_h2d_pined' (did you mean "
        "'copy_h2d_pinned'?)");
  CHECK(error_of(file_with(R"({"quantity":"pin","x":1,"x_unit":"flop","samples_ns":[3]})")) ==
        R"(m.json:1: /series/0/x_unit: "flop" is not a unit of pin; expected "bytes")");
  CHECK(error_of(file_with(good + "," + good)) == "m.json:1: /series/1: pin at x = 4096 was given before");
  CHECK(error_of(file_with(R"({"quantity":"pin","x":4096,"x_unit":"bytes","samples_ns":[3,-1]})")) ==
        "m.json:1: /series/0/samples_ns/1: expected an integer from 0 to 2^61, found -1");
  CHECK(error_of(file_with(R"({"quantity":"pin","x":4096,"x_unit":"bytes","samples_ns":[2.5]})")) ==
        "m.json:1: /series/0/samples_ns/0: expected an integer from 0 to 2^61, found 2.5");
  CHECK(error_of(file_with(R"({"quantity":"pin","x":4096,"x_unit":"bytes","samples_ns":[]})")) ==
        "m.json:1: /series/0/samples_ns: expected a list of at least one time, found []");
  CHECK(error_of(file_with(R"({"quantity":"pin","x":0,"x_unit":"bytes","samples_ns":[1]})")) ==
        "m.json:1: /series/0/x: expected an integer from 1 to 2^61, found 0");
  CHECK(error_of(file_with(R"({"quantity":"host_launch","x":7,"x_unit":"call","samples_ns":[1]})")) ==
        R"(m.json:1: /series/0/x: expected 1, since x_unit is "call")");
  CHECK(error_of(file_with(R"({"quantity":"pin","x":1,"x_unit":"bytes","sample_ns":[1]})")) ==
        "m.json:1: /series/0/sample_ns: unknown key (did you mean 'samples_ns'?)");
  CHECK(error_of(file_with(R"({"quantity":"pin","x":1,"x":2,"x_unit":"bytes","samples_ns":[1]})")) ==
        "m.json: the key \"x\" is given twice");
  CHECK(error_of(file_with(
            good, R"("device":{"name":"a","driver":"b","runtime":"c","date":"30.11.2026","kind":"cuda"})")) ==
        "m.json: /device/date: expected YYYY-MM-DD");
  CHECK(
      error_of(file_with(good, R"("device":{"name":"a","driver":"b","runtime":"c","date":"2026-01-01"})")) ==
      "m.json: /device: missing key \"kind\"");
  CHECK(error_of("[1, 2") == "m.json:1: byte 6: expected JSON of a swaplab-measurements file, found the end");
  CHECK(error_of(
            file_with(good + ",\n" + R"({"quantity":"pin","x":1,"x_unit":"bytes","samples_ns":[1,NaN]})")) ==
        "m.json:2: byte 281: expected JSON of a swaplab-measurements file, found 'NaN'");
  CHECK(error_of(
            file_with(good + ",\n" + R"({"quantity":"pin","x":1,"x_unit":"bytes","samples_ns":[1,null]})")) ==
        "m.json:2: /series/1/samples_ns/1: expected an integer from 0 to 2^61, found null");
  CHECK(error_of("[]") == "m.json: /: expected an object");
  CHECK(error_of(R"({"format":"x","version":1,"device":{},"series":[]})") ==
        "m.json: /format: expected \"swaplab-measurements\"");
}

TEST_CASE("numbered quantities take any small numbers and nothing else") {
  CHECK(find_quantity("copy_p2p_0_1"));
  CHECK(find_quantity("allreduce_2")->name == "allreduce_N");
  for (const char* wrong : {"copy_p2p_0", "copy_p2p_0_1_2", "copy_p2p_a_b", "copy_p2p_I_J", "allreduce_N",
                            "allreduce_", "copy_p2p_00000_1", "copy_p2p"}) {
    CAPTURE(wrong);
    CHECK_FALSE(find_quantity(wrong).has_value());
  }
}

TEST_CASE("files are written whole, compressed by name, and bad ones not at all") {
  const auto folder = std::filesystem::temp_directory_path() / "swaplab-test-measurements";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "m.json.gz").string();
  Measurements m = parse_measurements(
      file_with(R"({"quantity":"pin","x":4096,"x_unit":"bytes","samples_ns":[3000]})"), "m.json");
  write_measurements(path, m);
  CHECK(measurements_json(read_measurements(path)) == measurements_json(m));
  m.series[0].samples.clear();
  const std::string bad = (folder / "bad.json").string();
  CHECK_THROWS_AS(write_measurements(bad, m), Error);
  CHECK_FALSE(std::filesystem::exists(bad));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace swaplab
