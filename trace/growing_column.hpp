// A column while it is built: on the heap, or in a temporary file when a trace is larger than memory
// (private to trace/).
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "trace/column.hpp"

namespace swaplab {

// Bytes that grow and keep their content. Throws Error(output) when a temporary file cannot grow, and
// std::bad_alloc when memory cannot.
class GrowingMemory {
 public:
  // An empty folder means the heap, else an unnamed file in that folder.
  explicit GrowingMemory(std::string folder) : folder_(std::move(folder)) {}
  ~GrowingMemory();
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t capacity() const { return capacity_; }
  // Capacity of at least `bytes`. Of a file, the pages written so far leave the resident set; they come
  // back when they are touched.
  void grow(std::size_t bytes);
  // Gives back what lies beyond `bytes`.
  void shrink(std::size_t bytes);

 private:
  void grow_heap(std::size_t bytes);
  void grow_file(std::size_t bytes);

  const std::string folder_;
  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
  int file_ = -1;
};

template <class T>
class GrowingColumn {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit GrowingColumn(const std::string& folder) : memory_(std::make_shared<GrowingMemory>(folder)) {}

  void push_back(const T& value) {
    if (size_ == capacity_) reserve(size_ + 1);
    data_[size_++] = value;
  }
  void append(std::span<const T> values) {
    if (values.size() > capacity_ - size_) reserve(size_ + values.size());
    std::copy(values.begin(), values.end(), data_ + size_);
    size_ += values.size();
  }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

  // The finished column; this one must not be used afterwards.
  Column<T> take() {
    memory_->shrink(size_ * sizeof(T));
    const std::span<const T> values(reinterpret_cast<const T*>(memory_->data()), size_);
    return Column<T>(values, std::move(memory_));
  }

 private:
  void reserve(std::size_t size) {
    memory_->grow(size * sizeof(T));
    data_ = reinterpret_cast<T*>(memory_->data());
    capacity_ = memory_->capacity() / sizeof(T);
  }

  std::shared_ptr<GrowingMemory> memory_;
  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace swaplab
