#include "trace/import/execution_trace.hpp"

#include <simdjson.h>

#include <algorithm>
#include <set>

#include "trace/error.hpp"
#include "trace/import/json_elements.hpp"
#include "trace/import/sum.hpp"

namespace swaplab::execution_trace {
namespace {

namespace dom = simdjson::dom;
using kineto::kNoIndex;

constexpr int kMaxNesting = 32;                             // lists of lists of tensors
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 50;  // bytes

class Reader {
 public:
  Reader(std::string name, Graph& graph) : name_(std::move(name)), g_(graph) {}

  void node(std::string_view text, std::uint64_t offset) {
    dom::element element;
    dom::object object;
    if (parser_.parse(text.data(), text.size()).get(element) != simdjson::SUCCESS) {
      const std::string fault = json_error(text, offset);
      throw Error(ErrorKind::input, name_ + ": " +
                                        (fault.empty() ? "byte " + std::to_string(offset) +
                                                             ": expected a node nested at most 1024 deep"
                                                       : fault));
    }
    if (element.get(object) != simdjson::SUCCESS) fail(offset, "a node object");
    std::uint64_t id = 0;
    if (object["id"].get(id) != simdjson::SUCCESS) fail(offset, "a node with an integer 'id'");
    Node n{id, 0, 0, 0, 0, {}, {}};
    std::string_view word;
    if (object["name"].get(word) == simdjson::SUCCESS) n.name = g_.texts.intern(word);
    if (word.find("ackward") != std::string_view::npos) ++g_.named_backward;
    dom::element inputs, outputs, attributes;
    const bool has_inputs = object["inputs"].get(inputs) == simdjson::SUCCESS;
    const bool has_outputs = object["outputs"].get(outputs) == simdjson::SUCCESS;
    if (object["parent"].get(n.parent) != simdjson::SUCCESS) {
      g_.nested |= object["ctrl_deps"].get(n.parent) == simdjson::SUCCESS;
    }
    if (object["rf_id"].get(n.record) != simdjson::SUCCESS) n.record = 0;
    if (object["op_schema"].get(word) == simdjson::SUCCESS) n.schema = g_.texts.intern(word);
    dom::array list;
    if (object["attrs"].get(attributes) == simdjson::SUCCESS && attributes.get(list) == simdjson::SUCCESS) {
      for (const dom::element attribute : list) {
        std::string_view key;
        if (attribute["name"].get(key) != simdjson::SUCCESS) continue;
        if (key == "rf_id" && attribute["value"].get(n.record) != simdjson::SUCCESS) n.record = 0;
        if (key == "op_schema" && attribute["value"].get(word) == simdjson::SUCCESS)
          n.schema = g_.texts.intern(word);
      }
    }
    if (has_inputs) tensors(inputs, n.inputs);
    if (has_outputs) tensors(outputs, n.outputs);
    g_.nodes.push_back(std::move(n));
  }

  void finish() {
    std::stable_sort(g_.nodes.begin(), g_.nodes.end(),
                     [](const Node& a, const Node& b) { return a.id < b.id; });
    for (std::size_t i = 1; i < g_.nodes.size(); ++i) {
      if (g_.nodes[i].id == g_.nodes[i - 1].id)
        throw Error(ErrorKind::input,
                    name_ + ": node id " + std::to_string(g_.nodes[i].id) + " occurs twice");
    }
    g_.parent.assign(g_.nodes.size(), kNoIndex);
    g_.children.assign(g_.nodes.size(), 0);
    for (std::size_t i = 0; i < g_.nodes.size(); ++i) {
      const Node& n = g_.nodes[i];
      g_.max_id = std::max(g_.max_id,
                           static_cast<std::int64_t>(std::min<std::uint64_t>(n.id, std::uint64_t{1} << 62)));
      const auto found = std::lower_bound(g_.nodes.begin(), g_.nodes.end(), n.parent,
                                          [](const Node& a, std::uint64_t id) { return a.id < id; });
      if (n.parent == n.id) continue;  // the root is its own parent
      if (found == g_.nodes.end() || found->id != n.parent) {
        ++g_.missing_parents;
        continue;
      }
      g_.parent[i] = static_cast<std::uint32_t>(found - g_.nodes.begin());
      ++g_.children[g_.parent[i]];
    }
    no_cycles();
    std::unordered_map<std::uint64_t, std::int64_t> extents;
    std::set<std::uint64_t> ids;
    for (const Node& n : g_.nodes) {
      for (const auto* list : {&n.inputs, &n.outputs}) {
        for (const TensorUse& use : *list) {
          ids.insert(use.tensor);
          std::int64_t& extent = extents[use.storage];
          extent = std::max(extent, use.extent);
        }
      }
    }
    g_.tensors = static_cast<std::int64_t>(ids.size());
    g_.storages = static_cast<std::int64_t>(extents.size());
    for (const auto& [storage, extent] : extents) add_checked(g_.extent_bytes, extent);
  }

 private:
  [[noreturn]] void fail(std::uint64_t offset, const char* expected) const {
    throw Error(ErrorKind::input, name_ + ": byte " + std::to_string(offset) + ": expected " + expected);
  }

  void tensors(dom::element side, std::vector<TensorUse>& into) {
    dom::element values = side;
    if (side.is_object() && side["values"].get(values) != simdjson::SUCCESS) return;
    dom::array list;
    if (values.get(list) != simdjson::SUCCESS) return;
    std::uint32_t argument = 0;
    for (const dom::element value : list) collect(value, argument++, 0, into);
  }

  // [tensor id, storage id, offset, elements, bytes of one, device] or a list of such.
  void collect(dom::element value, std::uint32_t argument, int depth, std::vector<TensorUse>& into) {
    dom::array list;
    if (depth > kMaxNesting || value.get(list) != simdjson::SUCCESS) return;
    std::uint64_t number[5] = {};
    std::size_t numbers = 0, place = 0;
    std::string_view device;
    bool tensor = false;
    for (const dom::element item : list) {
      if (place < 5 && numbers == place && item.get(number[place]) == simdjson::SUCCESS) ++numbers;
      if (place == 5) tensor = numbers == 5 && item.get(device) == simdjson::SUCCESS;
      if (++place > 5) break;
    }
    if (!tensor) {
      for (const dom::element item : list) {
        if (item.is_array()) collect(item, argument, depth + 1, into);
      }
      return;
    }
    const std::uint64_t limit = static_cast<std::uint64_t>(kMaxExtent);
    if (number[2] > limit || number[3] > limit || number[4] > 4096 ||
        (number[2] + number[3]) * number[4] > limit) {
      ++g_.bad_tensors;
      return;
    }
    into.push_back({number[0], number[1], static_cast<std::int64_t>((number[2] + number[3]) * number[4]),
                    argument, !device.empty() && device != "cpu"});
  }

  void no_cycles() const {
    std::vector<std::uint8_t> state(g_.nodes.size(), 0);  // 1: on the way, 2: leads to a root
    std::vector<std::uint32_t> way;
    for (std::uint32_t i = 0; i < g_.nodes.size(); ++i) {
      std::uint32_t at = i;
      while (at != kNoIndex && state[at] == 0) {
        state[at] = 1;
        way.push_back(at);
        at = g_.parent[at];
      }
      if (at != kNoIndex && state[at] == 1)
        throw Error(ErrorKind::input,
                    name_ + ": the parents of node " + std::to_string(g_.nodes[at].id) + " form a cycle");
      for (const std::uint32_t row : way) state[row] = 2;
      way.clear();
    }
  }

  std::string name_;
  Graph& g_;
  dom::parser parser_;
};

}  // namespace

Graph read_graph(const ImportInput& input) {
  Graph graph;
  Reader reader(input.name(), graph);
  const auto source = input.open();
  static constexpr std::string_view arrays[] = {"nodes"};
  JsonVisitor visitor;
  visitor.element = [&](std::string_view, std::string_view text, std::uint64_t offset) {
    reader.node(text, offset);
  };
  visitor.member = [&](std::string_view key, std::string_view text) {
    if (key == "schema" && text.size() >= 2) graph.schema = std::string(text.substr(1, text.size() - 2));
  };
  read_json_elements(*source, input.name(), arrays, visitor);
  reader.finish();
  return graph;
}

}  // namespace swaplab::execution_trace
