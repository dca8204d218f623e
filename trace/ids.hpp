// Dense 32-bit ids. Distinct types, so that an operator index is never taken for a storage.
#pragma once

#include <cstdint>
#include <limits>

namespace swaplab {

enum class StorageId : std::uint32_t {};
enum class OpId : std::uint32_t {};  // index into the operator columns, program order
enum class SigId : std::uint32_t {};
enum class NameId : std::uint32_t {};  // 0 is the empty string

// An id as an array index.
template <class Id>
constexpr std::uint32_t index(Id id) {
  return static_cast<std::uint32_t>(id);
}

constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

}  // namespace swaplab
