#include <doctest/doctest.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/commands.hpp"
#include "sim/machine_io.hpp"
#include "tests/calibrate/known_device.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Folder {
  fs::path path = fs::temp_directory_path() / "swaplab-test-calibrate-command";
  Folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path / name).string(); }
};

template <class Command>
std::string output_of(Command command, const Arguments& arguments) {
  std::ostringstream out;
  std::streambuf* const before = std::cout.rdbuf(out.rdbuf());
  std::string error;
  int code = kExitOk;
  try {
    code = command(arguments);
  } catch (const Error& e) {
    error = std::string("error: ") + e.what();
  }
  std::cout.rdbuf(before);
  CHECK(code == kExitOk);
  return error.empty() ? out.str() : error;
}

TEST_CASE("calibrate writes a machine that runs can use, as YAML or JSON, and says what it did") {
  const Folder folder;
  const std::string input = folder.file("probe.json");
  write_measurements(input, test::measure({}, {}, 5));
  const std::string yaml = folder.file("node.yaml"), json = folder.file("node.json");
  const std::string text = output_of(calibrate_command, {input, "-o", yaml, "--name", "node7"});
  CHECK(text.find("wrote " + yaml + ": machine node7") != std::string::npos);
  CHECK(text.find("not measured, kept from the base") != std::string::npos);
  const std::string report = output_of(calibrate_command, {input, "-o", json, "--name", "node7", "--json"});
  const Json j = Json::parse(report);
  CHECK(j.at("schema") == "swaplab/calibration@1");
  CHECK(j.at("figures").size() >= 26);  // a link that becomes a table has no latency of its own
  CHECK(j.at("residuals").size() > 80);
  const Machine a = load_machine(yaml), b = load_machine(json);
  CHECK(machine_json(a) == machine_json(b));
  CHECK(a.name == "node7");
  CHECK(machine_json(parse_machine(j.at("machine").dump(), "report")) == machine_json(a));
  // The same figures again: nothing differs.
  CHECK(output_of(machine_diff_command, {yaml, json}).starts_with("0 differ"));
  const Json diff = Json::parse(output_of(machine_diff_command, {"h100-pcie5", yaml, "--json"}));
  bool found = false;
  for (const Json& d : diff.at("differences")) {
    if (d.at("figure") != "interference.d2h_during_h2d") continue;
    found = true;
    CHECK(d.at("a") == 834'000);
    CHECK(d.at("source_b").at("status") == "measured");
    CHECK(d.at("change").get<double>() == doctest::Approx(0.62 / 0.834 - 1).epsilon(0.02));
  }
  CHECK(found);
}

TEST_CASE("launch costs become the dispatch of operators only when asked for") {
  const Folder folder;
  const std::string input = folder.file("probe.json"), out = folder.file("node.json");
  Measurements m = test::measure({}, {}, 5);
  m.series.push_back({"host_launch", 1, XUnit::call, {Nanos{2300}}});
  write_measurements(input, m);
  output_of(calibrate_command, {input, "-o", out});
  CHECK(load_machine(out).host.op_dispatch == load_machine("h100-pcie5").host.op_dispatch);
  output_of(calibrate_command, {input, "-o", out, "--op-dispatch", "launch"});
  CHECK(load_machine(out).host.op_dispatch == Nanos{2300});
}

TEST_CASE("measurements win over published tables, which fill the gaps") {
  const Folder folder;
  const std::string input = folder.file("probe.json"), table = folder.file("nv.txt"),
                    out = folder.file("node.json");
  Measurements m = test::measure({}, {}, 5);
  std::erase_if(m.series, [](const MeasuredSeries& s) { return s.quantity.starts_with("copy_d2h_p"); });
  write_measurements(input, m);
  write_file_atomically(
      table,
      "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
      "          0\n0     26.00\n\nRunning device_to_host_memcpy_ce.\n          0\n0     25.00\n");
  output_of(calibrate_command, {input, "--published", table, "-o", out});
  const Machine made = load_machine(out);
  CHECK(static_cast<double>(made.link(Direction::host_to_device).bytes_per_second()) ==
        doctest::Approx(54.2e9).epsilon(0.01));
  CHECK(static_cast<double>(made.link(Direction::device_to_host).bytes_per_second()) ==
        doctest::Approx(25e9).epsilon(0.01));
  for (const FigureSource& s : made.sources)
    if (s.figure == "links.d2h.bandwidth") CHECK(s.status == "published");
}

TEST_CASE("wrong usage of calibrate and of machines diff") {
  const Folder folder;
  const std::string input = folder.file("probe.json");
  write_measurements(input, test::measure({}, {}, 5));
  const auto error = [](const Arguments& arguments) { return output_of(calibrate_command, arguments); };
  CHECK(error({}) == "error: swaplab calibrate needs a measurement file");
  CHECK(error({input, "-o", "node.txt"}) ==
        "error: -o node.txt: expected a name that ends in .yaml, .yml or .json");
  CHECK(error({input, "--form", "tabel"}) ==
        "error: --form: 'tabel' is none of auto, line, table (did you mean 'table'?)");
  CHECK(error({input, "--tolerance", "70%"}).starts_with("error: --tolerance: "));
  CHECK(error({input, "--bse", "v100-pcie3"}).find("did you mean '--base'") != std::string::npos);
  CHECK(output_of(machine_diff_command, {"h100-pcie5"}) ==
        "error: swaplab machines diff needs two names or files");
}

}  // namespace
}  // namespace swaplab
