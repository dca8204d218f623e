#include "gpu_validate/hardware.hpp"

#include <charconv>

#include "trace/error.hpp"

namespace swaplab {

std::unique_ptr<Hardware> open_hardware(std::string_view name) {
  if (name == "host") return open_host_hardware();
  int ordinal = 0;
  std::string_view rest = name;
  if (rest.starts_with("cuda")) {
    rest.remove_prefix(4);
    bool good = rest.empty();
    if (rest.starts_with(':')) {
      const auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), ordinal);
      good = error == std::errc{} && end == rest.data() + rest.size() && ordinal >= 0;
    }
    if (good) return open_cuda_hardware(ordinal);
  }
  const std::vector<std::string> names{"host", "cuda", "cuda:0"};
  throw Error(ErrorKind::usage, "unknown device '" + std::string(name) + "'" + did_you_mean(name, names) +
                                    "; expected host, cuda or cuda:N");
}

}  // namespace swaplab
