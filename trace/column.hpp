// One read-only column of a trace: either owned or a view of a memory-mapped file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace swaplab {

// Cheap to copy (shared ownership); the data never change once the column exists.
template <class T>
class Column {
 public:
  Column() = default;
  // Takes over the elements of a builder's vector.
  explicit Column(std::vector<T> values) {
    auto owned = std::make_shared<const std::vector<T>>(std::move(values));
    view_ = *owned;
    keep_alive_ = std::move(owned);
  }
  // A view of memory that lives as long as `keep_alive`.
  Column(std::span<const T> view, std::shared_ptr<const void> keep_alive)
      : view_(view), keep_alive_(std::move(keep_alive)) {}

  const T& operator[](std::size_t i) const { return view_[i]; }
  std::size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  auto begin() const { return view_.begin(); }
  auto end() const { return view_.end(); }
  std::span<const T> span() const { return view_; }
  std::span<const T> span(std::size_t first, std::size_t last) const {
    return view_.subspan(first, last - first);
  }

 private:
  std::span<const T> view_;
  std::shared_ptr<const void> keep_alive_;
};

}  // namespace swaplab
