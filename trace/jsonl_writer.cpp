// Writer of JSON lines schema v1, in the recorder's field order.
#include <cstdio>
#include <vector>

#include "trace/io.hpp"
#include "trace/iteration_marks.hpp"
#include "trace/json_text.hpp"

namespace swaplab {
namespace {

class Writer {
 public:
  explicit Writer(const Trace& trace)
      : trace_(trace), quoted_(trace.names.size()), signature_id_(trace.signatures.size(), kNever) {}

  std::string text() {
    header();
    const auto n = static_cast<std::uint32_t>(trace_.ops.size());
    for (std::uint32_t gap = 0; gap <= n; ++gap) {
      for (const Event& event : trace_.gap(gap)) this->event(event);
      if (gap < n) op(gap);
    }
    out_ += "{\"k\":\"end\",\"ops\":" + std::to_string(n) +
            ",\"storages\":" + std::to_string(trace_.storages.size()) +
            ",\"peak\":" + std::to_string(trace_.peak_bytes.value) +
            ",\"live\":" + std::to_string(trace_.live_bytes.value) + "}\n";
    return std::move(out_);
  }

 private:
  const std::string& quoted(NameId name) {
    std::string& text = quoted_[index(name)];
    if (text.empty()) text = json_quoted(trace_.names[name]);
    return text;
  }
  // Appends the members of a JSON object text to an open record.
  void members(std::string_view object) {
    if (object.size() > 2) out_.append(",").append(object.substr(1, object.size() - 2));
  }
  void header() {
    const TraceHeader& h = trace_.header;
    out_ += "{\"k\":\"hdr\",\"v\":1,\"torch\":" + json_quoted(h.torch) + ",\"src\":" + json_quoted(h.source) +
            ",\"model\":" + json_quoted(h.model) + ",\"dev\":" + json_quoted(h.device);
    members(h.extra_json);
    out_ += "}\n";
  }
  void number(const char* key, std::int64_t value) {
    if (value >= 0) out_.append(",\"").append(key).append("\":").append(std::to_string(value));
  }
  void ids(const char* key, std::span<const StorageId> storages) {
    out_.append(",\"").append(key).append("\":[");
    for (std::size_t i = 0; i < storages.size(); ++i) {
      if (i > 0) out_ += ',';
      out_ += std::to_string(index(storages[i]));
    }
    out_ += ']';
  }
  void event(const Event& event) {
    switch (event.kind) {
      case EventKind::alloc_op:
      case EventKind::alloc_external:
        alloc(event.arg, event.kind == EventKind::alloc_external);
        break;
      case EventKind::free:
        out_ += "{\"k\":\"free\",\"s\":" + std::to_string(event.arg) + "}\n";
        break;
      case EventKind::resize: {
        const Resize& r = trace_.resizes[event.arg];
        out_ += "{\"k\":\"resize\",\"s\":" + std::to_string(index(r.storage)) +
                ",\"b0\":" + std::to_string(r.from.value) + ",\"b\":" + std::to_string(r.to.value) + "}\n";
        break;
      }
      case EventKind::mark:
        mark(trace_.marks[event.arg]);
        break;
      case EventKind::saved: {
        const Saved& s = trace_.saved[event.arg];
        out_ += "{\"k\":\"saved\"";
        ids("s", trace_.saved_storages.span(s.first, s.last));
        number("it", s.iteration);
        number("mb", s.micro_batch);
        out_ += "}\n";
        break;
      }
      case EventKind::memory: {
        const MemoryEvent& m = trace_.memory_events[event.arg];
        char hex[17];
        std::snprintf(hex, sizeof hex, "%llx", static_cast<unsigned long long>(m.address));
        out_ += std::string("{\"k\":\"mem\",\"p\":\"") + hex + "\",\"b\":" + std::to_string(m.bytes.value) +
                ",\"w\":\"" + (m.in_op ? "op" : "gap") + "\"}\n";
        break;
      }
    }
  }
  void alloc(std::uint32_t s, bool external) {
    const auto& storages = trace_.storages;
    out_ +=
        "{\"k\":\"alloc\",\"s\":" + std::to_string(s) + ",\"b\":" + std::to_string(storages.bytes[s].value) +
        ",\"src\":" + (external ? "\"ext\"" : "\"op\"") + ",\"dev\":" + quoted(storages.device[s]) + "}\n";
    if (storages.cls[s] == StorageClass::unknown && storages.name[s] == NameId{0}) return;
    out_ += "{\"k\":\"tag\",\"s\":" + std::to_string(s);
    if (storages.cls[s] != StorageClass::unknown)
      out_.append(",\"cls\":\"").append(storage_class_name(storages.cls[s])).append("\"");
    out_ += ",\"name\":" + quoted(storages.name[s]) + "}\n";
  }
  void mark(const Mark& m) {
    out_ += "{\"k\":\"mark\",\"m\":";
    out_ += m.kind == MarkKind::other ? quoted(m.text) : json_quoted(mark_name(m.kind));
    number("t", m.time.value);
    if (m.kind == MarkKind::iter_begin) out_ += ",\"kind\":" + quoted(m.text);
    if (m.kind == MarkKind::phase) out_ += ",\"ph\":" + quoted(m.text);
    const bool micro = m.kind == MarkKind::micro_begin || m.kind == MarkKind::micro_end;
    number(micro ? "mb" : "it", m.number);
    out_ += "}\n";
  }
  void op(std::uint32_t i) {
    const std::uint32_t sig = index(trace_.ops.signature[i]);
    // Numbered by first use: a reader numbers them so, and then writes the same text again.
    if (signature_id_[sig] == kNever) {
      signature_id_[sig] = signatures_written_++;
      const auto& s = trace_.signatures;
      out_ += "{\"k\":\"sig\",\"id\":" + std::to_string(signature_id_[sig]) + ",\"n\":" + quoted(s.name[sig]);
      members(trace_.names[s.detail[sig]]);
      number("flop", s.flop[sig]);
      number("rb", s.read[sig].value);
      number("wb", s.written[sig].value);
      number("scr", s.scratch[sig].value);
      out_ += std::string(",\"view\":") + (s.view[sig] != 0 ? "1" : "0") + "}\n";
    }
    out_ += "{\"k\":\"op\",\"i\":" + std::to_string(i) + ",\"sig\":" + std::to_string(signature_id_[sig]);
    if (trace_.ops.phase[i] != Phase::unknown)
      out_ += std::string(",\"ph\":\"") + phase_letter(trace_.ops.phase[i]) + '"';
    ids("in", trace_.inputs(i));
    ids("out", trace_.outputs(i));
    ids("wr", trace_.written(i));
    if (trace_.ops.stream[i] != 0) number("st", trace_.ops.stream[i]);
    const auto time = [&](const char* key, const Column<Nanos>& column) {
      if (!column.empty()) number(key, column[i].value);
    };
    time("ns", trace_.ops.device_time);
    time("hns", trace_.ops.host_time);
    time("gap", trace_.ops.host_gap);
    static constexpr const char* syncs[] = {"", "item", "shape", "d2h", "explicit"};
    if (trace_.ops.sync[i] != SyncKind::none) {
      out_ += std::string(",\"sync\":\"") + syncs[static_cast<std::size_t>(trace_.ops.sync[i])] + '"';
    }
    out_ += "}\n";
  }

  const Trace& trace_;
  std::vector<std::string> quoted_;  // by name, filled when first needed
  std::vector<std::uint32_t> signature_id_;
  std::uint32_t signatures_written_ = 0;
  std::string out_;
};

}  // namespace

std::string jsonl_text(const Trace& trace) {
  return Writer(trace).text();
}

}  // namespace swaplab
