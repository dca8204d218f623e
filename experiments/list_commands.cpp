#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "policy/registry.hpp"
#include "sim/machine_io.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

std::string needs_text(Needs needs) {
  std::string text;
  const auto add = [&](Needs one, const char* name) {
    if (has(needs, one)) text += (text.empty() ? "" : "+") + std::string(name);
  };
  add(Needs::future, "future");
  add(Needs::op_times, "op-times");
  add(Needs::link_model, "link-model");
  add(Needs::op_events, "op-events");
  add(Needs::op_stream, "op-stream");
  add(Needs::measured_times, "measured-times");
  add(Needs::places, "places");
  return text.empty() ? "nothing" : text;
}

Json policy_json(const PolicyFactory& factory) {
  Json j;
  j["name"] = factory.info().name;
  j["summary"] = factory.info().summary;
  j["citation"] = factory.info().citation;
  j["needs"] = needs_text(factory.info().needs);
  j["parameters"] = Json::array();
  for (const auto& p : factory.describe()) {
    j["parameters"].push_back({{"name", p.name},
                               {"type", p.type},
                               {"range", p.range},
                               {"default", p.value},
                               {"description", p.description}});
  }
  return j;
}

// Beside the policies of the registry: what 'run' prints next to them.
constexpr const char* kBoundSummary =
    "what no schedule that only swaps can beat: the proven swap-only path bound";

po::options_description list_options() {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("json", "JSON instead of text")(
      "name", po::value<std::string>(), "what to show (positional)");
  return options;
}

}  // namespace

int policies_command(const Arguments& given) {
  Arguments arguments = given;
  const std::string action = take_action(arguments, "policies", {"list", "show", "--help"});
  const po::variables_map values = parse_options(arguments, list_options(), "name");
  if (action == "--help" || values.count("help") != 0) {
    std::cout
        << "swaplab policies list | show NAME [--json]\n\nThe policies that 'swaplab run' compares, what "
           "each "
           "needs to know, its parameters and their ranges.\n\nexamples:\n  swaplab policies list\n  swaplab "
           "policies show offload-activations\n  swaplab run --trace gpt.jsonl.gz --policy "
           "offload-activations:preset=megatron,fallback=lru\n\n"
        << list_options();
    return kExitOk;
  }
  if (action == "list") {
    if (values.count("json") != 0) {
      Json all = Json::array();
      for (const PolicyFactory* factory : policy_list()) all.push_back(policy_json(*factory));
      std::cout << all.dump(1) << '\n';
      return kExitOk;
    }
    TextTable table({"policy", "needs to know", "what it does"}, 3);
    for (const PolicyFactory* factory : policy_list()) {
      table.add({std::string(factory->info().name), needs_text(factory->info().needs),
                 std::string(factory->info().summary)});
    }
    table.add({"bound", "the whole run", kBoundSummary});
    std::cout << table.text();
    return kExitOk;
  }
  if (values.count("name") == 0) throw Error(ErrorKind::usage, "swaplab policies show needs a NAME");
  if (values["name"].as<std::string>() == "bound") {
    const Json j = {{"name", "bound"}, {"summary", kBoundSummary}, {"parameters", Json::array()}};
    std::cout << (values.count("json") != 0
                      ? j.dump(1) + "\n"
                      : "bound: " + std::string(kBoundSummary) +
                            "\nIt is a proof and makes no schedule. --explain-bound prints its "
                            "chain of reasons.\n");
    return kExitOk;
  }
  const PolicyFactory& factory = find_policy(values["name"].as<std::string>());
  if (values.count("json") != 0) {
    std::cout << policy_json(factory).dump(1) << '\n';
    return kExitOk;
  }
  std::cout << factory.info().name << ": " << factory.info().summary
            << "\nneeds to know: " << needs_text(factory.info().needs) << '\n';
  if (!factory.info().citation.empty()) std::cout << "source: " << factory.info().citation << '\n';
  TextTable table({"parameter", "default", "range", "meaning"}, 4);
  for (const auto& p : factory.describe()) table.add({p.name, p.value, p.range, p.description});
  if (!factory.describe().empty()) std::cout << '\n' << table.text();
  return kExitOk;
}

int machines_command(const Arguments& given) {
  Arguments arguments = given;
  const std::string action = take_action(arguments, "machines", {"list", "show", "diff", "--help"});
  if (action == "diff") return machine_diff_command(arguments);
  const po::variables_map values = parse_options(arguments, list_options(), "name");
  if (action == "--help" || values.count("help") != 0) {
    std::cout
        << "swaplab machines list | show NAME|FILE | diff A B [--json]\n\nDevice memory, links and API costs "
           "of a node, "
           "each figure with its source and whether it was\nmeasured, published or assumed.\n\nexamples:\n  "
           "swaplab machines show h100-pcie5\n  swaplab machines diff h100-pcie5 my_node.yaml\n  swaplab "
           "machines show my_node.yaml --json\n\n"
        << list_options();
    return kExitOk;
  }
  if (action == "list") {
    TextTable table({"machine", "summary"}, 2);
    Json all = Json::array();
    for (const MachineListing& machine : list_machines()) {
      table.add({machine.name, machine.summary});
      all.push_back({{"name", machine.name}, {"summary", machine.summary}});
    }
    std::cout << (values.count("json") != 0 ? all.dump(1) + "\n" : table.text());
    return kExitOk;
  }
  if (values.count("name") == 0) throw Error(ErrorKind::usage, "swaplab machines show needs a NAME or FILE");
  const Machine machine = load_machine(values["name"].as<std::string>());
  if (values.count("json") != 0) {
    std::cout << machine_json(machine) << '\n';
    return kExitOk;
  }
  std::cout << machine.name << ": " << machine.summary << "\ndevice memory "
            << human_bytes(machine.hbm_capacity) << "\n\n";
  TextTable table({"copy of", "device to host", "host to device"}, 1);
  for (const std::int64_t size : {std::int64_t{4096}, std::int64_t{1} << 16, std::int64_t{1} << 20,
                                  std::int64_t{16} << 20, std::int64_t{1} << 30}) {
    table.add({human_bytes(Bytes{size}),
               human_time(machine.link(Direction::device_to_host).time(Bytes{size})),
               human_time(machine.link(Direction::host_to_device).time(Bytes{size}))});
  }
  std::cout << table.text() << '\n';
  TextTable sources({"figure", "status", "source"}, 3);
  for (const FigureSource& source : machine.sources)
    sources.add({source.figure, source.status, source.source});
  std::cout << sources.text();
  return kExitOk;
}

}  // namespace swaplab
