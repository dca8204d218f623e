// A trace made ready to replay: dense columns that hold just what the executor and planners need.
//
// Compared with the Trace: views have no accesses and no device time; host storages are gone;
// `resize` became a new storage; repeated arguments are merged; times are chosen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/machine.hpp"
#include "trace/model.hpp"

namespace swaplab {

enum class TimeSource : std::uint8_t { trace, model };

// Storages of a Program; renumbered, so not the trace's ids (see Program::origin).
enum class Slot : std::uint32_t {};
constexpr std::uint32_t index(Slot slot) {
  return static_cast<std::uint32_t>(slot);
}

enum AccessFlags : std::uint8_t {
  kRead = 1,
  kWrite = 2,
  kCreate = 4,  // first access: the operator produces the content (implies kWrite, no read)
};

struct Access {
  Slot slot;
  std::uint8_t flags;
};

struct GapEvent {  // allocations and frees before an operator, in recorded order
  Slot slot;
  bool is_free;
};

enum OpFlags : std::uint8_t {
  kKernel = 1,  // occupies its stream for device_time
  kSync = 2,    // the host waits for the operator's stream to drain
};

struct ProgramIteration {
  std::int64_t number;
  IterationKind kind;
  bool step_skipped;
  std::uint32_t first_op, end_op;  // operators between two iterations belong to the earlier one
};

struct Program {
  // Operators before it are not in the columns: 0 but in a window of a long trace (program_windows.hpp).
  std::uint32_t first_op = 0;

  // Per operator, from first_op on.
  std::vector<Nanos> device_time;  // 0 without kernel
  std::vector<Nanos> host_time;    // host cost of issuing it (gap before it included)
  std::vector<std::uint8_t> op_flags;
  std::vector<std::uint16_t> stream;
  std::vector<Phase> phase;
  std::vector<NameId> name;  // into `names`
  std::vector<SigId> signature;
  std::vector<std::uint32_t> access_begin;  // rows + 1
  std::vector<Access> accesses;             // each slot once per operator
  std::vector<std::uint32_t> gap_begin;     // rows + 2 (a window that is not the last: + 1)
  std::vector<GapEvent> gap_events;

  // Per storage (Slot).
  std::vector<Bytes> bytes;
  std::vector<StorageClass> cls;
  std::vector<std::uint16_t> home_stream;   // stream of the operator that it is allocated for
  std::vector<std::uint8_t> initial;        // 1: lives, with content, before the first operator
  std::vector<std::uint32_t> birth, death;  // gap index; 0 for initial; kNever: lives to the end
  std::vector<StorageId> origin;            // the trace's storage
  std::vector<NameId> slot_name;
  std::vector<std::uint32_t> birth_rank;  // only in a window: the slot that the whole program would have

  std::vector<ProgramIteration> iterations;        // cover all operators, in order
  std::uint32_t steady_first = 0, steady_end = 0;  // iterations that count as steady (half-open)
  std::uint16_t stream_count = 1;
  StringTable names;
  TimeSource times = TimeSource::trace;

  // Largest sum of live device bytes at any operator (frees before allocations of a gap applied in order).
  Bytes peak_bytes;
  // Largest sum of bytes that one operator accesses, and which operator: no budget below it is feasible.
  Bytes largest_working_set;
  std::uint32_t largest_working_set_op = 0;

  // Behind the last operator; the number of operators of a whole program.
  std::uint32_t op_count() const { return first_op + static_cast<std::uint32_t>(device_time.size()); }
  std::uint32_t row(std::uint32_t op) const { return op - first_op; }  // of the operator's columns
  std::uint32_t slot_count() const { return static_cast<std::uint32_t>(bytes.size()); }
  std::span<const Access> accesses_of(std::uint32_t op) const {
    return {accesses.data() + access_begin[row(op)], accesses.data() + access_begin[row(op) + 1]};
  }
  std::span<const GapEvent> gap(std::uint32_t g) const {
    return {gap_events.data() + gap_begin[row(g)], gap_events.data() + gap_begin[row(g) + 1]};
  }
};

// Rules:
// - Device storages: those on a device other than "cpu"; in a CPU recording (no other device occurs)
//   all of them, except optimizer step counters (class opt, name *.step), which a GPU run keeps on
//   the host. A scalar read is a device synchronisation only if an input is a device storage.
// - External storages of class param, buffer, grad or opt are initial; other external ones are
//   initial when first seen before or in the first iteration, else they appear, with content, where
//   they are first seen.
// - An operator runs a kernel when it accesses a device storage and is no view. With the times of a trace
// that no
//   CPU recorded it also does when it has device time: work on storages that the trace does not know is work.
// - Host time of an operator: the trace's host_time + host_gap where present, else the machine's dispatch
// cost.
// - Steady iterations: all but the first and the last when there are at least four, all but the
//   first when there are two or three, the only one otherwise.
// Throws Error(input): operators that take more than 2^60 ns together; times missing for `trace` (says to use
// `model`), nothing for the model either.
Program compile_program(const Trace& trace, const Machine& machine, TimeSource times);

// For planners and bounds: where each storage is accessed. Row of slot s:
// ops[begin[s] .. begin[s+1]) ascending; flags alongside.
struct AccessIndex {
  std::vector<std::uint32_t> begin;  // slot_count() + 1
  std::vector<std::uint32_t> ops;
  std::vector<std::uint8_t> flags;
};
AccessIndex index_accesses(const Program& program);

}  // namespace swaplab
