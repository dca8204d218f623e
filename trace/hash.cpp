#include <cstring>
#include <initializer_list>
#include <vector>

#include "trace/io.hpp"

namespace swaplab {
namespace {

// Multiply-mix over 64-bit words; the length is part of the hash.
class Hasher {
 public:
  void bytes(const void* data, std::size_t size) {
    const char* p = static_cast<const char*>(data);
    word(size);
    for (; size >= 8; p += 8, size -= 8) {
      std::uint64_t w = 0;
      std::memcpy(&w, p, 8);
      word(w);
    }
    std::uint64_t last = 0;
    if (size != 0) std::memcpy(&last, p, size);  // an empty column has no address
    word(last);
  }
  template <class T>
  void column(const Column<T>& values) {
    bytes(values.span().data(), values.size() * sizeof(T));
  }
  void word(std::uint64_t w) {
    state_ = (state_ ^ w) * 0x9E3779B97F4A7C15u;
    state_ ^= state_ >> 29;
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

// A time column that is unknown throughout may be empty or hold -1 only.
void times(Hasher& h, const Column<Nanos>& column) {
  for (const Nanos time : column) {
    if (time.value >= 0) return h.column(column);
  }
  h.word(0);
}

}  // namespace

// Names and signatures count by content and in the order of their first use: their ids, and entries that
// nothing uses, depend on the way by which a trace came into being.
std::uint64_t trace_hash(const Trace& trace) {
  Hasher h;
  const auto text = [&](NameId id) { h.bytes(trace.names[id].data(), trace.names[id].size()); };
  for (const std::string* part : {&trace.header.torch, &trace.header.source, &trace.header.device,
                                  &trace.header.model, &trace.header.extra_json})
    h.bytes(part->data(), part->size());
  const SignatureColumns& sig = trace.signatures;
  std::vector<std::uint32_t> number(sig.size(), kNever);
  std::uint32_t known = 0;
  for (const SigId id : trace.ops.signature) {
    const std::uint32_t i = index(id);
    if (number[i] == kNever) {
      number[i] = known++;
      text(sig.name[i]);
      text(sig.detail[i]);
      for (const std::int64_t v :
           {sig.flop[i], sig.read[i].value, sig.written[i].value, sig.scratch[i].value})
        h.word(static_cast<std::uint64_t>(v));
      h.word(sig.view[i]);
    }
    h.word(number[i]);
  }
  h.column(trace.storages.bytes);
  for (const NameId id : trace.storages.device) text(id);
  h.column(trace.storages.cls);
  for (const NameId id : trace.storages.name) text(id);
  h.column(trace.storages.external);
  h.column(trace.storages.birth_gap);
  h.column(trace.storages.death_gap);
  h.column(trace.ops.phase);
  h.column(trace.ops.stream);
  h.column(trace.ops.sync);
  times(h, trace.ops.device_time);
  times(h, trace.ops.host_time);
  times(h, trace.ops.host_gap);
  h.column(trace.ops.in_begin);
  h.column(trace.ops.in);
  h.column(trace.ops.out_begin);
  h.column(trace.ops.out);
  h.column(trace.ops.written_begin);
  h.column(trace.ops.written);
  h.column(trace.gap_begin);
  for (const Event& event : trace.events) {
    h.word(static_cast<std::uint64_t>(event.kind) << 32 | event.arg);
  }
  for (const Mark& mark : trace.marks) {
    h.word(static_cast<std::uint64_t>(mark.kind));
    h.word(static_cast<std::uint64_t>(mark.number));
    h.word(static_cast<std::uint64_t>(mark.time.value));
    text(mark.text);
  }
  for (const Resize& r : trace.resizes) {
    h.word(index(r.storage));
    h.word(static_cast<std::uint64_t>(r.from.value));
    h.word(static_cast<std::uint64_t>(r.to.value));
  }
  for (const Saved& s : trace.saved) {
    h.word(static_cast<std::uint64_t>(s.first) << 32 | s.last);
    h.word(static_cast<std::uint64_t>(s.iteration));
    h.word(static_cast<std::uint64_t>(s.micro_batch));
  }
  h.column(trace.saved_storages);
  for (const MemoryEvent& m : trace.memory_events) {
    h.word(m.address);
    h.word(static_cast<std::uint64_t>(m.bytes.value));
    h.word(m.in_op ? 1 : 0);
  }
  return h.value();
}

}  // namespace swaplab
