// Chakra's protobuf form: messages behind their lengths, read one at a time. The wire format is left to the
// protobuf library (packed and unpacked lists, unknown fields, every integer encoding); memory is that of one
// message, because the lengths are read here.
#include <algorithm>
#include <limits>

#include "trace/error.hpp"
#include "trace/import/chakra.pb.h"
#include "trace/import/chakra_read.hpp"
#include "trace/import/utf8.hpp"

namespace swaplab::chakra {
namespace {

constexpr std::uint64_t kMaxMessage = std::uint64_t{64} << 20;  // bytes

class Messages {
 public:
  explicit Messages(const ImportInput& input) : source_(input.open()), name_(input.name()) {}

  // The next message's bytes; false at the end of the file.
  bool next(std::string& message) {
    std::uint64_t length = 0;
    start_ = offset_;
    for (int shift = 0;; shift += 7) {
      unsigned char byte = 0;
      if (!take(reinterpret_cast<char*>(&byte), 1)) {
        if (shift == 0) return false;
        fail(offset_, "the file ends inside the length of a message");
      }
      if (shift > 28) fail(start_, "expected the length of a message, up to 64 MiB");
      length |= static_cast<std::uint64_t>(byte & 127u) << shift;
      if (byte < 128) break;
    }
    if (length > kMaxMessage)
      fail(start_, "expected the length of a message up to 64 MiB, found " + std::to_string(length) + " B");
    start_ = offset_;
    message.clear();
    while (message.size() < length) {  // in steps, so that a wrong length costs no memory
      const std::size_t old = message.size(),
                        step = std::min<std::size_t>(length - old, std::size_t{1} << 16);
      message.resize(old + step);
      if (!take(message.data() + old, step))
        fail(offset_, "the file ends inside a message of " + std::to_string(length) + " B");
    }
    return true;
  }
  [[noreturn]] void fail(std::uint64_t offset, const std::string& what) const {
    throw Error(ErrorKind::input, name_ + ": byte " + std::to_string(offset) + ": " + what);
  }
  std::uint64_t start() const { return start_; }

 private:
  bool take(char* into, std::size_t size) {
    while (size != 0) {
      if (begin_ == end_) {
        begin_ = 0;
        end_ = source_->read(buffer_, sizeof buffer_);
        if (end_ == 0) return false;
      }
      const std::size_t part = std::min(size, end_ - begin_);
      std::copy_n(buffer_ + begin_, part, into);
      begin_ += part;
      offset_ += part;
      into += part;
      size -= part;
    }
    return true;
  }

  std::unique_ptr<ByteSource> source_;
  std::string name_;
  char buffer_[1 << 16];
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t offset_ = 0, start_ = 0;
};

std::int64_t clamped(std::uint64_t value) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(value, std::numeric_limits<std::int64_t>::max()));
}

std::int64_t number_of(const chakra_wire::Attribute& a) {
  switch (a.value_case()) {
    case chakra_wire::Attribute::kInt32Val:
      return a.int32_val();
    case chakra_wire::Attribute::kInt64Val:
      return a.int64_val();
    case chakra_wire::Attribute::kUint32Val:
      return a.uint32_val();
    case chakra_wire::Attribute::kUint64Val:
      return clamped(a.uint64_val());
    case chakra_wire::Attribute::kSint32Val:
      return a.sint32_val();
    case chakra_wire::Attribute::kSint64Val:
      return a.sint64_val();
    case chakra_wire::Attribute::kFixed32Val:
      return a.fixed32_val();
    case chakra_wire::Attribute::kFixed64Val:
      return clamped(a.fixed64_val());
    case chakra_wire::Attribute::kSfixed32Val:
      return a.sfixed32_val();
    case chakra_wire::Attribute::kSfixed64Val:
      return a.sfixed64_val();
    case chakra_wire::Attribute::kBoolVal:
      return a.bool_val() ? 1 : 0;
    default:
      return 0;
  }
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

bool looks_like_protobuf(std::string_view head) {
  std::size_t at = 0;
  const auto varint = [&](std::uint64_t& value) {
    value = 0;
    for (int shift = 0; at < head.size() && shift <= 28; shift += 7) {
      const auto byte = static_cast<unsigned char>(head[at++]);
      value |= static_cast<std::uint64_t>(byte & 127u) << shift;
      if (byte < 128) return true;
    }
    return false;
  };
  std::uint64_t message = 0, field = 0;
  if (!varint(message) || message < 2 || message > kMaxMessage || at + 2 >= head.size()) return false;
  const char tag = head[at++];
  if (!varint(field) || field + 2 > message) return false;
  if (tag == '\x0a') {  // the version, as "0.0.4"
    const std::string_view version = head.substr(at, field);
    return field <= 32 && version.size() == field && !version.empty() && version[0] >= '0' &&
           version[0] <= '9' && is_printable(version);
  }
  // An attribute, which begins with its name.
  if (tag != '\x12' || at + 1 >= head.size() || head[at] != '\x0a') return false;
  ++at;
  if (!varint(field) || field == 0 || field > 64) return false;
  const std::string_view name = head.substr(at, field);
  return name.size() == field && is_printable(name);
}

Graph read_protobuf(const ImportInput& input) {
  Graph graph;
  Messages messages(input);
  std::string bytes;
  chakra_wire::GlobalMetadata metadata;
  if (!messages.next(bytes) || !metadata.ParseFromString(bytes))
    messages.fail(messages.start(), "expected a GlobalMetadata message of Chakra's schema");
  graph.version = mend_utf8(metadata.version(), graph.bad_utf8);
  for (const chakra_wire::Attribute& a : metadata.attr()) {
    if (a.name() == "schema" && graph.version.empty())
      graph.version = mend_utf8(a.string_val(), graph.bad_utf8);
  }
  chakra_wire::Node wire;
  while (messages.next(bytes)) {
    if (!wire.ParseFromString(bytes))
      messages.fail(messages.start(), "expected a Node message of Chakra's schema");
    Node node;
    node.id = wire.id();
    node.name = graph.texts.intern(mend_utf8(wire.name(), graph.bad_utf8));
    if (wire.type() < 0 || wire.type() > static_cast<int>(NodeType::collective))
      messages.fail(messages.start(), "expected a node type from 0 to 7, found " +
                                          std::to_string(wire.type()) + " in node " +
                                          std::to_string(node.id));
    node.type = static_cast<NodeType>(wire.type());
    if (wire.duration_micros() > static_cast<std::uint64_t>(kMaxDurationUs))
      messages.fail(messages.start(), "node " + std::to_string(node.id) + " lasts " +
                                          std::to_string(wire.duration_micros()) +
                                          " us, expected at most 2^43");
    node.duration_us = static_cast<std::int64_t>(wire.duration_micros());
    graph.without_duration += wire.duration_micros() == 0 ? 1 : 0;
    node.control.assign(wire.ctrl_deps().begin(), wire.ctrl_deps().end());
    node.data.assign(wire.data_deps().begin(), wire.data_deps().end());
    tensors_of_text(wire.inputs().values(), node.inputs, graph.bad_tensors);
    tensors_of_text(wire.outputs().values(), node.outputs, graph.bad_tensors);
    for (const chakra_wire::Attribute& a : wire.attr()) {
      take_attribute(graph, node, a.name(), number_of(a),
                     a.string_val().empty() ? std::string() : mend_utf8(a.string_val(), graph.bad_utf8));
    }
    graph.nodes.push_back(std::move(node));
  }
  order_nodes(graph, input.name());
  return graph;
}

}  // namespace swaplab::chakra
