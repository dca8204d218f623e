// Schema v1 text: whatever parses must be consistent.
#include <cstdlib>
#include <string_view>

#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/io.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    const swaplab::Trace trace = swaplab::parse_jsonl({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!swaplab::examine_trace(trace).problems.empty()) std::abort();
  } catch (const swaplab::Error&) {
  }
  return 0;
}
