#include "sim/analysis/dependence.hpp"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/topological_sort.hpp>
#include <unordered_map>

#include "trace/error.hpp"

namespace swaplab {
namespace {

using Graph = boost::compressed_sparse_row_graph<boost::directedS>;

Graph boost_graph(const DependenceGraph& graph, bool data_only) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  pairs.reserve(graph.edges.size());
  for (const DependenceGraph::Edge& e : graph.edges) {
    if (!data_only || e.kind == DependenceGraph::Kind::data) pairs.emplace_back(e.from, e.to);
  }
  return {boost::edges_are_sorted, pairs.begin(), pairs.end(), graph.size()};
}

std::vector<std::uint32_t> sorted_nodes(const Graph& graph) {
  std::vector<Graph::vertex_descriptor> reversed;
  reversed.reserve(boost::num_vertices(graph));
  try {
    boost::topological_sort(graph, std::back_inserter(reversed));
  } catch (const boost::not_a_dag&) {
    throw Error(ErrorKind::invariant, "the dependence graph has a cycle");
  }
  std::vector<std::uint32_t> order;
  order.reserve(reversed.size());
  for (auto it = reversed.rbegin(); it != reversed.rend(); ++it)
    order.push_back(static_cast<std::uint32_t>(*it));
  return order;
}

struct LastAccesses {
  std::uint32_t writer = kNever;
  std::vector<std::uint32_t> readers;  // since the write
};

}  // namespace

DependenceGraph build_dependences(const Program& program, OpInterval operators) {
  using Kind = DependenceGraph::Kind;
  DependenceGraph graph;
  graph.operators = operators;
  std::unordered_map<std::uint32_t, LastAccesses> last;
  for (std::uint32_t op = operators.first; op < operators.end; ++op) {
    const std::uint32_t node = op - operators.first;
    for (const Access& access : program.accesses_of(op)) {
      LastAccesses& l = last[index(access.slot)];
      if (l.writer != kNever)
        graph.edges.push_back({l.writer, node, (access.flags & kRead) != 0 ? Kind::data : Kind::reuse});
      if ((access.flags & kWrite) != 0) {
        for (const std::uint32_t reader : l.readers) graph.edges.push_back({reader, node, Kind::reuse});
        l.writer = node;
        l.readers.clear();
      } else {
        l.readers.push_back(node);
      }
    }
  }
  std::sort(graph.edges.begin(), graph.edges.end(), [](const auto& a, const auto& b) {
    return a.from != b.from ? a.from < b.from : a.to != b.to ? a.to < b.to : a.kind < b.kind;
  });
  const auto same = [](const auto& a, const auto& b) { return a.from == b.from && a.to == b.to; };
  graph.edges.erase(std::unique(graph.edges.begin(), graph.edges.end(), same), graph.edges.end());
  return graph;
}

std::vector<std::uint32_t> topological_order(const DependenceGraph& graph) {
  return sorted_nodes(boost_graph(graph, false));
}

CriticalPath critical_path(const Program& program, const DependenceGraph& graph, bool data_only) {
  const Graph g = boost_graph(graph, data_only);
  std::vector<Nanos> finish(graph.size());
  std::vector<std::uint32_t> before(graph.size(), kNever);
  std::vector<Nanos> start(graph.size(), Nanos{0});
  CriticalPath path;
  std::uint32_t last = kNever;
  for (const std::uint32_t node : sorted_nodes(g)) {
    const Nanos time = program.device_time[graph.operators.first + node];
    path.work += time;
    finish[node] = start[node] + time;
    // The smaller node among equals, so that the path does not depend on the order of the sort.
    const bool longer =
        last == kNever || finish[node] > finish[last] || (finish[node] == finish[last] && node < last);
    if (longer) last = node;
    for (auto [edge, end] = boost::out_edges(Graph::vertex_descriptor{node}, g); edge != end; ++edge) {
      const auto to = static_cast<std::uint32_t>(boost::target(*edge, g));
      const bool later = finish[node] > start[to] || before[to] == kNever ||
                         (finish[node] == start[to] && node < before[to]);
      if (!later) continue;
      start[to] = std::max(start[to], finish[node]);
      before[to] = node;
    }
  }
  if (last == kNever) return path;
  path.length = finish[last];
  for (std::uint32_t node = last; node != kNever; node = before[node])
    path.operators.push_back(graph.operators.first + node);
  std::reverse(path.operators.begin(), path.operators.end());
  return path;
}

}  // namespace swaplab
