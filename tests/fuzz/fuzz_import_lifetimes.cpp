#include "tests/fuzz/fuzz_import.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return swaplab::fuzz::import_bytes(data, size, "lifetimes-csv");
}
