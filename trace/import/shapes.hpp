// Tensor sizes from the shapes and types that profilers write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace swaplab {

// Bytes of one element of a type as PyTorch's profilers spell it ("float", "c10::Half", "long int",
// "Tensor(float)"); 0 when it is no tensor type.
std::int64_t profiled_element_bytes(std::string_view type);

struct ShapedInputs {
  std::vector<std::int64_t> tensor_bytes;  // of each tensor, lists flattened, in order
  std::string detail = "{}";               // a signature's detail: {"in":[[[2,3],"float"],...]}
};
// `dims` and `types` are JSON arrays of equal length, as "Input Dims" and "Input type" are. Anything that
// is no shape is no tensor.
ShapedInputs shaped_inputs(const std::string& dims, const std::string& types);

}  // namespace swaplab
