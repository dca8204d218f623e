// Layers of a model, found by the names of its parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/perturb/dataflow.hpp"

namespace swaplab {

// Parameters "<prefix>.<number>.<rest>" of the most frequent prefix belong to block <number>. A block's
// forward span runs from the first forward operator that reads one of its parameters to the one before the
// first that reads another's.
struct Block {
  std::int64_t number = 0;
  std::uint32_t first = 0, end = 0;  // nodes of the dataflow, half-open
  // The largest storage of its own that forward operators behind it read (others are auxiliary losses), and
  // the first one from before it that it reads and that has this size. kNever where there is none.
  StorageId input{kNever}, output{kNever};
  std::vector<StorageId> made;  // in the span
};

// Once per micro-batch, in program order. Empty where no parameter has such a name.
std::vector<Block> find_blocks(const EditableTrace& edit, const Dataflow& flow);

// Takes the blocks out, backward and optimizer operators included; the input of each stands for its output.
// Blocks whose output is not of their input's size stay. Logs into the open change.
void drop_blocks(EditableTrace& edit, std::size_t iteration, const std::vector<std::int64_t>& numbers);

}  // namespace swaplab
