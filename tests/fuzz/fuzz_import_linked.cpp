// Several files of one trace (an execution trace with its Kineto half; G10's kernels with their tables): the
// bytes are cut at each record separator (0x1e), every part's format is recognised by its content.
#include <vector>

#include "tests/fuzz/fuzz_import.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> parts;
  while (parts.size() < 4) {
    const auto cut = rest.find('\x1e');
    parts.push_back(rest.substr(0, cut));
    if (cut == std::string_view::npos) break;
    rest.remove_prefix(cut + 1);
  }
  return swaplab::fuzz::import_files(parts, "");
}
