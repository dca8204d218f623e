// From the ids of a file to dense ones (private to trace/).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace swaplab {

// File ids are any 64-bit numbers; a flat table serves the usual dense ones.
template <class Id>
class IdMap {
 public:
  const Id* find(std::uint64_t id) const {
    // An id may have gone to the sparse side before the table grew past it.
    if (id < dense_.size() && dense_[id].second) return &dense_[id].first;
    const auto it = sparse_.find(id);
    return it == sparse_.end() ? nullptr : &it->second;
  }
  void insert(std::uint64_t id, Id value) {
    if (id <= dense_.size() * 2 + 4096 && id < (std::uint64_t{1} << 28)) {
      if (id >= dense_.size()) dense_.resize(id * 2 + 64);
      dense_[id] = {value, true};
    } else {
      sparse_[id] = value;
    }
  }

 private:
  std::vector<std::pair<Id, bool>> dense_;
  std::unordered_map<std::uint64_t, Id> sparse_;
};

}  // namespace swaplab
