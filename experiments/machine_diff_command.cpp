#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/machine_diff.hpp"
#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "sim/machine_io.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp = R"(swaplab machines diff A B [--json] [--sources]

Every figure in which two machine descriptions differ, the relative change from A to B, and whether each
side measured it, took it from a publication or assumed it. A and B are names or files. Links are compared
by bandwidth, latency and the time of copies from 4 KiB to 1 GiB.

examples:
  swaplab machines diff a100-40g-pcie4 a100-80g-pcie4
  swaplab machines diff h100-pcie5 my_node.yaml --sources
  swaplab machines diff old_node.yaml new_node.yaml --json | jq '.differences[] | select(.change > 0.1)'

)";

std::string change_text(const MachineDifference& d) {
  if (!d.change) return "-";
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%+.1f %%", 100 * *d.change);
  return buffer;
}

Json source_json(const FigureSource& source) {
  return {{"status", source.status}, {"source", source.source}};
}

}  // namespace

int machine_diff_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("json", "JSON instead of text")(
      "sources", "also where each figure came from")("machines", po::value<std::vector<std::string>>(),
                                                     "two names or files (positional)");
  const po::variables_map values = parse_options(arguments, options, "machines");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  if (values.count("machines") == 0 || values["machines"].as<std::vector<std::string>>().size() != 2)
    throw Error(ErrorKind::usage, "swaplab machines diff needs two names or files");
  const auto& names = values["machines"].as<std::vector<std::string>>();
  const Machine a = load_machine(names[0]), b = load_machine(names[1]);
  const MachineDiff diff = diff_machines(a, b);
  if (values.count("json") != 0) {
    Json j;
    j["a"] = a.name;
    j["b"] = b.name;
    j["equal"] = diff.equal;
    j["equal_other_source"] = diff.equal_other_source;
    j["differences"] = Json::array();
    for (const MachineDifference& d : diff.differences) {
      Json one = {{"figure", d.figure}, {"unit", d.unit}, {"a", d.a}, {"b", d.b}};
      one["change"] = d.change ? Json(*d.change) : Json(nullptr);
      one["source_a"] = source_json(d.source_a);
      one["source_b"] = source_json(d.source_b);
      j["differences"].push_back(std::move(one));
    }
    std::cout << j.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
    return kExitOk;
  }
  TextTable table({"figure", a.name, b.name, "change", a.name + " is", b.name + " is"}, 1);
  for (const MachineDifference& d : diff.differences)
    table.add({d.figure, human_figure(d.a, d.unit), human_figure(d.b, d.unit), change_text(d),
               d.source_a.status, d.source_b.status});
  if (!diff.differences.empty()) std::cout << table.text() << '\n';
  if (values.count("sources") != 0) {
    for (const MachineDifference& d : diff.differences)
      std::cout << d.figure << "\n  " << a.name << ": " << d.source_a.source << "\n  " << b.name << ": "
                << d.source_b.source << '\n';
    if (!diff.differences.empty()) std::cout << '\n';
  }
  std::cout << diff.differences.size() << " differ, " << diff.equal << " are equal ("
            << diff.equal_other_source << " of these from another source)\n";
  return kExitOk;
}

}  // namespace swaplab
