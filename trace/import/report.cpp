#include "trace/import/report.hpp"

#include <nlohmann/json.hpp>

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

void add_note(std::vector<ImportNote>& notes, std::string what, std::int64_t count, std::string how) {
  if (count != 0) notes.push_back({std::move(what), count, std::move(how)});
}

Json notes_json(const std::vector<ImportNote>& notes, const char* how) {
  Json list = Json::array();
  for (const ImportNote& note : notes)
    list.push_back({{"what", note.what}, {"count", note.count}, {how, note.how}});
  return list;
}

}  // namespace

std::string_view study_name(StudyKind study) {
  static constexpr std::string_view names[] = {"none", "times only", "memory only", "full"};
  return names[static_cast<std::size_t>(study)];
}

std::string study_header(StudyKind study) {
  return Json{{"studies", study_name(study)}}.dump();
}

std::optional<StudyKind> stated_study(std::string_view extra_json) {
  const Json header = Json::parse(extra_json, nullptr, false);
  if (!header.is_object() || !header.contains("studies")) return std::nullopt;
  for (const StudyKind study :
       {StudyKind::none, StudyKind::times_only, StudyKind::memory_only, StudyKind::full}) {
    if (header.at("studies") == Json(study_name(study))) return study;
  }
  return std::nullopt;
}

std::int64_t ImportReport::found_count(std::string_view name) const {
  for (const auto& [key, count] : found) {
    if (key == name) return count;
  }
  return 0;
}

void ImportReport::derive(std::string what, std::int64_t count, std::string how) {
  add_note(derived, std::move(what), count, std::move(how));
}
void ImportReport::drop(std::string what, std::int64_t count, std::string why) {
  add_note(dropped, std::move(what), count, std::move(why));
}
void ImportReport::repair(std::string what, std::int64_t count, std::string how) {
  add_note(repaired, std::move(what), count, std::move(how));
}

std::string report_json_text(const ImportReport& report) {
  Json j;
  j["files"] = report.files;
  j["format"] = report.format;
  j["version"] = report.version;
  j["study"] = study_name(report.study);
  j["study_reason"] = report.study_reason;
  j["baseline_bytes"] = report.baseline.value < 0 ? Json() : Json(report.baseline.value);
  j["found"] = Json::object();
  for (const auto& [name, count] : report.found) j["found"][name] = count;
  j["derived"] = notes_json(report.derived, "how");
  j["missing"] = report.missing;
  j["dropped"] = notes_json(report.dropped, "why");
  j["repaired"] = notes_json(report.repaired, "how");
  return j.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace swaplab
