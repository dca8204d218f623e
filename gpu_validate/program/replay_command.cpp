#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "gpu_validate/hardware.hpp"
#include "gpu_validate/program/commands.hpp"
#include "gpu_validate/program/replay_request.hpp"
#include "gpu_validate/program/replay_run.hpp"
#include "gpu_validate/program/replay_table.hpp"

namespace swaplab {

using Json = nlohmann::ordered_json;

int gpu_replay_command(const Arguments& arguments, const std::atomic<bool>& interrupted) {
  const std::optional<ReplayRequest> asked = read_replay_request(arguments);
  if (!asked) return kExitOk;
  const ReplayRequest& request = *asked;
  const std::unique_ptr<Hardware> hardware = open_hardware(request.device_name);
  ReplayRun run(request, *hardware, interrupted);
  const bool whole = run.run();
  if (request.json) {
    Json document;
    document["schema"] = "swaplab-gpu/replay@1";
    document["results"] = Json::array();
    for (const std::string& line : run.lines()) document["results"].push_back(Json::parse(line));
    std::cout << document.dump(1) << '\n';
  } else {
    print_replays(run, request, hardware->info());
    if (!request.output.empty())
      std::printf("\nwrote %s   next: swaplab validate --measured %s --machine %s\n", request.output.c_str(),
                  request.output.c_str(), request.machine_name.c_str());
  }
  if (!whole) {
    std::fputs("interrupted: results hold the replays that were finished\n", stderr);
    return kExitInterrupted;
  }
  for (const MeasuredCell& cell : run.cells()) {
    for (const MeasuredCell::Repeat& repeat : cell.repeats) {
      if (!repeat.integrity.ok()) return kExitInvariant;
    }
  }
  for (const MeasuredCell& cell : run.cells()) {
    if (cell.repeats[0].result.outcome == Outcome::policy_error) return kExitPolicy;
  }
  return kExitOk;
}

}  // namespace swaplab
