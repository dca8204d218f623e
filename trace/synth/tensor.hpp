// Tensors of the synthetic program: shape, strides, number format and a shared storage, as in PyTorch.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "trace/ids.hpp"
#include "trace/synth/ref.hpp"
#include "trace/units.hpp"

namespace swaplab::synth {

enum class DType : std::uint8_t { float32, bfloat16, float16, int64, int32, uint8, boolean };
std::string_view dtype_name(DType dtype);  // "float32", ... as PyTorch prints it
std::int64_t item_size(DType dtype);       // bytes of one element
inline bool is_floating(DType dtype) {
  return dtype <= DType::float16;
}
// Result format of an operator on both (floats win over integers, float32 over 16 bits).
DType promote(DType a, DType b);

// Up to six dimensions, inline.
class Shape {
 public:
  static constexpr std::size_t kMaxRank = 6;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);
  std::size_t rank() const { return rank_; }
  std::int64_t operator[](std::size_t i) const { return sizes_[i]; }
  std::int64_t& operator[](std::size_t i) { return sizes_[i]; }
  std::int64_t back() const { return sizes_[rank_ - 1]; }
  void push_back(std::int64_t size);
  std::int64_t numel() const;
  bool operator==(const Shape& other) const;
  const std::int64_t* begin() const { return sizes_.data(); }
  const std::int64_t* end() const { return sizes_.data() + rank_; }

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};
  std::uint8_t rank_ = 0;
};

Shape contiguous_strides(const Shape& shape);
// Strides of a view with shape `to`, or nothing where only a copy would do (PyTorch's computeStride).
std::optional<Shape> view_strides(const Shape& from, const Shape& strides, const Shape& to);
Shape broadcast(const Shape& a, const Shape& b);

class Eager;
class Node;

// One device buffer. Its last handle tells the program, which records the free.
class Storage final : public RefCounted {
 public:
  Storage(Eager& program, StorageId storage_id, Bytes size) : owner(program), id(storage_id), bytes(size) {}
  Eager& owner;
  const StorageId id;
  Bytes bytes;

 private:
  void release() override;
};

class TensorImpl;

// A handle; copying shares the tensor. An empty handle is an undefined tensor.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Ref<Storage> storage, const Shape& shape, const Shape& strides, DType dtype);
  bool defined() const { return static_cast<bool>(impl_); }
  void reset() { impl_.reset(); }
  TensorImpl* impl() const;
  std::uint32_t use_count() const;

  const Shape& shape() const;
  const Shape& strides() const;
  std::int64_t size(std::int64_t dim) const;  // negative counts from the end
  DType dtype() const;
  std::int64_t numel() const;
  Bytes bytes() const;  // of the elements that exist: an expanded dimension counts once
  StorageId storage_id() const;
  Storage& storage() const;
  bool is_contiguous() const;
  bool requires_grad() const;
  void set_requires_grad(bool value);

 private:
  Ref<TensorImpl> impl_;
};

class TensorImpl final : public RefCounted {
 public:
  TensorImpl(Ref<Storage> s, const Shape& sizes, const Shape& steps, DType format)
      : storage(std::move(s)), shape(sizes), strides(steps), dtype(format) {}
  ~TensorImpl() override;
  Ref<Storage> storage;
  Shape shape, strides;
  DType dtype;
  bool requires_grad = false;
  std::uint32_t output_nr = 0;  // which result of grad_fn this is
  Ref<Node> grad_fn;            // empty for leaves
  Ref<Node> accumulator;        // leaves: the node that adds into `grad`
  Tensor grad;                  // leaves only
};

inline TensorImpl* Tensor::impl() const {
  return impl_.get();
}
inline std::uint32_t Tensor::use_count() const {
  return impl_->use_count();
}
inline const Shape& Tensor::shape() const {
  return impl_->shape;
}
inline const Shape& Tensor::strides() const {
  return impl_->strides;
}
inline DType Tensor::dtype() const {
  return impl_->dtype;
}
inline std::int64_t Tensor::numel() const {
  return impl_->shape.numel();
}
inline StorageId Tensor::storage_id() const {
  return impl_->storage->id;
}
inline Storage& Tensor::storage() const {
  return *impl_->storage;
}
inline bool Tensor::requires_grad() const {
  return impl_ && impl_->requires_grad;
}
inline void Tensor::set_requires_grad(bool value) {
  impl_->requires_grad = value;
}

}  // namespace swaplab::synth
