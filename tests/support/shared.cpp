#include "tests/support/shared.hpp"

#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace swaplab::test {

std::optional<std::string> shared_path(const std::string& relative) {
  const char* environment = std::getenv("SWAPLAB_SHARED");
  const std::filesystem::path root =
      environment != nullptr ? environment : std::filesystem::path(SWAPLAB_SOURCE_DIR) / ".." / "shared";
  const auto path = root / relative;
  if (std::filesystem::exists(path)) return path.string();
  std::printf("SKIPPED: shared material '%s' not found (set SWAPLAB_SHARED to its folder)\n",
              relative.c_str());
  return std::nullopt;
}

std::string source_path(const std::string& relative) {
  return (std::filesystem::path(SWAPLAB_SOURCE_DIR) / relative).string();
}

std::string read_file(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");  // reads plain files as they are
  if (file == nullptr) throw std::runtime_error("cannot open " + path);
  std::string content;
  char buffer[1 << 16];
  int count = 0;
  while ((count = gzread(file, buffer, sizeof buffer)) > 0)
    content.append(buffer, static_cast<size_t>(count));
  gzclose(file);
  if (count < 0) throw std::runtime_error("cannot read " + path);
  return content;
}

}  // namespace swaplab::test
