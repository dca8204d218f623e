// Where machine descriptions are found by name.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "sim/machine_io.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLargestFile = 1 << 20;  // a description takes a few kilobytes
constexpr std::string_view kExtensions[] = {".yaml", ".yml", ".json"};

// In order of precedence; only folders that exist, each once.
std::vector<fs::path> machine_folders() {
  std::vector<fs::path> wanted;
  if (const char* env = std::getenv("SWAPLAB_MACHINES"); env != nullptr && *env != '\0')
    wanted.emplace_back(env);
#ifdef SWAPLAB_MACHINE_FOLDER
  wanted.emplace_back(SWAPLAB_MACHINE_FOLDER);
#endif
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (fs::path at = program.parent_path(); !at.empty(); at = at.parent_path()) {
    wanted.push_back(at / "configs" / "machines");
    if (at == at.root_path()) break;
  }
  if (!program.empty())
    wanted.push_back(program.parent_path().parent_path() / "share" / "swaplab" / "machines");
  std::vector<fs::path> folders;
  for (const fs::path& folder : wanted) {
    if (!fs::is_directory(folder, ignored)) continue;
    const fs::path canonical = fs::weakly_canonical(folder, ignored);
    if (std::find(folders.begin(), folders.end(), canonical) == folders.end()) folders.push_back(canonical);
  }
  return folders;
}

bool is_description(const fs::path& path) {
  return std::find(std::begin(kExtensions), std::end(kExtensions), path.extension().string()) !=
         std::end(kExtensions);
}

// Every description by the stem of its file; an earlier folder hides a later one. Sorted by name.
std::vector<std::pair<std::string, fs::path>> known_files() {
  std::vector<std::pair<std::string, fs::path>> files;
  for (const fs::path& folder : machine_folders()) {
    std::vector<fs::path> here;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
      if (is_description(entry.path()) && entry.is_regular_file(ignored)) here.push_back(entry.path());
    std::sort(here.begin(), here.end());
    for (const fs::path& path : here) {
      const std::string name = path.stem().string();
      if (std::none_of(files.begin(), files.end(), [&](const auto& f) { return f.first == name; }))
        files.emplace_back(name, path);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

Machine load_file(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    throw Error(ErrorKind::input, path.string() + ": is a folder, not a machine file");
  if (const auto size = fs::file_size(path, error); !error && size > kLargestFile)
    throw Error(ErrorKind::input, path.string() + ": over 1 MiB, not a machine description");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorKind::input, path.string() + ": cannot be read");
  std::string text(kLargestFile + 1, '\0');  // a pipe or device has no size to ask for
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kLargestFile)
    throw Error(ErrorKind::input, path.string() + ": over 1 MiB, not a machine description");
  return parse_machine(text, path.string());
}

}  // namespace

Machine load_machine(const std::string& name_or_path) {
  if (name_or_path.find('/') != std::string::npos || is_description(name_or_path))
    return load_file(name_or_path);
  const auto files = known_files();
  std::vector<std::string> names;
  for (const auto& [name, path] : files) {
    if (name == name_or_path) return load_file(path);
    names.push_back(name);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw Error(ErrorKind::usage, "unknown machine '" + name_or_path + "'" + did_you_mean(name_or_path, names) +
                                    "; expected a file or one of: " + (list.empty() ? "(none found)" : list));
}

std::vector<MachineListing> list_machines() {
  std::vector<MachineListing> listing;
  for (const auto& [name, path] : known_files())
    listing.push_back({name, load_file(path).summary, path.string()});
  return listing;
}

}  // namespace swaplab
