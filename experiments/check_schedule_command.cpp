#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "sim/schedule_checker.hpp"
#include "sim/schedule_io.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace po = boost::program_options;

namespace swaplab {

int check_schedule_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("json", "JSON instead of text")(
      "trace", po::value<std::string>(), "the trace, when it is not where the schedule says")(
      "file", po::value<std::string>(), "schedule file of 'swaplab run --schedule' (positional)");
  const po::variables_map values = parse_options(arguments, options, "file");
  if (values.count("help") != 0) {
    std::cout
        << "swaplab check-schedule FILE [--trace T]\n\nRe-reads a schedule and verifies order, content, "
           "occupancy, copy times and the claimed figures.\nExit code 0 when accepted, 6 when "
           "not.\n\nexample:\n"
           "  swaplab run --trace gpt.jsonl.gz --policy lru --budget 0.6x --schedule lru.jsonl.gz\n"
           "  swaplab check-schedule lru.jsonl.gz\n\n"
        << options;
    return kExitOk;
  }
  if (values.count("file") == 0)
    throw Error(ErrorKind::usage, "swaplab check-schedule needs a schedule file");
  const std::string path = values["file"].as<std::string>();
  const Schedule schedule = read_schedule(path);
  Trace trace =
      read_trace(values.count("trace") != 0 ? values["trace"].as<std::string>() : schedule.trace_path);
  if (schedule.iterations > 0) trace = extend_iterations(trace, schedule.iterations);
  const ScheduleCheck check = check_schedule(schedule, trace);
  if (values.count("json") != 0) {
    nlohmann::ordered_json j;
    j["schedule"] = path;
    j["accepted"] = check.finding_count == 0;
    j["rules_checked"] = check.rules_checked;
    j["peak_occupied_bytes"] = check.peak_occupied.value;
    j["finding_count"] = check.finding_count;
    j["findings"] = nlohmann::ordered_json::array();
    for (const CheckFinding& finding : check.findings) {
      j["findings"].push_back({{"entry", finding.entry}, {"message", finding.message}});
    }
    std::cout << j.dump(1) << '\n';
  } else {
    std::printf("%s: %s, %llu comparisons over %zu entries, peak occupied %s\n", path.c_str(),
                check.finding_count == 0 ? "accepted" : "REFUSED",
                static_cast<unsigned long long>(check.rules_checked), schedule.entries.size(),
                human_bytes(check.peak_occupied).c_str());
    for (const CheckFinding& finding : check.findings) {
      std::printf("  entry %llu: %s\n", static_cast<unsigned long long>(finding.entry),
                  finding.message.c_str());
    }
  }
  return check.finding_count == 0 ? kExitOk : kExitInvariant;
}

}  // namespace swaplab
