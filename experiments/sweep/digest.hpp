// SHA-256, for names by content and for input hashes in manifests.
#pragma once

#include <string>
#include <string_view>

namespace swaplab {

std::string sha256_hex(std::string_view text);
// Of a whole file. Throws Error(input) when it cannot be read.
std::string sha256_file(const std::string& path);

}  // namespace swaplab
