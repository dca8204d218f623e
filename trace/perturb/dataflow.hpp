// Who makes and who uses which storage in one iteration.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/perturb/edit.hpp"

namespace swaplab {

// "aten.add_.Tensor" -> "add_".
std::string_view base_name(std::string_view name);

constexpr std::uint32_t kFromBefore = kNever;

struct Dataflow {
  struct Node {
    std::uint32_t item;  // position in the iteration's items
    std::uint32_t op;    // row of the EditableTrace
  };
  struct Uses {
    std::uint32_t made_by = kFromBefore;  // node
    std::vector<std::uint32_t> by;        // nodes that touch it, its maker not among them; ascending
    bool freed = false;                   // the iteration holds a free of it
  };
  Dataflow(const EditableTrace& edit, std::size_t iteration);

  const Uses& uses(StorageId s) const;
  // Storages that the node makes: returned without being an argument.
  std::vector<StorageId> made(const EditableTrace& edit, std::uint32_t node) const;

  std::vector<Node> nodes;
  std::unordered_map<std::uint32_t, Uses> storages;
};

// An operator that only computes new storages from its inputs: no write, no host read, not a view.
bool is_pure(const EditableTrace& edit, const Dataflow& flow, std::uint32_t node);

// The operator can be taken out and its result replaced by one of its inputs, or by nothing. `replaced`
// gets (result, input) pairs.
bool is_removable(const EditableTrace& edit, const Dataflow& flow, std::size_t iteration, std::uint32_t node,
                  std::vector<std::pair<StorageId, StorageId>>& replaced);

// The iteration's operators use `to` wherever they used `from`. Not logged as a change: the operators stay
// what they are.
void replace_uses(EditableTrace& edit, Dataflow& flow, StorageId from, StorageId to);

// Maximal runs of items [first, end) from the first operator of a micro-batch (phase D or F) to the last of
// its backward pass.
struct MicroBatch {
  std::uint32_t first_item, end_item;
};
std::vector<MicroBatch> micro_batches(const EditableTrace& edit, std::size_t iteration);

}  // namespace swaplab
