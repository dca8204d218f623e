#include "trace/perturb/marks.hpp"

#include <nlohmann/json.hpp>

#include "trace/error.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kField = "perturbations";

Json parse(const std::string& text) {
  return Json::parse(text.empty() ? "{}" : text);
}

}  // namespace

std::vector<PerturbationMark> perturbation_marks(const TraceHeader& header) {
  std::vector<PerturbationMark> marks;
  if (header.extra_json.find(kField) == std::string::npos) return marks;
  try {
    const Json extra = parse(header.extra_json);
    if (!extra.contains(kField)) return marks;
    for (const Json& j : extra.at(kField)) {
      marks.push_back(
          {j.at("kind"), j.at("it"), j.at("first_op"), j.at("last_op"), j.at("changed"), j.at("removed")});
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::input, std::string("the header's \"perturbations\" must be a list of "
                                              "{kind,it,first_op,last_op,changed,removed}: ") +
                                      error.what());
  }
  return marks;
}

void set_perturbation_marks(TraceHeader& header, const std::vector<PerturbationMark>& marks) {
  Json list = Json::array();
  for (const PerturbationMark& m : marks) {
    list.push_back({{"kind", m.kind},
                    {"it", m.iteration},
                    {"first_op", m.first_op},
                    {"last_op", m.last_op},
                    {"changed", m.changed},
                    {"removed", m.removed}});
  }
  Json extra = parse(header.extra_json);
  if (list.empty()) {
    extra.erase(kField);
  } else {
    extra[kField] = std::move(list);
  }
  header.extra_json = extra.dump();
}

}  // namespace swaplab
