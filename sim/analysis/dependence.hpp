// Which operator must follow which, and the longest chain of them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/program.hpp"

namespace swaplab {

struct OpInterval {
  std::uint32_t first = 0, end = 0;  // half-open
};

// Operators of an interval as nodes 0 .. size()-1 (node i is operator first + i).
struct DependenceGraph {
  enum class Kind : std::uint8_t {
    data,  // the second reads what the first wrote
    reuse  // the second overwrites what the first read or wrote
  };
  struct Edge {
    std::uint32_t from, to;  // nodes, from < to
    Kind kind;               // data, if both
    bool operator==(const Edge&) const = default;
  };
  OpInterval operators;
  std::vector<Edge> edges;  // ascending by (from, to), each pair once
  std::uint32_t size() const { return operators.end - operators.first; }
};

// Through storages only: streams, events and the host's order are what a machine adds. Views are no accesses,
// so they have no edges. A write follows the last write and all reads since; a read follows the last write.
DependenceGraph build_dependences(const Program& program, OpInterval operators);

// Nodes so that every edge leads forward (Boost.Graph). Throws Error(invariant) on a cycle.
std::vector<std::uint32_t> topological_order(const DependenceGraph& graph);

struct CriticalPath {
  Nanos length{0};                       // device time along the path: no number of streams does better
  Nanos work{0};                         // device time of all operators
  std::vector<std::uint32_t> operators;  // of the program, in order
};
// The longest chain by device time, over data edges only or over all.
CriticalPath critical_path(const Program& program, const DependenceGraph& graph, bool data_only);

}  // namespace swaplab
