// Chakra's JSON dialect: {"workload_graph": [node, ...]}. Writers spell the keys as they like ("Id",
// "ctrlDeps", "data_deps", "runtime"), so letters of either case and underscores are taken alike.
#include <simdjson.h>

#include "trace/error.hpp"
#include "trace/import/chakra_read.hpp"
#include "trace/import/decimal.hpp"
#include "trace/import/json_elements.hpp"

namespace swaplab::chakra {
namespace {

namespace dom = simdjson::dom;

std::string plain_key(std::string_view key) {
  std::string plain;
  for (const char c : key) {
    if (c != '_') plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return plain;
}

class Reader {
 public:
  Reader(std::string name, Graph& graph) : name_(std::move(name)), g_(graph) {}

  void node(std::string_view text, std::uint64_t offset) {
    offset_ = offset;
    dom::element element;
    dom::object object;
    if (parser_.parse(text.data(), text.size()).get(element) != simdjson::SUCCESS) {
      const std::string fault = json_error(text, offset);
      if (fault.empty()) fail("a node nested at most 1024 deep");
      throw Error(ErrorKind::input, name_ + ": " + fault);
    }
    if (element.get(object) != simdjson::SUCCESS) fail("a node object");
    Node n;
    bool has_id = false, has_duration = false;
    for (const auto field : object) {
      const std::string key = plain_key(field.key);
      if (key == "id") {
        has_id = true;
        n.id = static_cast<std::uint64_t>(integer(field.value, "id"));
      } else if (key == "name") {
        std::string_view word;
        if (field.value.get(word) != simdjson::SUCCESS) fail("a text 'Name'");
        n.name = g_.texts.intern(word);
      } else if (key == "nodetype" || key == "type") {
        n.type = type(field.value);
      } else if (key == "ctrldeps" || key == "ctrldep" || key == "parent") {
        ids(field.value, n.control);
      } else if (key == "datadeps" || key == "datadep") {
        ids(field.value, n.data);
      } else if (key == "runtime" || key == "durationmicros") {
        has_duration = true;
        n.duration_us = integer(field.value, "runtime");
        if (n.duration_us > kMaxDurationUs) fail("a 'runtime' of at most 2^43 us");
      } else if (key == "iscpuop") {
        bool host = false;
        if (field.value.get(host) != simdjson::SUCCESS) fail("true or false as 'is_cpu_op'");
        n.side = host ? Side::host : Side::device;
      } else if (key == "commsize" || key == "tid" || key == "rfid") {
        take_attribute(g_, n,
                       key == "commsize" ? "comm_size"
                       : key == "tid"    ? "tid"
                                         : "rf_id",
                       integer(field.value, "a number"), "");
      } else if (key == "inputs" || key == "outputs") {
        dom::element values = field.value;
        if (field.value.is_object() && field.value["values"].get(values) != simdjson::SUCCESS) continue;
        std::string_view words;
        tensors_of_text(values.get(words) == simdjson::SUCCESS ? std::string(words)
                                                               : std::string(simdjson::minify(values)),
                        key == "inputs" ? n.inputs : n.outputs, g_.bad_tensors);
      }
    }
    if (!has_id) fail("a node with an integer 'id'");
    g_.without_duration += has_duration ? 0 : 1;
    g_.nodes.push_back(std::move(n));
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    throw Error(ErrorKind::input, name_ + ": byte " + std::to_string(offset_) + ": expected " + expected);
  }
  std::int64_t integer(dom::element value, const char* what) const {
    std::int64_t number = -1;
    std::string_view digits;
    if (value.get(digits) == simdjson::SUCCESS) {
      number = scaled_decimal(digits, 0).value_or(-1);
    } else if (value.get(number) != simdjson::SUCCESS) {
      number = -1;
    }
    if (number < 0) fail(std::string(what) + " as an integer from 0 to 2^63-1");
    return number;
  }
  NodeType type(dom::element value) const {
    static constexpr std::string_view names[] = {"INVALID_NODE",   "METADATA_NODE", "MEM_LOAD_NODE",
                                                 "MEM_STORE_NODE", "COMP_NODE",     "COMM_SEND_NODE",
                                                 "COMM_RECV_NODE", "COMM_COLL_NODE"};
    std::string_view word;
    if (value.get(word) == simdjson::SUCCESS) {
      for (std::size_t i = 0; i < std::size(names); ++i) {
        if (names[i] == word) return static_cast<NodeType>(i);
      }
      fail("a node type of Chakra");
    }
    const std::int64_t number = integer(value, "a node type");
    if (number > static_cast<std::int64_t>(NodeType::collective)) fail("a node type from 0 to 7");
    return static_cast<NodeType>(number);
  }
  void ids(dom::element value, std::vector<std::uint64_t>& into) const {
    dom::array list;
    if (value.get(list) != simdjson::SUCCESS) fail("a list of node ids");
    for (const dom::element item : list)
      into.push_back(static_cast<std::uint64_t>(integer(item, "a node id")));
  }

  std::string name_;
  Graph& g_;
  dom::parser parser_;
  std::uint64_t offset_ = 0;
};

}  // namespace

Graph read_json(const ImportInput& input) {
  Graph graph;
  graph.json = true;
  Reader reader(input.name(), graph);
  const auto source = input.open();
  static constexpr std::string_view arrays[] = {"workload_graph"};
  JsonVisitor visitor;
  visitor.element = [&](std::string_view, std::string_view text, std::uint64_t offset) {
    reader.node(text, offset);
  };
  visitor.member = [](std::string_view, std::string_view) {};
  read_json_elements(*source, input.name(), arrays, visitor);
  order_nodes(graph, input.name());
  return graph;
}

}  // namespace swaplab::chakra
