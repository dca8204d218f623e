#include "trace/synth/tensor.hpp"

#include <algorithm>

#include "trace/error.hpp"
#include "trace/synth/autograd.hpp"
#include "trace/synth/eager.hpp"

namespace swaplab::synth {

std::string_view dtype_name(DType dtype) {
  constexpr std::string_view names[] = {"float32", "bfloat16", "float16", "int64", "int32", "uint8", "bool"};
  return names[static_cast<std::size_t>(dtype)];
}

std::int64_t item_size(DType dtype) {
  constexpr std::int64_t sizes[] = {4, 2, 2, 8, 4, 1, 1};
  return sizes[static_cast<std::size_t>(dtype)];
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) && is_floating(b)) return DType::float32;
  return std::min(a, b);  // floats come first, then the wider integers
}

Shape::Shape(std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) push_back(size);
}

void Shape::push_back(std::int64_t size) {
  if (rank_ == kMaxRank) throw Error(ErrorKind::invariant, "a synthetic tensor has more than six dimensions");
  sizes_[rank_++] = size;
}

std::int64_t Shape::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t size : *this) product *= size;
  return product;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (std::size_t i = shape.rank(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

std::optional<Shape> view_strides(const Shape& from, const Shape& strides, const Shape& to) {
  Shape result = to;
  if (from.numel() == 0) return from == to ? strides : contiguous_strides(to);
  if (from.rank() == 0) {
    for (std::size_t i = 0; i < to.rank(); ++i) result[i] = 1;
    return result;
  }
  auto view = static_cast<std::int64_t>(to.rank()) - 1;
  std::int64_t chunk_step = strides.back(), tensor_numel = 1, view_numel = 1;
  for (std::size_t i = from.rank(); i-- > 0;) {
    tensor_numel *= from[i];
    const bool chunk_ends = i == 0 || (from[i - 1] != 1 && strides[i - 1] != tensor_numel * chunk_step);
    if (!chunk_ends) continue;
    while (view >= 0 && (view_numel < tensor_numel || to[static_cast<std::size_t>(view)] == 1)) {
      result[static_cast<std::size_t>(view)] = view_numel * chunk_step;
      view_numel *= to[static_cast<std::size_t>(view)];
      --view;
    }
    if (view_numel != tensor_numel) return std::nullopt;
    if (i > 0) {
      chunk_step = strides[i - 1];
      tensor_numel = view_numel = 1;
    }
  }
  return view == -1 ? std::optional<Shape>(result) : std::nullopt;
}

Shape broadcast(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.rank(), b.rank());
  Shape result;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t from_end = rank - i;
    const std::int64_t x = from_end <= a.rank() ? a[a.rank() - from_end] : 1;
    const std::int64_t y = from_end <= b.rank() ? b[b.rank() - from_end] : 1;
    if (x != y && x != 1 && y != 1)
      throw Error(ErrorKind::invariant, "synthetic operator on shapes that do not broadcast");
    result.push_back(x == 1 ? y : x);
  }
  return result;
}

void Storage::release() {
  owner.storage_died(*this);
  delete this;
}

Tensor::Tensor(Ref<Storage> storage, const Shape& shape, const Shape& strides, DType dtype)
    : impl_(new TensorImpl(std::move(storage), shape, strides, dtype)) {}

TensorImpl::~TensorImpl() = default;

std::int64_t Tensor::size(std::int64_t dim) const {
  return shape()[static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(shape().rank()) : dim)];
}

Bytes Tensor::bytes() const {
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < shape().rank(); ++i)
    elements *= strides()[i] != 0 ? shape()[i] : std::min<std::int64_t>(shape()[i], 1);
  return Bytes{elements * item_size(dtype())};
}

bool Tensor::is_contiguous() const {
  std::int64_t step = 1;
  for (std::size_t i = shape().rank(); i-- > 0;) {
    if (shape()[i] == 1) continue;
    if (strides()[i] != step) return false;
    step *= shape()[i];
  }
  return true;
}

}  // namespace swaplab::synth
