// The in-memory trace: operators, allocations, frees and marks in program order, as columns.
//
// A Trace is immutable and cheap to copy. It holds everything that JSON lines schema v1 can say
// (recording order included), so that reading and writing again loses nothing but spelling.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/column.hpp"
#include "trace/ids.hpp"
#include "trace/units.hpp"

namespace swaplab {

// Part of a training iteration (schema v1 `ph`). R is recomputation inside the backward pass.
enum class Phase : std::uint8_t {
  unknown,
  init,
  zero_grad,
  data,
  forward,
  backward,
  recompute,
  optimizer,
  evaluation
};
// The schema's letter: I Z D F B R O E, '?' for unknown.
char phase_letter(Phase phase);

enum class StorageClass : std::uint8_t { unknown, parameter, gradient, optimizer_state, buffer, data };
std::string_view storage_class_name(StorageClass cls);  // schema v1 `cls`: "param", "grad", ...

// What makes the host wait for the device in this operator (schema v1 `sync`).
enum class SyncKind : std::uint8_t { none, item, shape, d2h, explicit_sync };

enum class MarkKind : std::uint8_t {
  iter_begin,
  iter_end,
  micro_begin,
  micro_end,
  phase,
  step_skipped,
  other
};

enum class IterationKind : std::uint8_t { train, validation };

// What stands between two operators, in file order.
enum class EventKind : std::uint8_t {
  alloc_op,        // arg: storage, output of the next operator
  alloc_external,  // arg: storage, first seen here, lives from before
  free,            // arg: storage
  resize,          // arg: row of Trace::resizes
  mark,            // arg: row of Trace::marks
  saved,           // arg: row of Trace::saved
  memory,          // arg: row of Trace::memory_events
};

struct Event {
  EventKind kind;
  std::uint32_t arg;
};

struct Resize {
  StorageId storage;
  Bytes from, to;
};

struct Mark {
  MarkKind kind;
  NameId text;               // phase letter, "train"/"val", or the name of an unknown mark
  std::int64_t number = -1;  // iteration or micro-batch; -1 absent
  Nanos time{-1};            // recorder's clock; -1 absent
};

// Storages that the autograd graph holds at the end of a forward pass.
struct Saved {
  std::uint32_t first, last;  // range of Trace::saved_storages
  std::int64_t iteration = -1, micro_batch = -1;
};

struct MemoryEvent {  // exact allocator order, optional
  std::uint64_t address;
  Bytes bytes;  // signed: negative on free
  bool in_op;
};

struct Iteration {
  std::int64_t number = 0;
  IterationKind kind = IterationKind::train;
  bool step_skipped = false;
  std::uint32_t first_op = 0, end_op = 0;  // half-open operator range
};

struct TraceHeader {
  std::string torch, source, device, model;
  std::string extra_json;  // the other header fields, one JSON object as text ("{}" when none)
};

// Text by id; id 0 is "".
class StringTable {
 public:
  StringTable() = default;
  StringTable(Column<std::uint64_t> offsets, Column<char> chars)
      : offsets_(std::move(offsets)), chars_(std::move(chars)) {}
  std::string_view operator[](NameId id) const {
    const auto i = index(id);
    return {chars_.span().data() + offsets_[i], static_cast<std::size_t>(offsets_[i + 1] - offsets_[i])};
  }
  std::size_t size() const { return offsets_.empty() ? 0 : offsets_.size() - 1; }
  const Column<std::uint64_t>& offsets() const { return offsets_; }
  const Column<char>& chars() const { return chars_; }

 private:
  Column<std::uint64_t> offsets_;  // size() + 1
  Column<char> chars_;
};

// Rows per operator signature: name, shapes, dtypes, integer attributes.
struct SignatureColumns {
  Column<NameId> name;
  Column<NameId> detail;  // JSON text {"in":…,"out":…,"attr":…}: identity, and what the writer emits
  Column<std::int64_t> flop;    // 2 x multiply-accumulate; -1 unknown
  Column<Bytes> read, written;  // 0 for views; -1 unknown
  Column<Bytes> scratch;        // peak scratch inside the operator; -1 unknown
  Column<std::uint8_t> view;    // 1: aliases its input, moves no bytes, runs no kernel
  std::size_t size() const { return name.size(); }
};

struct StorageColumns {
  Column<Bytes> bytes;            // at its allocation
  Column<NameId> device;          // "cuda:0", "cpu", ...
  Column<StorageClass> cls;       // last tag wins
  Column<NameId> name;            // from its tag, 0 without
  Column<std::uint8_t> external;  // 1: lives from before the trace saw it
  // Gap g stands before operator g; gap ops() stands after the last one.
  Column<std::uint32_t> birth_gap;
  Column<std::uint32_t> death_gap;  // kNever: live at the end
  std::size_t size() const { return bytes.size(); }
};

struct OpColumns {
  Column<SigId> signature;
  Column<Phase> phase;
  Column<std::uint16_t> stream;
  Column<SyncKind> sync;
  // -1 where unknown; a column that is unknown throughout may be empty.
  Column<Nanos> device_time, host_time, host_gap;
  // Compressed rows: accesses of operator i are X[X_begin[i] .. X_begin[i+1]).
  Column<std::uint32_t> in_begin, out_begin, written_begin;  // size() + 1 each
  Column<StorageId> in, out, written;                        // argument order, repeats allowed
  std::size_t size() const { return signature.size(); }
};

struct Trace {
  TraceHeader header;
  StringTable names;
  SignatureColumns signatures;
  StorageColumns storages;
  OpColumns ops;
  Column<std::uint32_t>
      gap_begin;  // ops.size() + 2: events of gap g are events[gap_begin[g] .. gap_begin[g+1])
  Column<Event> events;
  Column<Mark> marks;
  Column<Resize> resizes;
  Column<Saved> saved;
  Column<StorageId> saved_storages;
  Column<MemoryEvent> memory_events;
  std::vector<Iteration> iterations;
  Bytes peak_bytes, live_bytes;  // as the schema's `end` record counts: all storages, all devices

  std::span<const StorageId> inputs(std::uint32_t op) const {
    return ops.in.span(ops.in_begin[op], ops.in_begin[op + 1]);
  }
  std::span<const StorageId> outputs(std::uint32_t op) const {
    return ops.out.span(ops.out_begin[op], ops.out_begin[op + 1]);
  }
  std::span<const StorageId> written(std::uint32_t op) const {
    return ops.written.span(ops.written_begin[op], ops.written_begin[op + 1]);
  }
  std::span<const Event> gap(std::uint32_t g) const { return events.span(gap_begin[g], gap_begin[g + 1]); }
  std::string_view op_name(std::uint32_t op) const {
    return names[signatures.name[index(ops.signature[op])]];
  }
  // True when at least one operator that runs a kernel carries a device time.
  bool has_device_times() const;
  // Memory of all columns, for `trace info`.
  std::size_t memory_bytes() const;
};

}  // namespace swaplab
