// Texts of foreign files as UTF-8, which a trace requires.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace swaplab {

// `text` with every byte that is not UTF-8 replaced by U+FFFD; `replaced` counts them.
std::string mend_utf8(std::string_view text, std::int64_t& replaced);

}  // namespace swaplab
