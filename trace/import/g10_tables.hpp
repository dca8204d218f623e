// The files beside G10's kernels.config: tables with one value per kernel, and the list of tensors.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trace/import/input.hpp"

namespace swaplab::g10 {

inline constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;

struct Table {
  bool bytes = false;               // bytes of workspace, else ns
  std::vector<std::int64_t> value;  // of kernel i
  std::int64_t sum = 0, cut = 0;    // cut: values with digits below 1 ns
};
struct Tensor {
  std::uint64_t id;
  std::int64_t bytes;
  bool weight;
};

// "0007 12.5 ms" or "0007 4096 B" per kernel.
bool looks_like_table(std::string_view head);
// Both throw Error(input) with file, line and what was expected.
Table read_table(const ImportInput& input);
std::vector<Tensor> read_tensors(const ImportInput& input);

// A line "tensor7 Is weight (global)?: 1, Size in byte: 8, Range:..."; false when it is none.
bool parse_tensor(std::string_view line, Tensor& tensor);

}  // namespace swaplab::g10
