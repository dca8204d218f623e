#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <iostream>

#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "gpu_validate/calibrate/robust.hpp"
#include "gpu_validate/probe.hpp"
#include "gpu_validate/program/commands.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

constexpr const char* kHelp = R"(swaplab-gpu probe: measure a device

Copies of 1 KiB to 1 GiB from and to pinned and pageable memory, alone, in both directions at once and beside
kernels; kernels beside copies; what launches, events, synchronisation, allocation, mapping and pinning cost
the host; memory and matrix rates; copies between GPUs. Every sample is kept in the measurement file, which
'swaplab calibrate' turns into a machine profile. The default set takes at most 90 s.

examples:
  swaplab-gpu probe --device cuda:0 -o measurements.json
  swaplab-gpu probe --device cuda:0 --only copy_ --set full -o links.json
  swaplab-gpu probe --device host -o host.json && swaplab calibrate host.json -o host.yaml

)";

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

std::string rate_text(const MeasuredSeries& series, Nanos median) {
  const bool moves =
      series.quantity.starts_with("copy_") || series.quantity == "stream_copy" || series.quantity == "pin";
  if (median <= Nanos{0} || !(moves || series.unit == XUnit::flop)) return "-";
  const double per_ns = static_cast<double>(series.x) / static_cast<double>(median.value);
  char text[32];
  std::snprintf(text, sizeof text, series.unit == XUnit::flop ? "%.1f GFLOP/s" : "%.2f GB/s", per_ns);
  return text;
}

void print_table(const ProbeResult& result) {
  const MeasuredDevice& device = result.measurements.device;
  std::printf("device %s (%s), driver %s, runtime %s, %s\n\n", device.name.c_str(), device.kind.c_str(),
              device.driver.c_str(), device.runtime.c_str(), device.date.c_str());
  TextTable table({"quantity", "x", "samples", "median", "MAD", "rate"}, 1);
  for (const MeasuredSeries& series : result.measurements.series) {
    const Nanos middle = median(series.samples);
    const std::string x = series.unit == XUnit::bytes ? human_bytes(Bytes{series.x})
                          : series.unit == XUnit::call
                              ? std::string("-")
                              : std::to_string(series.x) + " " + std::string(x_unit_name(series.unit));
    table.add({series.quantity, x, std::to_string(series.samples.size()), human_time(middle),
               human_time(median_absolute_deviation(series.samples)), rate_text(series, middle)});
  }
  std::fputs(table.text().c_str(), stdout);
  if (!result.unsupported.empty()) {
    std::string names;
    for (const std::string& name : result.unsupported) names += (names.empty() ? "" : ", ") + name;
    std::printf("\nnot on this device: %s\n", names.c_str());
  }
  if (!result.left_out.empty()) {
    std::string names;
    for (const LeftOut& one : result.left_out)
      names += (names.empty() ? "" : ", ") + one.quantity + " (" + std::to_string(one.points) + " of " +
               std::to_string(one.of) + " sizes)";
    std::printf("\nlargest sizes left out for lack of time (--limit-seconds): %s\n", names.c_str());
  }
}

}  // namespace

int gpu_probe_command(const Arguments& arguments, const std::atomic<bool>& interrupted) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("device", po::value<std::string>()->default_value("cuda"),
                                               "cuda, cuda:N or host")(
      "output,o", po::value<std::string>(), "measurement file to write (.json, also .gz or .zst)")(
      "set", po::value<std::string>()->default_value("default"), "default | full: more sizes and samples")(
      "only", po::value<std::string>()->default_value(""), "quantities with this in their name")(
      "limit-seconds", po::value<std::int64_t>(), "time limit (default: 90, full: 600)")(
      "json", "the measurement file on standard output instead of the table");
  const po::variables_map values = parse_options(arguments, options, "");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  ProbeOptions probe;
  const std::string set = values["set"].as<std::string>();
  if (set != "default" && set != "full")
    throw Error(ErrorKind::usage, "--set must be default or full, found '" + set + "'" +
                                      did_you_mean(set, std::vector<std::string>{"default", "full"}));
  probe.full = set == "full";
  probe.only = values["only"].as<std::string>();
  if (values.count("limit-seconds") != 0) {
    const std::int64_t seconds = values["limit-seconds"].as<std::int64_t>();
    if (seconds < 1 || seconds > 86'400)
      throw Error(ErrorKind::usage, "--limit-seconds must be 1 to 86400, found " + std::to_string(seconds));
    probe.limit = Nanos{seconds * 1'000'000'000};
  }
  probe.date = today();
  probe.interrupted = &interrupted;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  if (terminal) {
    probe.progress = [](std::size_t done, std::size_t total, const std::string& what) {
      std::fprintf(stderr, "\r%zu of %zu: %-40s", done, total, what.c_str());
    };
  }
  if (values.count("output") != 0) check_output(values["output"].as<std::string>(), {});
  const std::unique_ptr<Hardware> hardware = open_hardware(values["device"].as<std::string>());
  const ProbeResult result = probe_device(*hardware, probe);
  if (terminal) std::fprintf(stderr, "\r%60s\r", "");
  if (values.count("output") != 0)
    write_measurements(values["output"].as<std::string>(), result.measurements);
  if (values.count("json") != 0) {
    std::cout << measurements_json(result.measurements);
  } else {
    print_table(result);
    if (values.count("output") != 0)
      std::printf("\nwrote %s   next: swaplab calibrate %s -o machine.yaml\n",
                  values["output"].as<std::string>().c_str(), values["output"].as<std::string>().c_str());
  }
  return kExitOk;
}

}  // namespace swaplab
