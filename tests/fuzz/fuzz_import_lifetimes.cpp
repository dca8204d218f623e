// Any bytes either import to a consistent trace or are refused with swaplab::Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/import/import.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto input = swaplab::ImportInput::memory("fuzz", {reinterpret_cast<const char*>(data), size});
    const auto result = swaplab::import_trace(std::span(&input, 1), "lifetimes-csv");
    if (result.trace && !swaplab::examine_trace(*result.trace).problems.empty()) std::abort();
    swaplab::report_json_text(result.report);
  } catch (const swaplab::Error&) {
  }
  return 0;
}
