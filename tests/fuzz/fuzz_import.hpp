// Any bytes either import to a consistent trace or are refused with swaplab::Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/import/import.hpp"

namespace swaplab::fuzz {

inline int import_files(const std::vector<std::string_view>& files, std::string_view format) {
  try {
    std::vector<ImportInput> inputs;
    for (const std::string_view file : files) inputs.push_back(ImportInput::memory("fuzz", file));
    const ImportResult result = import_trace(inputs, format);
    if (result.trace && !examine_trace(*result.trace).problems.empty()) std::abort();
    report_json_text(result.report);
    for (const ImportInput& input : inputs) recognise(input);
  } catch (const Error&) {
  }
  return 0;
}

inline int import_bytes(const std::uint8_t* data, std::size_t size, std::string_view format) {
  return import_files({{reinterpret_cast<const char*>(data), size}}, format);
}

}  // namespace swaplab::fuzz
