#include "trace/import/shapes.hpp"

#include <limits>
#include <nlohmann/json.hpp>

namespace swaplab {
namespace {

using Json = nlohmann::json;

// Bytes of a dense tensor, -1 when `dims` is no shape or the product overflows.
std::int64_t dense_bytes(const Json& dims, std::int64_t element) {
  if (!dims.is_array()) return -1;
  std::int64_t bytes = element;
  for (const Json& d : dims) {
    if (!d.is_number_integer()) return -1;
    const auto n = d.get<std::int64_t>();
    if (n < 0 || (n != 0 && bytes > std::numeric_limits<std::int64_t>::max() / n)) return -1;
    bytes *= n;
  }
  return bytes;
}

bool is_list_of_shapes(const Json& dims) {
  return dims.is_array() && !dims.empty() && dims[0].is_array();
}

}  // namespace

std::int64_t profiled_element_bytes(std::string_view type) {
  if (type.rfind("Tensor(", 0) == 0 && type.back() == ')') type = type.substr(7, type.size() - 8);
  struct Row {
    std::string_view name;
    std::int64_t bytes;
  };
  static constexpr Row rows[] = {
      {"float", 4},
      {"double", 8},
      {"c10::Half", 2},
      {"c10::BFloat16", 2},
      {"long int", 8},
      {"long", 8},
      {"int", 4},
      {"short int", 2},
      {"short", 2},
      {"signed char", 1},
      {"unsigned char", 1},
      {"bool", 1},
      {"c10::complex<float>", 8},
      {"c10::complex<double>", 16},
      {"c10::qint8", 1},
      {"c10::quint8", 1},
      {"c10::Float8_e4m3fn", 1},
      {"c10::Float8_e5m2", 1},
      {"c10::Float8_e4m3fnuz", 1},
      {"c10::Float8_e5m2fnuz", 1},
      {"unsigned int", 4},
      {"unsigned long", 8},
      {"unsigned short", 2},
      {"unsigned long int", 8},
      {"unsigned short int", 2},
  };
  for (const Row& row : rows) {
    if (row.name == type) return row.bytes;
  }
  return 0;
}

ShapedInputs shaped_inputs(const std::string& dims_text, const std::string& types_text) {
  ShapedInputs inputs;
  const Json dims = Json::parse(dims_text, nullptr, false), types = Json::parse(types_text, nullptr, false);
  if (!dims.is_array() || !types.is_array() || dims.size() != types.size()) return inputs;
  Json in = Json::array();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (!types[i].is_string()) continue;
    const auto type = types[i].get<std::string>();
    // A list of tensors states one type for all ("TensorList" states none and then has no sizes).
    const std::int64_t element = profiled_element_bytes(type);
    if (element == 0) continue;
    const Json one = Json::array({dims[i]});
    for (const Json& shape : is_list_of_shapes(dims[i]) ? dims[i] : one) {
      const std::int64_t bytes = dense_bytes(shape, element);
      if (bytes < 0) continue;
      inputs.tensor_bytes.push_back(bytes);
      in.push_back({shape, type});
    }
  }
  if (!in.empty()) inputs.detail = Json({{"in", in}}).dump(-1, ' ', false, Json::error_handler_t::replace);
  return inputs;
}

}  // namespace swaplab
