// Imports from text or bytes in memory, and the reference counts of the shared corpus.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/import/import.hpp"

namespace swaplab::test {

inline ImportResult import_text(std::string_view text, std::string_view from = "") {
  const ImportInput input = ImportInput::memory("memory", text);
  return import_trace(std::span(&input, 1), from);
}

// The message of the Error that the import ends with; "" when it does not.
inline std::string refusal(std::string_view text, std::string_view from = "") {
  try {
    import_text(text, from);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline std::int64_t note_count(const std::vector<ImportNote>& notes, std::string_view what) {
  for (const ImportNote& note : notes) {
    if (note.what == what) return note.count;
  }
  return 0;
}

// Cut at every 1/16: each part is refused with one error that names a byte, or holds a whole value by chance.
inline void check_truncations(const std::string& bytes, std::string_view from) {
  for (std::size_t i = 1; i < 16; ++i) {
    const std::string part = bytes.substr(0, bytes.size() * i / 16);
    const std::string message = refusal(part, from);
    CAPTURE(i);
    CHECK_MESSAGE(contains(message, "byte "), message);
  }
}

}  // namespace swaplab::test
