// .swt bytes, with checksums made right so that the checks behind them are reached: whatever is accepted is
// a consistent trace that every part of the library can walk, and survives the text format.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>

#include "tests/support/swt_bytes.hpp"
#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/io.hpp"
#include "trace/swt.hpp"

namespace {

// An error here is a finding: the trace was accepted.
void must_survive(const swaplab::Trace& trace) {
  if (!swaplab::examine_trace(trace).problems.empty()) std::abort();
  try {
    const swaplab::Trace again = swaplab::parse_jsonl(swaplab::jsonl_text(trace), "again");
    if (swaplab::trace_hash(again) != swaplab::trace_hash(trace)) std::abort();
  } catch (const swaplab::Error&) {
    std::abort();
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(unsigned char* data, std::size_t size, std::size_t max_size);

// The default mutations change sizes, which the format refuses at once; most rounds keep the size and the
// layout and change what lies in the sections.
extern "C" std::size_t LLVMFuzzerCustomMutator(unsigned char* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  if (seed % 8 == 0 || size <= swaplab::swt::kTableBytes)
    size = LLVMFuzzerMutate(data, size, max_size);
  else
    LLVMFuzzerMutate(data + swaplab::swt::kTableBytes, size - swaplab::swt::kTableBytes,
                     size - swaplab::swt::kTableBytes);
  std::string file(reinterpret_cast<const char*>(data), size);
  swaplab::test::repair_checksums(file);
  std::copy(file.begin(), file.end(), reinterpret_cast<char*>(data));
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  swaplab::Trace trace;
  try {
    trace = swaplab::parse_swt(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const swaplab::Error&) {
    return 0;
  }
  must_survive(trace);
  return 0;
}
