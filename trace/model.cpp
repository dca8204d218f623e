#include "trace/model.hpp"

#include <algorithm>

namespace swaplab {

char phase_letter(Phase phase) {
  switch (phase) {
    case Phase::unknown:
      return '?';
    case Phase::init:
      return 'I';
    case Phase::zero_grad:
      return 'Z';
    case Phase::data:
      return 'D';
    case Phase::forward:
      return 'F';
    case Phase::backward:
      return 'B';
    case Phase::recompute:
      return 'R';
    case Phase::optimizer:
      return 'O';
    case Phase::evaluation:
      return 'E';
  }
  return '?';
}

std::string_view storage_class_name(StorageClass cls) {
  switch (cls) {
    case StorageClass::unknown:
      return "";
    case StorageClass::parameter:
      return "param";
    case StorageClass::gradient:
      return "grad";
    case StorageClass::optimizer_state:
      return "opt";
    case StorageClass::buffer:
      return "buffer";
    case StorageClass::data:
      return "data";
  }
  return "";
}

bool Trace::has_device_times() const {
  for (std::size_t i = 0; i < ops.device_time.size(); ++i) {
    if (ops.device_time[i].value >= 0 && signatures.view[index(ops.signature[i])] == 0) return true;
  }
  return false;
}

namespace {

template <class... Columns>
std::size_t bytes_of(const Columns&... columns) {
  return (columns.span().size_bytes() + ...);
}

}  // namespace

std::size_t Trace::memory_bytes() const {
  const SignatureColumns& sig = signatures;
  return bytes_of(names.offsets(), names.chars(), sig.name, sig.detail, sig.flop, sig.read, sig.written,
                  sig.scratch, sig.view, storages.bytes, storages.device, storages.cls, storages.name,
                  storages.external, storages.birth_gap, storages.death_gap, ops.signature, ops.phase,
                  ops.stream, ops.sync, ops.device_time, ops.host_time, ops.host_gap, ops.in_begin,
                  ops.out_begin, ops.written_begin, ops.in, ops.out, ops.written, gap_begin, events, marks,
                  resizes, saved, saved_storages, memory_events) +
         iterations.size() * sizeof(Iteration) + header.extra_json.size() + header.torch.size() +
         header.source.size() + header.device.size() + header.model.size();
}

}  // namespace swaplab
