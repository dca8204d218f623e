// Schema v1 text: whatever parses is consistent, and survives being written and read again unchanged.
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/io.hpp"

namespace {

// An error here is a finding: the text was written by us.
void must_survive(const swaplab::Trace& trace) {
  try {
    const std::string text = swaplab::jsonl_text(trace);
    const swaplab::Trace again = swaplab::parse_jsonl(text, "again");
    if (swaplab::trace_hash(again) != swaplab::trace_hash(trace)) std::abort();
    if (swaplab::jsonl_text(again) != text) std::abort();
  } catch (const swaplab::Error&) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  swaplab::Trace trace;
  try {
    trace = swaplab::parse_jsonl({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const swaplab::Error&) {
    return 0;
  }
  if (!swaplab::examine_trace(trace).problems.empty()) std::abort();
  must_survive(trace);
  return 0;
}
