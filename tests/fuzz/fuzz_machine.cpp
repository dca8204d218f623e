// Any text either parses, and then survives its canonical form, or is refused with swaplab::Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "sim/machine_io.hpp"
#include "trace/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const swaplab::Machine machine = swaplab::parse_machine(text, "fuzz");
    const std::string json = swaplab::machine_json(machine);
    if (swaplab::machine_json(swaplab::parse_machine(json, "again")) != json) std::abort();
  } catch (const swaplab::Error&) {
  }
  return 0;
}
