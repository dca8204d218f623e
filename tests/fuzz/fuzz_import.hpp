// Any bytes either import to a consistent trace or are refused with swaplab::Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/import/import.hpp"

namespace swaplab::fuzz {

inline int import_bytes(const std::uint8_t* data, std::size_t size, std::string_view format) {
  try {
    const ImportInput input = ImportInput::memory("fuzz", {reinterpret_cast<const char*>(data), size});
    const ImportResult result = import_trace(std::span(&input, 1), format);
    if (result.trace && !examine_trace(*result.trace).problems.empty()) std::abort();
    report_json_text(result.report);
    recognise(input);
  } catch (const Error&) {
  }
  return 0;
}

}  // namespace swaplab::fuzz
