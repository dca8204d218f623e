// How iteration and micro-batch marks may follow each other (private to trace/).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trace/model.hpp"

namespace swaplab {

// Fed every mark in program order; collects the iterations. Throws Error(input) when marks do not nest,
// numbers do not increase, or a text is not one the mark can have (schema v1, `mark`).
class IterationMarks {
 public:
  // `gap`: the operator that comes next.
  void add(MarkKind kind, std::string_view text, std::int64_t number, std::uint32_t gap);
  // After the last mark: nothing may be open.
  void finish() const;
  std::vector<Iteration>& iterations() { return iterations_; }

 private:
  std::vector<Iteration> iterations_;
  bool in_iteration_ = false, in_micro_ = false;
};

// Schema v1 name of a mark; "" for MarkKind::other, whose text is its name.
std::string_view mark_name(MarkKind kind);

}  // namespace swaplab
