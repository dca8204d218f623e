#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/sweep/sweep_plan.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {

int config_command(const Arguments& given) {
  Arguments arguments = given;
  const std::string action = take_action(arguments, "config", {"schema", "check", "show", "--help"});
  po::options_description options("options");
  options.add_options()("help,h", "this text")("json", "check: one JSON document")(
      "words", po::value<std::vector<std::string>>(), "FILE and key.path=value (positional)");
  const po::variables_map values = parse_options(arguments, options, "words");
  if (action == "--help" || values.count("help") != 0) {
    std::cout << "swaplab config schema               JSON Schema of sweep files\n"
                 "swaplab config check FILE...        checks sweep files, one line each\n"
                 "swaplab config show FILE [k=v ...]  the file with every default filled in, as JSON (which "
                 "is YAML)\n"
                 "\nexample:\n  swaplab config show configs/sweeps/policy_ab.yaml parameters.budget=0.5x\n\n"
              << options;
    return kExitOk;
  }
  if (action == "schema") {
    std::cout << sweep_json_schema();
    return kExitOk;
  }
  std::vector<std::string> files, overrides;
  if (values.count("words") != 0) {
    for (const std::string& word : values["words"].as<std::vector<std::string>>())
      (word.find('=') == std::string::npos ? files : overrides).push_back(word);
  }
  if (files.empty()) throw Error(ErrorKind::usage, "swaplab config " + action + " needs a sweep file");
  if (action == "show") {
    if (files.size() != 1) throw Error(ErrorKind::usage, "swaplab config show takes one file");
    std::cout << resolved_config_json(load_sweep_config(files[0], overrides));
    return kExitOk;
  }
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  bool good = true;
  for (const std::string& file : files) {
    nlohmann::ordered_json one;
    one["file"] = file;
    try {
      const SweepPlan plan = make_plan(load_sweep_config(file, overrides), true);
      one["ok"] = true;
      one["runs"] = plan.runs.size();
      one["excluded"] = plan.excluded;
      if (values.count("json") == 0)
        std::cout << file << ": ok, " << plan.runs.size() << " runs, " << plan.excluded << " excluded\n";
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input && error.kind() != ErrorKind::usage) throw;
      good = false;
      one["ok"] = false;
      one["error"] = error.what();
      if (values.count("json") == 0) std::cout << error.what() << '\n';
    }
    all.push_back(std::move(one));
  }
  if (values.count("json") != 0) std::cout << all.dump(1) << '\n';
  return good ? kExitOk : kExitInput;
}

}  // namespace swaplab
