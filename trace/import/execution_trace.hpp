// The nodes of a PyTorch ExecutionTrace (JSON, schema 1.0.1 to 1.1.1, both layouts).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/import/input.hpp"
#include "trace/import/kineto_events.hpp"
#include "trace/import/storage_lives.hpp"

namespace swaplab::execution_trace {

struct Node {
  std::uint64_t id, parent;
  std::uint32_t name, schema;  // texts
  std::uint64_t record = 0;    // rf_id
  std::vector<TensorUse> inputs, outputs;
};

struct Graph {
  kineto::Texts texts;
  std::vector<Node> nodes;              // by id, which is the order of their begin
  std::vector<std::uint32_t> parent;    // row; kNoIndex for a root
  std::vector<std::uint32_t> children;  // how many
  std::string schema;
  bool nested = false;  // inputs.values and attrs instead of flat keys
  std::int64_t tensors = 0, storages = 0, extent_bytes = 0, named_backward = 0, missing_parents = 0,
               max_id = 0;
  std::int64_t bad_tensors = 0;
};

// Throws Error(input): malformed JSON, a node without an id, an id that occurs twice, parents in a cycle.
Graph read_graph(const ImportInput& input);

}  // namespace swaplab::execution_trace
