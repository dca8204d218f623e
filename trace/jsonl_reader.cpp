#include "trace/jsonl_reader.hpp"

#include <simdjson.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <unordered_map>
#include <vector>

#include "trace/builder.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

namespace dom = simdjson::dom;

// File ids are any 64-bit numbers; a flat table serves the usual dense ones.
template <class Id>
class IdMap {
 public:
  const Id* find(std::uint64_t id) const {
    // An id may have gone to the sparse side before the table grew past it.
    if (id < dense_.size() && dense_[id].second) return &dense_[id].first;
    const auto it = sparse_.find(id);
    return it == sparse_.end() ? nullptr : &it->second;
  }
  void insert(std::uint64_t id, Id value) {
    if (id <= dense_.size() * 2 + 4096 && id < (std::uint64_t{1} << 28)) {
      if (id >= dense_.size()) dense_.resize(id * 2 + 64);
      dense_[id] = {value, true};
    } else {
      sparse_[id] = value;
    }
  }

 private:
  std::vector<std::pair<Id, bool>> dense_;
  std::unordered_map<std::uint64_t, Id> sparse_;
};

Phase phase_of(std::string_view letter) {
  static constexpr std::string_view letters = "?IZDFBROE";
  const auto i = letter.size() == 1 ? letters.find(letter[0]) : std::string_view::npos;
  return i == std::string_view::npos ? Phase::unknown : static_cast<Phase>(i);
}

StorageClass class_of(std::string_view text) {
  for (int i = 0; i <= static_cast<int>(StorageClass::data); ++i) {
    const auto cls = static_cast<StorageClass>(i);
    if (storage_class_name(cls) == text) return cls;
  }
  return StorageClass::unknown;
}

constexpr std::string_view kHeaderOwn[] = {"k", "v", "torch", "src", "dev", "model"};

}  // namespace

struct JsonlReader::Impl {
  std::string name;
  ReadReport& report;
  dom::parser parser;
  TraceBuilder builder;
  IdMap<StorageId> storages;
  IdMap<SigId> signatures;
  std::set<std::string> warned;
  std::uint64_t line = 0, mapped_storages = 0;
  bool header_seen = false, end_seen = false;
  std::vector<StorageId> in, out, written;

  Impl(std::string n, ReadReport& r) : name(std::move(n)), report(r) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::input, name + ":" + std::to_string(line) + ": " + what);
  }
  void warn(const std::string& what) {
    if (warned.insert(what).second)
      report.warnings.push_back(name + ":" + std::to_string(line) + ": " + what);
  }
  void unknown_key(std::string_view kind, std::string_view key) {
    warn("unknown key '" + std::string(key) + "' in a '" + std::string(kind) + "' record is ignored");
  }

  std::int64_t integer(dom::element e, std::string_view key, std::int64_t low = 0) {
    std::int64_t value = 0;
    if (e.get(value) != simdjson::SUCCESS) {
      fail("'" + std::string(key) + "' must be an integer of at most 2^63-1, found " + simdjson::minify(e));
    }
    if (value < low)
      fail("'" + std::string(key) + "' must be at least " + std::to_string(low) + ", found " +
           std::to_string(value));
    return value;
  }
  std::uint64_t id(dom::element e, std::string_view key) {
    std::uint64_t value = 0;
    if (e.get(value) != simdjson::SUCCESS)
      fail("'" + std::string(key) + "' must be a non-negative integer id, found " + simdjson::minify(e));
    return value;
  }
  std::string_view text(dom::element e, std::string_view key) {
    std::string_view value;
    if (e.get(value) != simdjson::SUCCESS)
      fail("'" + std::string(key) + "' must be a string, found " + simdjson::minify(e));
    return value;
  }
  StorageId storage(dom::element e, std::string_view key) {
    const std::uint64_t file_id = id(e, key);
    const StorageId* found = storages.find(file_id);
    if (found == nullptr)
      fail("'" + std::string(key) + "' names storage " + std::to_string(file_id) +
           ", which no 'alloc' line has introduced");
    return *found;
  }
  void storage_list(dom::element e, std::string_view key, std::vector<StorageId>& into) {
    into.clear();
    dom::array array;
    if (e.get(array) != simdjson::SUCCESS) fail("'" + std::string(key) + "' must be an array of storage ids");
    for (const dom::element item : array) into.push_back(storage(item, key));
  }

  void one_line(std::string_view json);
  void header(dom::object o);
  void signature(dom::object o);
  void alloc(dom::object o);
  void op(dom::object o);
  void mark(dom::object o);
  void saved(dom::object o);
  void small(std::string_view kind, dom::object o);
  void end(dom::object o);
};

void JsonlReader::Impl::one_line(std::string_view json) {
  ++line;
  std::size_t first = 0;
  while (first < json.size() && (json[first] == ' ' || json[first] == '\t' || json[first] == '\r')) ++first;
  if (first == json.size()) return;
  if (end_seen) fail("nothing may follow the 'end' record");
  dom::element root;
  // The buffer is padded, so the parser need not copy.
  const auto code = parser.parse(json.data(), json.size(), false).get(root);
  if (code != simdjson::SUCCESS) fail(std::string("not valid JSON: ") + simdjson::error_message(code));
  dom::object o;
  if (root.get(o) != simdjson::SUCCESS) fail("expected one JSON object per line");
  dom::element kind_element;
  std::string_view kind;
  if (o["k"].get(kind_element) != simdjson::SUCCESS || kind_element.get(kind) != simdjson::SUCCESS) {
    fail("expected a record with a string 'k' (hdr, sig, alloc, op, ...)");
  }
  if (!header_seen && kind != "hdr")
    fail("the first record must be 'hdr', found '" + std::string(kind) + "'");
  try {
    if (kind == "op") {
      op(o);
    } else if (kind == "alloc") {
      alloc(o);
    } else if (kind == "sig") {
      signature(o);
    } else if (kind == "mark") {
      mark(o);
    } else if (kind == "saved") {
      saved(o);
    } else if (kind == "hdr") {
      header(o);
    } else if (kind == "end") {
      end(o);
    } else if (kind == "free" || kind == "tag" || kind == "resize" || kind == "mem") {
      small(kind, o);
    } else {
      warn("records of unknown kind '" + std::string(kind) + "' are ignored");
    }
  } catch (const Error& error) {
    const std::string message = error.what();
    if (message.rfind(name + ":", 0) == 0) throw;
    fail(message);
  }
}

void JsonlReader::Impl::header(dom::object o) {
  if (header_seen) fail("a second 'hdr' record");
  header_seen = true;
  dom::element version;
  if (o["v"].get(version) != simdjson::SUCCESS) fail("'hdr' lacks the schema version 'v'");
  if (integer(version, "v") != 1)
    fail("schema version " + simdjson::minify(version) + " is not supported, expected 1");
  TraceHeader h;
  h.extra_json = "{";
  for (const auto field : o) {
    if (field.key == "torch") h.torch = text(field.value, field.key);
    if (field.key == "src") h.source = text(field.value, field.key);
    if (field.key == "dev") h.device = text(field.value, field.key);
    if (field.key == "model") h.model = text(field.value, field.key);
    if (std::find(std::begin(kHeaderOwn), std::end(kHeaderOwn), field.key) != std::end(kHeaderOwn)) continue;
    if (h.extra_json.size() > 1) h.extra_json += ',';
    h.extra_json += '"' + std::string(field.key) + "\":" + simdjson::minify(field.value);
  }
  h.extra_json += '}';
  builder.set_header(std::move(h));
}

void JsonlReader::Impl::signature(dom::object o) {
  TraceBuilder::Signature s;
  std::string detail = "{";
  std::uint64_t file_id = 0;
  bool has_id = false, has_name = false;
  for (const auto field : o) {
    const std::string_view key = field.key;
    if (key == "id") {
      file_id = id(field.value, key);
      has_id = true;
    } else if (key == "n") {
      s.name = text(field.value, key);
      has_name = true;
    } else if (key == "in" || key == "out" || key == "attr") {
      if (detail.size() > 1) detail += ',';
      detail += '"' + std::string(key) + "\":" + simdjson::minify(field.value);
    } else if (key == "flop") {
      s.flop = integer(field.value, key);
    } else if (key == "rb") {
      s.read = Bytes{integer(field.value, key)};
    } else if (key == "wb") {
      s.written = Bytes{integer(field.value, key)};
    } else if (key == "scr") {
      s.scratch = Bytes{integer(field.value, key)};
    } else if (key == "view") {
      bool flag = false;
      s.view = field.value.get(flag) == simdjson::SUCCESS ? flag : integer(field.value, key) != 0;
    } else if (key != "k") {
      unknown_key("sig", key);
    }
  }
  if (!has_id || !has_name) fail("'sig' needs 'id' and 'n'");
  if (signatures.find(file_id) != nullptr)
    fail("signature id " + std::to_string(file_id) + " is defined twice");
  detail += '}';
  s.detail = detail;
  signatures.insert(file_id, builder.add_signature(s));
}

void JsonlReader::Impl::alloc(dom::object o) {
  std::uint64_t file_id = 0;
  std::int64_t bytes = -1;
  std::string_view device = "cpu";
  bool external = false, has_id = false;
  for (const auto field : o) {
    const std::string_view key = field.key;
    if (key == "s") {
      file_id = id(field.value, key);
      has_id = true;
    } else if (key == "b") {
      bytes = integer(field.value, key);
    } else if (key == "dev") {
      device = text(field.value, key);
    } else if (key == "src") {
      const std::string_view source = text(field.value, key);
      if (source != "op" && source != "ext")
        fail("'src' of an 'alloc' must be \"op\" or \"ext\", found \"" + std::string(source) + "\"");
      external = source == "ext";
    } else if (key != "k") {
      unknown_key("alloc", key);
    }
  }
  if (!has_id || bytes < 0) fail("'alloc' needs a storage 's' and its bytes 'b'");
  if (storages.find(file_id) != nullptr)
    fail("storage " + std::to_string(file_id) + " is allocated twice (ids are never reused)");
  storages.insert(file_id, builder.alloc(Bytes{bytes}, device, external));
  ++mapped_storages;
}

void JsonlReader::Impl::op(dom::object o) {
  TraceBuilder::Op op;
  in.clear();
  out.clear();
  written.clear();
  bool has_signature = false, has_number = false;
  for (const auto field : o) {
    const std::string_view key = field.key;
    if (key == "i") {
      const std::uint64_t i = id(field.value, key);
      has_number = true;
      if (i != builder.op_count())
        fail("operator number " + std::to_string(i) + " out of order, expected " +
             std::to_string(builder.op_count()));
    } else if (key == "sig") {
      const std::uint64_t file_id = id(field.value, key);
      const SigId* found = signatures.find(file_id);
      if (found == nullptr) fail("signature " + std::to_string(file_id) + " is used before its 'sig' record");
      op.signature = *found;
      has_signature = true;
    } else if (key == "in") {
      storage_list(field.value, key, in);
    } else if (key == "out") {
      storage_list(field.value, key, out);
    } else if (key == "wr") {
      storage_list(field.value, key, written);
    } else if (key == "ns") {
      op.device_time = Nanos{integer(field.value, key)};
    } else if (key == "hns") {
      op.host_time = Nanos{integer(field.value, key)};
    } else if (key == "gap") {
      op.host_gap = Nanos{integer(field.value, key)};
    } else if (key == "ph") {
      const std::string_view letter = text(field.value, key);
      op.phase = phase_of(letter);
      if (op.phase == Phase::unknown) warn("unknown phase '" + std::string(letter) + "'");
    } else if (key == "st") {
      const std::int64_t stream = integer(field.value, key);
      if (stream >= 64) fail("stream " + std::to_string(stream) + " is out of range, expected 0 to 63");
      op.stream = static_cast<std::uint16_t>(stream);
    } else if (key == "sync") {
      const std::string_view sync = text(field.value, key);
      op.sync = sync == "item"       ? SyncKind::item
                : sync == "shape"    ? SyncKind::shape
                : sync == "d2h"      ? SyncKind::d2h
                : sync == "explicit" ? SyncKind::explicit_sync
                                     : SyncKind::none;
      if (op.sync == SyncKind::none) warn("unknown sync kind '" + std::string(sync) + "' is ignored");
    } else if (key != "k") {
      unknown_key("op", key);
    }
  }
  if (!has_signature || !has_number) fail("'op' needs its number 'i' and a signature 'sig'");
  op.in = in;
  op.out = out;
  op.written = written;
  builder.op(op);
}

void JsonlReader::Impl::mark(dom::object o) {
  std::string_view m, phase, kind;
  std::int64_t number = -1, time = -1;
  for (const auto field : o) {
    const std::string_view key = field.key;
    if (key == "m") {
      m = text(field.value, key);
    } else if (key == "ph") {
      phase = text(field.value, key);
    } else if (key == "kind") {
      kind = text(field.value, key);
    } else if (key == "it" || key == "mb") {
      number = integer(field.value, key);
    } else if (key == "t") {
      time = integer(field.value, key);
    } else if (key != "k") {
      unknown_key("mark", key);
    }
  }
  const Nanos at{time};
  if (m == "iter_begin") {
    if (kind != "" && kind != "train" && kind != "val")
      fail("iteration kind must be \"train\" or \"val\", found \"" + std::string(kind) + "\"");
    builder.mark(MarkKind::iter_begin, kind.empty() ? "train" : kind, number, at);
  } else if (m == "iter_end") {
    builder.mark(MarkKind::iter_end, "", number, at);
  } else if (m == "micro_begin") {
    builder.mark(MarkKind::micro_begin, "", number, at);
  } else if (m == "micro_end") {
    builder.mark(MarkKind::micro_end, "", number, at);
  } else if (m == "phase") {
    builder.mark(MarkKind::phase, phase, number, at);
  } else if (m == "step_skipped") {
    builder.mark(MarkKind::step_skipped, "", number, at);
  } else {
    warn("unknown mark '" + std::string(m) + "'");
    builder.mark(MarkKind::other, m, number, at);
  }
}

void JsonlReader::Impl::saved(dom::object o) {
  std::int64_t iteration = -1, micro = -1;
  in.clear();
  for (const auto field : o) {
    const std::string_view key = field.key;
    if (key == "s") {
      storage_list(field.value, key, in);
    } else if (key == "it") {
      iteration = integer(field.value, key);
    } else if (key == "mb") {
      micro = integer(field.value, key);
    } else if (key != "k") {
      unknown_key("saved", key);
    }
  }
  builder.saved(in, iteration, micro);
}

void JsonlReader::Impl::small(std::string_view kind, dom::object o) {
  dom::element s{}, from{}, to{};
  const auto require = [&](const char* key, dom::element& into) {
    if (o[key].get(into) != simdjson::SUCCESS) fail("'" + std::string(kind) + "' needs '" + key + "'");
  };
  if (kind == "mem") {
    dom::element address{}, where{};
    require("p", address);
    require("b", from);
    const std::string hex(text(address, "p"));
    char* rest = nullptr;
    const std::uint64_t p = std::strtoull(hex.c_str(), &rest, 16);
    if (hex.empty() || *rest != '\0') fail("'p' must be a hexadecimal address, found '" + hex + "'");
    const bool in_op = o["w"].get(where) == simdjson::SUCCESS && text(where, "w") == "op";
    builder.memory_event(p, Bytes{integer(from, "b", std::numeric_limits<std::int64_t>::min())}, in_op);
    return;
  }
  require("s", s);
  const StorageId slot = storage(s, "s");
  if (kind == "free") {
    builder.free(slot);
  } else if (kind == "resize") {
    require("b0", from);
    require("b", to);
    builder.resize(slot, Bytes{integer(from, "b0")}, Bytes{integer(to, "b")});
  } else {
    dom::element cls{}, label{};
    const std::string_view c = o["cls"].get(cls) == simdjson::SUCCESS ? text(cls, "cls") : "";
    const std::string_view n = o["name"].get(label) == simdjson::SUCCESS ? text(label, "name") : "";
    if (class_of(c) == StorageClass::unknown) warn("unknown storage class '" + std::string(c) + "'");
    builder.tag(slot, class_of(c), n);
  }
}

void JsonlReader::Impl::end(dom::object o) {
  end_seen = true;
  report.has_end_record = true;
  const auto compare = [&](const char* key, std::int64_t replayed) {
    dom::element e{};
    if (o[key].get(e) != simdjson::SUCCESS) fail(std::string("'end' needs '") + key + "'");
    const std::int64_t claimed = integer(e, key);
    if (claimed != replayed) {
      fail(std::string("the 'end' record says ") + key + " = " + std::to_string(claimed) +
           ", replaying the file gives " + std::to_string(replayed));
    }
  };
  compare("ops", static_cast<std::int64_t>(builder.op_count()));
  compare("storages", static_cast<std::int64_t>(builder.storage_count()));
  compare("peak", builder.peak_bytes().value);
  compare("live", builder.live_bytes().value);
}

JsonlReader::JsonlReader(std::string name, ReadReport& report)
    : impl_(std::make_unique<Impl>(std::move(name), report)) {}
JsonlReader::~JsonlReader() = default;

void JsonlReader::lines(std::string_view text) {
  while (!text.empty()) {
    const auto newline = static_cast<const char*>(std::memchr(text.data(), '\n', text.size()));
    const std::size_t length =
        newline == nullptr ? text.size() : static_cast<std::size_t>(newline - text.data());
    impl_->one_line(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
}

Trace JsonlReader::finish() {
  Impl& i = *impl_;
  if (!i.header_seen)
    throw Error(ErrorKind::input, i.name + ": empty: expected a 'hdr' record in the first line");
  if (!i.end_seen) {
    i.fail("the recording is truncated: no 'end' record after " + std::to_string(i.builder.op_count()) +
           " operators and " + std::to_string(i.builder.storage_count()) + " storages");
  }
  try {
    return i.builder.finish();
  } catch (const Error& error) {
    i.fail(error.what());
  }
}

// ---- trace/io.hpp

Trace parse_jsonl(std::string_view text, const std::string& name, ReadReport* report) {
  ReadReport own;
  ReadReport& r = report != nullptr ? *report : own;
  r.format = "jsonl";
  r.text_bytes = text.size();
  std::string padded(text);
  padded.append(simdjson::SIMDJSON_PADDING, '\0');
  JsonlReader reader(name, r);
  reader.lines(std::string_view(padded).substr(0, text.size()));
  return reader.finish();
}

Trace read_jsonl(ByteSource& source, const std::string& path, ReadReport& report,
                 const std::function<void(std::uint64_t)>& progress) {
  report.format = std::string("jsonl") + source.compression();
  JsonlReader reader(path, report);
  constexpr std::size_t kChunk = 1u << 20;
  std::vector<char> buffer;
  std::size_t kept = 0;  // bytes of an unfinished line at the front of the buffer
  for (;;) {
    buffer.resize(kept + kChunk + simdjson::SIMDJSON_PADDING);
    const std::size_t count = source.read(buffer.data() + kept, kChunk);
    report.text_bytes += count;
    if (progress) progress(report.text_bytes);
    const std::size_t filled = kept + count;
    if (count == 0) {
      std::memset(buffer.data() + filled, 0, simdjson::SIMDJSON_PADDING);
      reader.lines({buffer.data(), filled});
      return reader.finish();
    }
    std::size_t whole = filled;
    while (whole > 0 && buffer[whole - 1] != '\n') --whole;
    reader.lines({buffer.data(), whole});
    kept = filled - whole;
    std::memmove(buffer.data(), buffer.data() + whole, kept);
  }
}

Trace read_trace(const std::string& path, ReadReport* report,
                 const std::function<void(std::uint64_t)>& progress) {
  ReadReport own;
  ReadReport& r = report != nullptr ? *report : own;
  const auto source = open_byte_source(path);
  return read_jsonl(*source, path, r, progress);
}

}  // namespace swaplab
