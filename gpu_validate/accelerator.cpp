#include "gpu_validate/accelerator.hpp"

#include <string>

#include "trace/error.hpp"

namespace swaplab {

std::string_view kernel_kind_name(KernelKind kind) {
  switch (kind) {
    case KernelKind::spin:
      return "spin";
    case KernelKind::compute:
      return "compute";
    case KernelKind::memory:
      return "memory";
  }
  return "";
}

std::string_view memory_mode_name(MemoryMode mode) {
  switch (mode) {
    case MemoryMode::reservation:
      return "reservation";
    case MemoryMode::stream_ordered:
      return "malloc-async";
    case MemoryMode::vmm:
      return "vmm";
  }
  return "";
}

MemoryMode parse_memory_mode(std::string_view text) {
  std::vector<std::string> names;
  for (const MemoryMode mode : {MemoryMode::reservation, MemoryMode::stream_ordered, MemoryMode::vmm}) {
    names.emplace_back(memory_mode_name(mode));
    if (names.back() == text) return mode;
  }
  throw Error(ErrorKind::usage, "unknown memory mode '" + std::string(text) + "'" +
                                    did_you_mean(text, names) +
                                    "; expected reservation, malloc-async or vmm");
}

}  // namespace swaplab
