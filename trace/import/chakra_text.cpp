// What both forms of a Chakra trace share: argument lists as text, and order and uniqueness of ids.
#include <algorithm>

#include "trace/error.hpp"
#include "trace/import/chakra_read.hpp"
#include "trace/import/decimal.hpp"

namespace swaplab::chakra {
namespace {

constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 50;  // bytes

// The items of the innermost list, as far as they can be a tensor.
struct Items {
  std::uint64_t number[5] = {};
  std::size_t count = 0;
  bool tensor = true;
  std::string_view device;

  void add(std::string_view item, bool quoted) {
    if (count < 5) {
      const auto value = unsigned_integer(item);
      tensor &= value.has_value() && !quoted;
      number[count] = value.value_or(0);
    } else if (count == 5) {
      tensor &= quoted;
      device = item;
    }
    ++count;
  }
};

}  // namespace

void tensors_of_text(std::string_view text, std::vector<TensorUse>& into, std::int64_t& bad) {
  std::uint32_t argument = 0;
  std::size_t depth = 0;
  Items items;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '[' || c == '(') {
      ++depth;
      items = {};
      ++i;
    } else if (c == ']' || c == ')') {
      if (items.tensor && items.count >= 6) {
        const auto& n = items.number;
        if (n[2] > kMaxExtent || n[3] > kMaxExtent || n[4] > 4096 || (n[2] + n[3]) * n[4] > kMaxExtent) {
          ++bad;
        } else {
          into.push_back({n[0], n[1], static_cast<std::int64_t>((n[2] + n[3]) * n[4]), argument,
                          !items.device.empty() && items.device != "cpu"});
        }
      }
      items = {};
      items.tensor = false;  // what follows in the list around it
      depth -= depth > 0 ? 1 : 0;
      ++i;
    } else if (c == ',') {
      argument += depth == 1 ? 1 : 0;
      ++i;
    } else if (c == '\'' || c == '"') {
      const auto end = text.find(c, i + 1);
      items.add(text.substr(i + 1, end == std::string_view::npos ? end : end - i - 1), true);
      i = end == std::string_view::npos ? text.size() : end + 1;
    } else if (c == ' ') {
      ++i;
    } else {
      const auto end = std::min(text.find_first_of("[](), '\"", i), text.size());
      items.add(text.substr(i, end - i), false);
      i = end;
    }
  }
}

void order_nodes(Graph& graph, const std::string& name) {
  std::stable_sort(graph.nodes.begin(), graph.nodes.end(),
                   [](const Node& a, const Node& b) { return a.id < b.id; });
  for (std::size_t i = 1; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].id == graph.nodes[i - 1].id)
      throw Error(ErrorKind::input,
                  name + ": node id " + std::to_string(graph.nodes[i].id) + " occurs twice");
  }
}

void take_attribute(Graph& graph, Node& node, std::string_view name, std::int64_t number,
                    std::string_view text) {
  if (name == "is_cpu_op") {
    node.side = number != 0 ? Side::host : Side::device;
  } else if (name == "tid") {
    node.thread = number;
  } else if (name == "rf_id") {
    node.record = number;
  } else if (name == "comm_size") {
    node.communicated_bytes = std::clamp<std::int64_t>(number, 0, kMaxBytes);
  } else if (name == "fw_tid") {
    node.for_backward |= number > 0;
  } else if (name == "scope") {
    node.for_backward |= number == 1;  // RecordScope::BACKWARD_FUNCTION
  } else if (name == "op_schema") {
    node.schema = graph.texts.intern(text);
  }
}

}  // namespace swaplab::chakra
