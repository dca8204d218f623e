// Shapes in a signature's detail text {"in":[[[dims],"dtype"],...],"out":...,"attr":[...]}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace swaplab {

struct TensorShape {
  std::vector<std::int64_t> dims;
  std::string dtype;
  std::int64_t elements() const;
};

struct SignatureShapes {
  bool known = false;  // both lists are there and well-formed
  std::vector<TensorShape> in, out;
  // The attributes that are integers; others (bools, texts, nested lists) are kAttrOther.
  std::vector<std::int64_t> attr;
};
constexpr std::int64_t kAttrOther = INT64_MIN;

SignatureShapes parse_shapes(std::string_view detail);
// The text with other shapes and integer attributes; everything else as before. Lists may have become
// shorter, except attr.
std::string replace_shapes(std::string_view detail, const SignatureShapes& shapes);
// Bytes of one element; 0 for an unknown dtype.
std::int64_t element_bytes(std::string_view dtype);

}  // namespace swaplab
