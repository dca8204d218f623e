#include "trace/perturb/shapes.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

bool read_tensors(const Json& j, std::vector<TensorShape>& into) {
  if (!j.is_array()) return false;
  for (const Json& tensor : j) {
    if (!tensor.is_array() || tensor.size() != 2 || !tensor[0].is_array() || !tensor[1].is_string())
      return false;
    TensorShape shape;
    for (const Json& dim : tensor[0]) {
      if (!dim.is_number_integer()) return false;
      shape.dims.push_back(dim.get<std::int64_t>());
    }
    shape.dtype = tensor[1].get<std::string>();
    into.push_back(std::move(shape));
  }
  return true;
}

Json tensors_json(const std::vector<TensorShape>& tensors) {
  Json list = Json::array();
  for (const TensorShape& t : tensors) list.push_back(Json::array({t.dims, t.dtype}));
  return list;
}

}  // namespace

std::int64_t TensorShape::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t d : dims) product *= d;
  return product;
}

SignatureShapes parse_shapes(std::string_view detail) {
  SignatureShapes shapes;
  const Json j = Json::parse(detail, nullptr, false);
  if (!j.is_object() || !j.contains("in") || !j.contains("out")) return shapes;
  shapes.known = read_tensors(j["in"], shapes.in) && read_tensors(j["out"], shapes.out);
  if (j.contains("attr") && j["attr"].is_array()) {
    for (const Json& a : j["attr"])
      shapes.attr.push_back(a.is_number_integer() ? a.get<std::int64_t>() : kAttrOther);
  }
  return shapes;
}

std::string replace_shapes(std::string_view detail, const SignatureShapes& shapes) {
  Json j = Json::parse(detail);
  j["in"] = tensors_json(shapes.in);
  j["out"] = tensors_json(shapes.out);
  if (j.contains("attr") && j["attr"].is_array()) {
    for (std::size_t i = 0; i < j["attr"].size() && i < shapes.attr.size(); ++i) {
      if (shapes.attr[i] != kAttrOther) j["attr"][i] = shapes.attr[i];
    }
  }
  return j.dump();
}

std::int64_t element_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::int64_t> sizes[] = {
      {"float32", 4}, {"float16", 2}, {"bfloat16", 2}, {"float64", 8}, {"int64", 8},     {"int32", 4},
      {"int16", 2},   {"int8", 1},    {"uint8", 1},    {"bool", 1},    {"complex64", 8}, {"complex128", 16}};
  for (const auto& [name, size] : sizes) {
    if (name == dtype) return size;
  }
  return 0;
}

}  // namespace swaplab
