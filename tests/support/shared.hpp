// Where tests find the shared reference material, which is never part of the repository.
#pragma once

#include <optional>
#include <string>

namespace swaplab::test {

// Path of `relative` under the shared folder ($SWAPLAB_SHARED or <source>/../shared).
// Empty when it does not exist; the reason is then printed once, so that a skip is visible.
std::optional<std::string> shared_path(const std::string& relative);

// Path of a file in the source tree.
std::string source_path(const std::string& relative);

// Whole content of a file; `.gz` is decompressed. Throws std::runtime_error when unreadable.
std::string read_file(const std::string& path);

}  // namespace swaplab::test
