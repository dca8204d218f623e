// Intrusive reference counting for the synthetic program: a storage dies exactly when its last tensor does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace swaplab::synth {

// Counts handles; not thread-safe (one program is one thread). `release` is what the last handle calls.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  std::uint32_t use_count() const { return count_; }

  virtual ~RefCounted() = default;  // called by release() only

 private:
  template <class T>
  friend class Ref;
  virtual void release() { delete this; }
  std::uint32_t count_ = 0;
};

// Holds the counted base, so that T may be incomplete where handles are only copied.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* target) : target_(target) { retain(); }
  Ref(const Ref& other) : target_(other.target_) { retain(); }
  Ref(Ref&& other) noexcept : target_(std::exchange(other.target_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(target_, other.target_);
    return *this;
  }
  ~Ref() { drop(); }

  T* get() const { return static_cast<T*>(target_); }
  T* operator->() const { return get(); }
  T& operator*() const { return *get(); }
  explicit operator bool() const { return target_ != nullptr; }
  bool operator==(const Ref& other) const { return target_ == other.target_; }
  void reset() {
    drop();
    target_ = nullptr;
  }

 private:
  void retain() {
    if (target_ != nullptr) ++target_->count_;
  }
  void drop() {
    if (target_ != nullptr && --target_->count_ == 0) target_->release();
  }
  RefCounted* target_ = nullptr;
};

}  // namespace swaplab::synth
