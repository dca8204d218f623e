// Where workload descriptions are found by name.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "trace/error.hpp"
#include "trace/synth/config.hpp"

namespace swaplab::synth {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLargestFile = 1 << 20;

bool is_description(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".yaml" || extension == ".yml" || extension == ".json";
}

// By the stem of the file; an earlier folder hides a later one. Sorted by name.
std::vector<std::pair<std::string, fs::path>> known_files() {
  std::vector<fs::path> folders;
  if (const char* env = std::getenv("SWAPLAB_WORKLOADS"); env != nullptr && *env != '\0')
    folders.emplace_back(env);
#ifdef SWAPLAB_WORKLOAD_FOLDER
  folders.emplace_back(SWAPLAB_WORKLOAD_FOLDER);
#endif
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!program.empty())
    folders.push_back(program.parent_path().parent_path() / "share" / "swaplab" / "workloads");
  std::vector<std::pair<std::string, fs::path>> files;
  for (const fs::path& folder : folders) {
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().stem().string();
      if (is_description(entry.path()) &&
          std::none_of(files.begin(), files.end(), [&](const auto& f) { return f.first == name; }))
        files.emplace_back(name, entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string read_text(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    throw Error(ErrorKind::input, path.string() + ": is a folder, not a workload");
  if (const auto size = fs::file_size(path, error); !error && size > kLargestFile)
    throw Error(ErrorKind::input, path.string() + ": over 1 MiB, not a workload description");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorKind::input, path.string() + ": cannot be read");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

WorkloadConfig load_workload(const std::string& name_or_path, std::span<const std::string> overrides) {
  if (name_or_path.find('/') != std::string::npos || is_description(name_or_path))
    return parse_workload(read_text(name_or_path), name_or_path, overrides);
  std::vector<std::string> names;
  for (const auto& [name, path] : known_files()) {
    if (name == name_or_path) return parse_workload(read_text(path), path.string(), overrides);
    names.push_back(name);
  }
  throw Error(ErrorKind::usage, "unknown workload '" + name_or_path + "'" +
                                    did_you_mean(name_or_path, names) +
                                    "; expected a file or a name that `swaplab trace synth --list` shows");
}

std::vector<WorkloadListing> list_workloads() {
  std::vector<WorkloadListing> listing;
  for (const auto& [name, path] : known_files()) {
    const std::string text = read_text(path);
    parse_workload(text, path.string());
    const YAML::Node summary = YAML::Load(text)["summary"];
    listing.push_back({name, summary ? summary.Scalar() : "", path.string()});
  }
  return listing;
}

}  // namespace swaplab::synth
