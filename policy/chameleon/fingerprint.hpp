// How tensors are recognised across iterations that give them no common identity (multi-feature fuzzy
// matching): use count, the set of operators that used it, the last eight of them and the last eight
// argument positions. Operators outside the 64 most frequent names contribute zeros; that is the tolerance.
// The public fingerprint also holds the dtype, which the simulator's operands do not carry.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/chameleon/profile.hpp"
#include "sim/program.hpp"

namespace swaplab::chameleon {

struct Fingerprint {
  std::uint32_t uses = 0;
  std::uint64_t operators = 0;       // one bit per frequent operator
  std::uint64_t last_operators = 0;  // eight indices of 8 bits, newest lowest; 0: not frequent
  std::uint64_t last_arguments = 0;  // likewise, argument position + 1
  auto operator<=>(const Fingerprint&) const = default;

  void use(std::uint32_t frequent, std::uint32_t argument) {  // frequent: 1..64, 0 none
    ++uses;
    if (frequent != 0) operators |= std::uint64_t{1} << (frequent - 1);
    last_operators = last_operators << 8 | frequent;
    last_arguments = last_arguments << 8 | (frequent == 0 ? 0 : std::uint64_t{argument % 255 + 1});
  }
};

// Per token: 1..64 for the most frequent names of the profile (ties: smaller token), else 0.
std::vector<std::uint8_t> frequent_operators(std::span<const std::uint32_t> tokens);

// Fingerprints of all live tensors in the running iteration. Tensors that outlive an iteration start anew
// with the next one (what the public code does with them is not documented).
class Fingerprints {
 public:
  void begin_iteration() { ++epoch_; }
  void set_operators(std::vector<std::uint8_t> frequent) { frequent_ = std::move(frequent); }
  const Fingerprint& use(Slot slot, std::uint32_t token, std::uint32_t argument) {
    const std::uint32_t s = index(slot);
    if (s >= prints_.size()) prints_.resize(s + 1);
    Entry& entry = prints_[s];
    if (entry.epoch != epoch_) entry = {epoch_, {}};
    entry.print.use(token < frequent_.size() ? frequent_[token] : 0U, argument);
    return entry.print;
  }

 private:
  struct Entry {
    std::uint32_t epoch = 0;
    Fingerprint print;
  };
  std::vector<Entry> prints_;  // by slot
  std::vector<std::uint8_t> frequent_;
  std::uint32_t epoch_ = 0;
};

}  // namespace swaplab::chameleon
