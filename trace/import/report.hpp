// What an import found, derived, misses and dropped: nothing is invented silently.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/units.hpp"

namespace swaplab {

// Which swap studies the imported trace supports.
enum class StudyKind : std::uint8_t {
  none,         // no operators and no memory, or calibration data only
  times_only,   // operators with device times, no storages
  memory_only,  // storages with lifetimes and sizes, but no times or no knowledge of who reads them
  full,         // operators, the storages they use, lifetimes and device times
};
std::string_view study_name(StudyKind study);  // "none", "times only", "memory only", "full"

// How the header of an imported trace states it (TraceHeader::extra_json), and what a header states; nothing
// for traces that were not imported.
std::string study_header(StudyKind study);
std::optional<StudyKind> stated_study(std::string_view extra_json);

// One line of the report: what, how many, and how it was derived, why it was dropped.
struct ImportNote {
  std::string what;
  std::int64_t count = 0;
  std::string how;
};

struct ImportReport {
  std::string format, version;                              // "kineto", "schemaVersion 1"
  std::vector<std::string> files;                           // as given
  std::vector<std::pair<std::string, std::int64_t>> found;  // in the order of the report
  std::vector<ImportNote> derived, dropped, repaired;
  std::vector<std::string> missing;
  Bytes baseline{-1};  // lived before the file begins and is not itemised; -1 unknown
  StudyKind study = StudyKind::none;
  std::string study_reason;

  void add_found(std::string name, std::int64_t count) { found.emplace_back(std::move(name), count); }
  // 0 when absent.
  std::int64_t found_count(std::string_view name) const;
  // Each leaves out a note that counts nothing.
  void derive(std::string what, std::int64_t count, std::string how);
  void drop(std::string what, std::int64_t count, std::string why);
  void repair(std::string what, std::int64_t count, std::string how);
};

// One JSON object, two levels, integers exact.
std::string report_json_text(const ImportReport& report);

}  // namespace swaplab
