// Canonical form of a machine description; parse_machine reads it back unchanged.
#include <nlohmann/json.hpp>
#include <string>

#include "sim/machine_figures.hpp"
#include "sim/machine_io.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

class Writer {
 public:
  explicit Writer(const Machine& machine) : machine_(machine) {}

  std::string text() {
    Json out;
    out["schema"] = "swaplab/machine@1";
    out["name"] = machine_.name;
    out["summary"] = machine_.summary;
    for (const MachineFigure& f : machine_figures()) {
      const std::string section(f.section), key(f.key);
      out[section][key] = figure(section + "." + key, f.dimension, f.field(machine_));
    }
    Json round;
    round["value"] = machine_.host_memory.round_to_power_of_two;
    out["host_memory"]["round_to_power_of_two"] =
        sourced(std::move(round), "host_memory.round_to_power_of_two");
    for (std::size_t c = 0; c < kOpClassCount; ++c) {
      const std::string name(op_class_name(static_cast<OpClass>(c)));
      Json shares;
      shares["compute_ppm"] = machine_.efficiency[c].compute;
      shares["memory_ppm"] = machine_.efficiency[c].memory;
      out["efficiency"][name] = sourced(std::move(shares), "efficiency." + name);
    }
    out["links"] = links("links", machine_.pinned);
    out["pageable_links"] = links("pageable_links", machine_.pageable);
    return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }

 private:
  Json sourced(Json out, const std::string& path) const {
    for (const FigureSource& s : machine_.sources) {
      if (s.figure != path) continue;
      out["status"] = s.status;
      out["source"] = s.source;
      break;
    }
    return out;
  }

  Json figure(const std::string& path, Dimension dimension, std::int64_t value) const {
    Json out;
    out["value_" + std::string(base_unit_suffix(dimension))] = value;
    return sourced(std::move(out), path);
  }

  Json links(const std::string& section, const std::array<TransferTable, 2>& tables) const {
    Json out;
    for (const Direction direction : {Direction::device_to_host, Direction::host_to_device}) {
      const std::string key = direction == Direction::device_to_host ? "d2h" : "h2d";
      const std::string path = section + "." + key;
      const TransferTable& table = tables[static_cast<std::size_t>(direction)];
      out[key]["bandwidth"] = figure(path + ".bandwidth", Dimension::bandwidth, table.bytes_per_second());
      const auto points = table.points();
      if (points.empty() || (points.size() == 1 && points[0].bytes.value == 0)) {
        out[key]["latency"] =
            figure(path + ".latency", Dimension::duration, points.empty() ? 0 : points[0].time.value);
        continue;
      }
      Json list = Json::array();
      for (const TransferPoint& p : points)
        list.push_back(Json{{"size_bytes", p.bytes.value}, {"time_ns", p.time.value}});
      Json rows;
      rows["points"] = std::move(list);
      out[key]["table"] = sourced(std::move(rows), path + ".table");
    }
    return out;
  }

  Machine machine_;
};

}  // namespace

std::string machine_json(const Machine& machine) {
  return Writer(machine).text();
}

}  // namespace swaplab
