// Ground truth of a perturbed trace: what was changed, where.
//
// The marks are the array "perturbations" of the trace's header. Every format keeps the header, and no
// policy is ever shown it; only evaluation reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/model.hpp"

namespace swaplab {

// One change of one iteration. Operators are numbered as in the trace that carries the mark. An operator
// counts as altered when its name, signature, phase or times are others, not when only a storage that it
// reads is.
struct PerturbationMark {
  std::string kind;            // name of the perturbation
  std::int64_t iteration = 0;  // number in this trace
  // Operators that are new or altered lie in first_op .. last_op, both ends among them. Where operators
  // were only taken away, first_op is the one that follows the gap and last_op = first_op - 1.
  std::int64_t first_op = 0, last_op = 0;
  std::int64_t changed = 0, removed = 0;  // operators new or altered, and taken away
  bool operator==(const PerturbationMark&) const = default;
};

// By first operator. Throws Error(input) when the header's array is malformed.
std::vector<PerturbationMark> perturbation_marks(const TraceHeader& header);
// Replaces the header's array; no array for no marks.
void set_perturbation_marks(TraceHeader& header, const std::vector<PerturbationMark>& marks);

}  // namespace swaplab
