#include "trace/import/utf8.hpp"

#include "trace/json_text.hpp"

namespace swaplab {

std::string mend_utf8(std::string_view text, std::int64_t& replaced) {
  if (is_utf8(text)) return std::string(text);
  std::string mended;
  while (!text.empty()) {
    // A sequence of UTF-8 has up to four bytes.
    std::size_t length = 1;
    while (length <= 4 && length <= text.size() && !is_utf8(text.substr(0, length))) ++length;
    if (length <= 4 && length <= text.size()) {
      mended.append(text, 0, length);
      text.remove_prefix(length);
    } else {
      mended += "\xef\xbf\xbd";
      ++replaced;
      text.remove_prefix(1);
    }
  }
  return mended;
}

}  // namespace swaplab
