// Python pickles without Python: only the opcodes that build plain values; nothing is ever executed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace swaplab {

using PickleId = std::uint32_t;
inline constexpr PickleId kNoPickle = 0xffffffffu;

enum class PickleKind : std::uint8_t { none, boolean, integer, wide_integer, real, text, list, tuple, dict };

// A parsed pickle. Values may be shared, and containers may contain themselves: do not walk blindly.
// `bytes` must outlive it. Memory is bounded by a multiple of its length.
class Pickle {
 public:
  // Throws Error(input) with `name` and the byte: an opcode that would import or call something, an
  // operand beyond the end, a stack that does not fit, no STOP.
  Pickle(std::string_view bytes, const std::string& name);

  PickleId root() const { return root_; }
  PickleKind kind(PickleId id) const { return id == kNoPickle ? PickleKind::none : nodes_[id].kind; }
  // Items of a list or tuple; keys and values by turns of a dict. 0 for anything else.
  std::size_t size(PickleId id) const;
  PickleId item(PickleId id, std::size_t i) const { return items_[nodes_[id].value][i]; }
  // The value of a dict's text key, the last one if it repeats; kNoPickle when absent or no dict.
  PickleId find(PickleId dict, std::string_view key) const;
  // `absent` for anything but an integer (booleans count) of 64 bits.
  std::int64_t integer(PickleId id, std::int64_t absent) const;
  std::string_view text(PickleId id) const;  // "" for anything but a text

 private:
  struct Node {
    PickleKind kind;
    std::uint64_t value;       // integer, row of items_, or offset of a text in bytes_
    std::uint64_t length = 0;  // of a text
  };
  class Machine;

  std::string_view bytes_;
  std::vector<Node> nodes_;
  std::vector<std::vector<PickleId>> items_;
  PickleId root_ = kNoPickle;
};

}  // namespace swaplab
