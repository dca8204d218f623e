// The nodes of an MLCommons Chakra trace, from its protobuf form or the JSON dialect.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/import/importer.hpp"
#include "trace/import/kineto_events.hpp"
#include "trace/import/storage_lives.hpp"

namespace swaplab::chakra {

// Node types of the schema.
enum class NodeType : std::uint8_t {
  invalid,
  metadata,
  memory_load,
  memory_store,
  compute,
  send,
  receive,
  collective
};

enum class Side : std::uint8_t { unknown, host, device };  // attribute is_cpu_op

struct Node {
  std::uint64_t id = 0;
  std::uint32_t name = 0, schema = 0;  // texts
  NodeType type = NodeType::invalid;
  Side side = Side::unknown;
  std::int64_t duration_us = 0, thread = -1, communicated_bytes = -1, record = -1;
  bool for_backward = false;  // fw_tid is not 0, or the scope is the backward pass
  std::vector<std::uint64_t> control, data;
  std::vector<TensorUse> inputs, outputs;
};

struct Graph {
  kineto::Texts texts;
  std::vector<Node> nodes;  // by id, which is the order of their begin where PyTorch recorded them
  std::string version;
  bool json = false;
  std::int64_t bad_tensors = 0, bad_utf8 = 0, without_duration = 0;
};

// Tensors of an argument list as Chakra writes it: Python's text of nested lists, in which a tensor is
// [tensor id, storage id, offset, elements, bytes of one, 'device']. Anything else counts as no tensor.
void tensors_of_text(std::string_view text, std::vector<TensorUse>& into, std::int64_t& bad);

// Both throw Error(input): file, byte and what was expected, an id that occurs twice.
Graph read_protobuf(const ImportInput& input);
Graph read_json(const ImportInput& input);

// Whether these first bytes look like a length-delimited GlobalMetadata.
bool looks_like_protobuf(std::string_view head);

// Operators, storages and times of the graph.
ImportResult import_graph(const Graph& graph);

}  // namespace swaplab::chakra
