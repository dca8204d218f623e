// The records of JSON lines schema v1, one line at a time.
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <vector>

#include "trace/builder.hpp"
#include "trace/error.hpp"
#include "trace/iteration_marks.hpp"
#include "trace/json_text.hpp"
#include "trace/jsonl_ids.hpp"
#include "trace/jsonl_reader.hpp"

namespace swaplab {
namespace {

namespace dom = simdjson::dom;

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

// Why a line is not JSON, in the terms of the person who wrote it.
std::string syntax_error(simdjson::error_code code, std::string_view json) {
  if (code == simdjson::UTF8_ERROR) return "not valid UTF-8";
  if (code == simdjson::NUMBER_ERROR || code == simdjson::NUMBER_OUT_OF_RANGE)
    return "not valid JSON: a number is malformed or out of range; integers must fit 64 bits (below 2^63)";
  for (const std::string_view word : {"NaN", "nan", "Infinity", "inf"}) {
    const auto at = json.find(word);
    if (at != std::string_view::npos && at > 0 &&
        std::string_view(":,[- ").find(json[at - 1]) != std::string_view::npos) {
      return "not valid JSON: " + std::string(word) +
             " is no JSON number; expected an integer (leave the field out when it is unknown)";
    }
  }
  return std::string("not valid JSON: ") + simdjson::error_message(code) +
         "; expected one complete object per line";
}

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
  if (code != simdjson::SUCCESS) fail(syntax_error(code, json));
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
    h.extra_json += json_quoted(field.key) + ":" + simdjson::minify(field.value);
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
      // The builder states the range; what does not fit its type is out of range all the more.
      op.stream = static_cast<std::uint16_t>(std::min<std::int64_t>(stream, 0xffff));
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
  MarkKind of = MarkKind::iter_begin;
  while (of != MarkKind::other && mark_name(of) != m) of = static_cast<MarkKind>(static_cast<int>(of) + 1);
  if (of == MarkKind::other) warn("unknown mark '" + std::string(m) + "'");
  const std::string_view label = of == MarkKind::iter_begin ? kind
                                 : of == MarkKind::phase    ? phase
                                 : of == MarkKind::other    ? m
                                                            : std::string_view();
  builder.mark(of, label, number, Nanos{time});
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
    const std::size_t digits = hex.rfind("0x", 0) == 0 ? 2 : 0;
    std::uint64_t p = 0;
    const auto parsed = std::from_chars(hex.data() + digits, hex.data() + hex.size(), p, 16);
    if (parsed.ec != std::errc() || parsed.ptr != hex.data() + hex.size())
      fail("'p' must be a hexadecimal address below 2^64, found '" + hex + "'");
    const std::string_view w = o["w"].get(where) == simdjson::SUCCESS ? text(where, "w") : "gap";
    if (w != "op" && w != "gap")
      fail("'w' of a 'mem' must be \"op\" or \"gap\", found \"" + std::string(w) + "\"");
    builder.memory_event(p, Bytes{integer(from, "b", std::numeric_limits<std::int64_t>::min())}, w == "op");
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
    const bool has_class = o["cls"].get(cls) == simdjson::SUCCESS;
    const std::string_view c = has_class ? text(cls, "cls") : "";
    const std::string_view n = o["name"].get(label) == simdjson::SUCCESS ? text(label, "name") : "";
    if (has_class && class_of(c) == StorageClass::unknown)
      warn("unknown storage class '" + std::string(c) + "'");
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

void JsonlReader::line(std::string_view json) {
  impl_->one_line(json);
}

void JsonlReader::refuse_next_line(const std::string& why) {
  ++impl_->line;
  impl_->fail(why);
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

}  // namespace swaplab
