#include <cstring>

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

// Names by content: their ids depend on the order in which a reader met them.
void names(Hasher& h, const Trace& trace, const Column<NameId>& ids) {
  for (const NameId id : ids) h.bytes(trace.names[id].data(), trace.names[id].size());
}

}  // namespace

std::uint64_t trace_hash(const Trace& trace) {
  Hasher h;
  names(h, trace, trace.signatures.name);
  names(h, trace, trace.signatures.detail);
  h.column(trace.signatures.flop);
  h.column(trace.signatures.read);
  h.column(trace.signatures.written);
  h.column(trace.signatures.scratch);
  h.column(trace.signatures.view);
  h.column(trace.storages.bytes);
  names(h, trace, trace.storages.device);
  h.column(trace.storages.cls);
  names(h, trace, trace.storages.name);
  h.column(trace.storages.external);
  h.column(trace.storages.birth_gap);
  h.column(trace.storages.death_gap);
  h.column(trace.ops.signature);
  h.column(trace.ops.phase);
  h.column(trace.ops.stream);
  h.column(trace.ops.sync);
  h.column(trace.ops.device_time);
  h.column(trace.ops.host_time);
  h.column(trace.ops.host_gap);
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
    h.bytes(trace.names[mark.text].data(), trace.names[mark.text].size());
  }
  for (const Resize& r : trace.resizes) {
    h.word(index(r.storage));
    h.word(static_cast<std::uint64_t>(r.from.value));
    h.word(static_cast<std::uint64_t>(r.to.value));
  }
  return h.value();
}

}  // namespace swaplab
