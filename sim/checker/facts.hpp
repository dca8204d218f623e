// What a trace says about device storages, derived for the checker alone: no code is shared with the
// replay form of the engine (sim/program.cpp), so that an error in one shows against the other.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/model.hpp"

namespace swaplab::checker {

// One life of a device storage: from birth to death, or from resize to resize.
struct Life {
  std::uint32_t storage;
  Bytes bytes;
  std::uint32_t birth;           // gap; 0 for initial ones
  std::uint32_t death = kNever;  // gap; kNever: lives to the end
  bool initial = false;          // lives, with content, before the first operator
};

struct Use {
  std::uint32_t life;
  bool reads = false, writes = false;
  bool creates = false;  // the operator produces the content: it needs none
};

struct IterationRange {
  std::int64_t number;
  IterationKind kind;
  std::uint32_t first, end;  // operators
};

struct Facts {
  std::vector<Life> lives;                       // in order of birth
  std::vector<std::uint32_t> lives_begin;        // per storage, storages + 1
  std::vector<std::uint32_t> lives_of;           // rows: lives of a storage in order
  std::vector<std::uint32_t> use_begin;          // per operator, operators + 1
  std::vector<Use> uses;                         // each life once per operator
  std::vector<std::vector<std::uint32_t>> born;  // per gap (not the initial ones)
  std::vector<std::vector<std::uint32_t>> dead;  // per gap
  std::vector<IterationRange> iterations;        // cover all operators, in order

  std::uint32_t op_count() const { return static_cast<std::uint32_t>(use_begin.size() - 1); }
  std::span<const Use> uses_of(std::uint32_t op) const {
    return {uses.data() + use_begin[op], uses.data() + use_begin[op + 1]};
  }
  std::span<const std::uint32_t> lives_of_storage(std::uint32_t storage) const {
    return {lives_of.data() + lives_begin[storage], lives_of.data() + lives_begin[storage + 1]};
  }
};

// The rules are those stated above compile_program() in sim/program.hpp.
Facts derive_facts(const Trace& trace);

}  // namespace swaplab::checker
