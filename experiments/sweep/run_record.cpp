#include "experiments/sweep/run_record.hpp"

#include <nlohmann/json.hpp>

#include "trace/error.hpp"

namespace swaplab {
namespace {
using Json = nlohmann::ordered_json;
}

const std::string& RunRecord::factor(std::string_view name) const {
  static const std::string none;
  for (const auto& [name_, value] : factors) {
    if (name_ == name) return value;
  }
  return none;
}

std::optional<std::int64_t> RunRecord::metric(std::string_view name) const {
  for (const auto& [name_, value] : metrics) {
    if (name_ == name) return value;
  }
  return std::nullopt;
}

std::string record_line(const RunRecord& record, bool with_wall_time) {
  Json j;
  j["schema"] = kResultSchema;
  j["index"] = record.index;
  j["key"] = record.key;
  j["status"] = record.status;
  Json& factors = j["factors"] = Json::object();
  for (const auto& [name, value] : record.factors) factors[name] = value;
  j["policy_resolved"] = record.policy;
  if (!record.explanation.empty()) j["explanation"] = record.explanation;
  Json& metrics = j["metrics"] = Json::object();
  for (const auto& [name, value] : record.metrics) metrics[name] = value;
  if (with_wall_time) j["wall_time_ns"] = record.wall_time.value;
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RunRecord parse_record(std::string_view line, const std::string& where) {
  try {
    const Json j = Json::parse(line);
    if (j.at("schema").get<std::string>() != kResultSchema)
      throw Error(ErrorKind::input, where + ": schema '" + j.at("schema").get<std::string>() +
                                        "' is not supported; expected " + kResultSchema);
    RunRecord record;
    record.index = j.at("index").get<std::size_t>();
    record.key = j.at("key").get<std::string>();
    record.status = j.at("status").get<std::string>();
    for (const auto& [name, value] : j.at("factors").items())
      record.factors.emplace_back(name, value.get<std::string>());
    record.policy = j.at("policy_resolved").get<std::string>();
    if (j.contains("explanation")) record.explanation = j.at("explanation").get<std::string>();
    for (const auto& [name, value] : j.at("metrics").items()) {
      if (!value.is_number_integer())
        throw Error(ErrorKind::input, where + ": metric '" + name + "' is not an integer");
      record.metrics.emplace_back(name, value.get<std::int64_t>());
    }
    if (j.contains("wall_time_ns")) record.wall_time = Nanos{j.at("wall_time_ns").get<std::int64_t>()};
    return record;
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorKind::input, where + ": not a run record: " + e.what());
  }
}

}  // namespace swaplab
