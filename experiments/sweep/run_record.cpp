#include "experiments/sweep/run_record.hpp"

#include <nlohmann/json.hpp>

#include "trace/error.hpp"
#include "trace/import/json_elements.hpp"

namespace swaplab {
namespace {
using Json = nlohmann::ordered_json;

// Fields of a record; each throws Error(input) saying what was expected.
struct Reader {
  const std::string& where;

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorKind::input, where + ": not a run record: " + message);
  }
  const Json& field(const Json& j, const std::string& key) const {
    const auto found = j.find(key);
    if (found == j.end()) fail("missing \"" + key + "\"");
    return *found;
  }
  std::string text(const Json& j, const std::string& key) const {
    const Json& value = field(j, key);
    if (!value.is_string()) fail("\"" + key + "\": expected a text");
    return value.get<std::string>();
  }
  std::int64_t integer(const Json& j, const std::string& key, std::int64_t least) const {
    const Json& value = field(j, key);
    if (!value.is_number_integer() || value.get<std::int64_t>() < least)
      fail("\"" + key + "\": expected an integer from " + std::to_string(least));
    return value.get<std::int64_t>();
  }
  const Json& object(const Json& j, const std::string& key) const {
    const Json& value = field(j, key);
    if (!value.is_object()) fail("\"" + key + "\": expected an object");
    return value;
  }
};

}  // namespace

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
  Json j;
  try {
    j = Json::parse(line);
  } catch (const Json::parse_error&) {
    throw Error(ErrorKind::input, where + ": not a run record: " + json_error(line, 0));
  }
  const Reader in{where};
  if (!j.is_object()) in.fail("expected an object of " + std::string(kResultSchema));
  const std::string schema = in.text(j, "schema");
  if (schema != kResultSchema)
    throw Error(ErrorKind::input,
                where + ": schema '" + schema + "' is not supported; expected " + kResultSchema);
  RunRecord record;
  record.index = static_cast<std::size_t>(in.integer(j, "index", 0));
  record.key = in.text(j, "key");
  record.status = in.text(j, "status");
  for (const auto& [name, value] : in.object(j, "factors").items())
    record.factors.emplace_back(name, in.text(j.at("factors"), name));
  record.policy = in.text(j, "policy_resolved");
  if (j.contains("explanation")) record.explanation = in.text(j, "explanation");
  for (const auto& [name, value] : in.object(j, "metrics").items()) {
    if (!value.is_number_integer())
      throw Error(ErrorKind::input, where + ": metric '" + name + "' is not an integer");
    record.metrics.emplace_back(name, value.get<std::int64_t>());
  }
  if (j.contains("wall_time_ns")) record.wall_time = Nanos{in.integer(j, "wall_time_ns", 0)};
  return record;
}

}  // namespace swaplab
