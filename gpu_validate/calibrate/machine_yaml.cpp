// A machine description as YAML: the canonical JSON form, laid out as the files in configs/machines.
#include <nlohmann/json.hpp>
#include <sstream>

#include "gpu_validate/calibrate/calibrate.hpp"
#include "sim/machine_io.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

// Quoted JSON text is quoted YAML text.
std::string scalar(const Json& value) {
  return value.dump();
}

bool is_leaf(const Json& value) {
  if (!value.is_object()) return true;
  for (const auto& [key, inner] : value.items())
    if (inner.is_structured()) return false;
  return true;
}

std::string flow(const Json& map) {
  std::string out = "{";
  for (const auto& [key, value] : map.items())
    out += (out.size() > 1 ? ", " : "") + key + ": " + scalar(value);
  return out + "}";
}

bool is_figure(const Json& value) {
  return value.is_object() && value.contains("source") && is_leaf(value);
}

void write(const Json& map, const std::string& indent, std::string& out) {
  for (const auto& [key, value] : map.items()) {
    if (is_figure(value)) {
      out += indent + key + ": " + flow(value) + "\n";
    } else if (value.is_object()) {
      out += indent + key + ":\n";
      write(value, indent + "  ", out);
    } else if (value.is_array()) {
      out += indent + key + ":\n";
      for (const Json& entry : value) out += indent + "  - " + flow(entry) + "\n";
    } else {
      out += indent + key + ": " + scalar(value) + "\n";
    }
  }
}

}  // namespace

std::string machine_yaml(const Machine& machine, const std::string& heading) {
  std::string out;
  std::istringstream lines(heading);
  for (std::string line; std::getline(lines, line);) out += "# " + line + "\n";
  write(Json::parse(machine_json(machine)), "", out);
  return out;
}

}  // namespace swaplab
