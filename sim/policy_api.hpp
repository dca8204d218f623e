// What a policy can see and do. The executor owns all accounting; a policy only decides.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/machine.hpp"
#include "sim/program.hpp"
#include "trace/error.hpp"

namespace swaplab {

struct AllocatorConfig;              // sim/allocator/config.hpp
struct MemoryFork;                   // sim/memory_fork.hpp
enum class BlockId : std::uint32_t;  // sim/allocator/block.hpp

// Knowledge that a policy declares and then gets; asking for more throws Error(policy).
enum class Needs : std::uint8_t {
  none = 0,
  future = 1,           // the Program: every later operator, access and lifetime
  op_times = 2,         // device time of single operators
  link_model = 4,       // transfer times of the machine
  op_events = 8,        // Policy::before_op is called for each operator
  op_stream = 16,       // operators as they run: name, signature, phase, operands; nothing of later ones
  measured_times = 32,  // device times of operators that are done, as events around each measure them
  places = 64,          // where storages lie in the allocator's segments: data_ptr(), memory_snapshot()
};
constexpr Needs operator|(Needs a, Needs b) {
  return static_cast<Needs>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool has(Needs set, Needs one) {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(one)) != 0;
}

constexpr Slot kNoSlot{kNever};

// Where a storage's bytes are. `dropped` (to be recomputed) is reserved for recomputing policies.
enum class Residency : std::uint8_t {
  absent,    // not allocated, or freed
  device,    // on the device only (or the host copy is stale)
  both,      // on the device, with a valid (or arriving) host copy
  outgoing,  // evicted, but its device bytes have not been handed on yet: still readable
  host,      // on the host only
  dropped,
};

// How the device bytes of an evicted storage become free again.
enum class ReleaseRule : std::uint8_t {
  stream_wait,   // whoever reuses the bytes waits for the copy on its stream; the host never does
  event_polled,  // record_stream: bytes return when the host sees the copy's event complete
};

// A view or device that does not implement the part of the interface that only online policies use.
[[noreturn]] inline void not_offered(const char* what) {
  throw Error(ErrorKind::policy, std::string(what) + ": not offered here");
}

// Read-only snapshot of a run, O(1) per query.
class View {
 public:
  virtual ~View() = default;

  virtual std::uint32_t position() const = 0;  // operator about to be issued
  virtual Nanos host_now() const = 0;
  virtual Bytes budget() const = 0;
  virtual Bytes allocated() const = 0;  // live device bytes, outgoing included
  virtual Bytes outgoing() const = 0;   // device bytes of evicted storages not handed on yet
  // Settings of the caching allocator; null with the ideal one, where free bytes never lie in pieces.
  virtual const AllocatorConfig* allocator_config() const { return nullptr; }

  virtual Bytes size(Slot) const = 0;
  virtual StorageClass storage_class(Slot) const = 0;
  virtual Residency residency(Slot) const = 0;
  virtual bool host_copy_valid(Slot) const = 0;  // evicting it needs no transfer
  // Resident (device or both), and not accessed by the operator about to be issued.
  virtual bool evictable(Slot) const = 0;
  virtual std::uint32_t last_use(Slot) const = 0;  // operator; its birth when never used
  // Storages in order of birth, the initial ones first: what ties are broken by. A Slot names a live storage
  // only, and may name another one once that has died (replay in bounded memory).
  virtual std::uint32_t birth_rank(Slot s) const { return index(s); }

  // Resident storages in order of last use: oldest() first, then newer(s); kNoSlot at the end.
  virtual Slot oldest() const = 0;
  virtual Slot newer(Slot) const = 0;

  // Needs::op_stream; `op` <= position(), else Error(policy). What operator hooks and the module, grad_fn
  // and optimizer hooks of a training framework tell.
  virtual NameId op_name(std::uint32_t) const { not_offered("operator names"); }
  virtual SigId op_signature(std::uint32_t) const { not_offered("operator signatures"); }
  virtual Phase op_phase(std::uint32_t) const { not_offered("operator phases"); }
  virtual std::span<const Access> operands(std::uint32_t) const { not_offered("operands"); }
  virtual std::string_view name_text(NameId) const { not_offered("operator names"); }
  // Allocations and frees before an operator, in order, as an allocator's hooks tell them; of the one about
  // to be issued only the frees that have happened.
  virtual std::span<const GapEvent> gap_events(std::uint32_t) const { not_offered("allocator events"); }
  // Time of the newest iteration that the device has finished by now, as two events around it would
  // measure it; -1 before the first.
  virtual Nanos last_iteration_time() const { not_offered("iteration times"); }
  // Needs::measured_times: device time of an operator issued before the last Actions::synchronize(), else
  // Error(policy). What recording the events costs is the policy's to charge.
  virtual Nanos measured_time(std::uint32_t) const { not_offered("measured times"); }

  // Needs::places: a copy of the allocator to try requests on, null with the ideal one; and the block in it
  // that holds a storage whose residency is device, both or outgoing.
  virtual std::shared_ptr<MemoryFork> fork_memory() const { not_offered("the allocator's blocks"); }
  virtual BlockId block(Slot) const { not_offered("the allocator's blocks"); }

  virtual const Program& program() const = 0;             // Needs::future
  virtual const AccessIndex& accesses() const = 0;        // Needs::future
  virtual std::uint32_t next_use(Slot) const = 0;         // Needs::future; kNever when none
  virtual Nanos device_time(std::uint32_t op) const = 0;  // Needs::op_times
  virtual const Machine& machine() const = 0;             // Needs::link_model
};

// The only way to act. An illegal call throws Error(policy) naming storage, operator and reason.
class Actions {
 public:
  virtual ~Actions() = default;
  // Starts the copy to the host unless a valid copy exists or is on its way, and gives the device
  // bytes up. Legal for evictable storages only.
  virtual void evict(Slot) = 0;
  // Starts a copy to the host; the storage stays on the device (early write-back). A later write
  // makes the copy stale. No effect when a valid copy exists. Legal for resident storages.
  virtual void copy_out(Slot) = 0;
  // Allocates device bytes and starts the copy back. False, without effect, when there is no room
  // (outgoing bytes count as room). No effect and true when it is on the device already.
  virtual bool prefetch(Slot) = 0;
  // Hands the device bytes of an evicted storage on now: the compute stream waits for its copy (the
  // planned point that stands in for record_stream). No effect unless its residency is `outgoing`.
  virtual void release(Slot) { not_offered("release"); }
  // Blocks the host until every copy to the host that was submitted is complete (synchronous swapping).
  virtual void wait_for_copies_out() { not_offered("wait_for_copies_out"); }
  // Blocks the host until the device has done everything that was submitted.
  virtual void synchronize() { not_offered("synchronize"); }
  // Host time that the policy's own work would take on the training process: its decisions, its profiling.
  virtual void spend_host_time(Nanos) = 0;
  virtual void spend_profiling_time(Nanos) { not_offered("spend_profiling_time"); }
};

enum class PlanAction : std::uint8_t { copy_out, evict, prefetch };

// Actions bound to positions: executed, in order, before operator `position` is issued and after
// the frees that precede it. A step that is not possible when reached (storage gone, pinned by the operator,
// no room) is skipped and counted.
struct PlanStep {
  std::uint32_t position;
  PlanAction action;
  Slot slot;
};
struct Plan {
  std::vector<PlanStep> steps;  // ascending position
};

// Extra figures that a policy reports.
struct PolicyMetric {
  std::string tag, unit, description;
  std::int64_t value;
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Called once, before the first operator, when the initial storages are in place.
  virtual Plan start(const View&, Actions&) { return {}; }
  // Only with Needs::op_events: before each operator, after its frees and plan steps.
  virtual void before_op(std::uint32_t, const View&, Actions&) {}
  virtual void end_iteration(std::uint32_t, const View&, Actions&) {}
  // Room is short: evict at least `shortfall` bytes of evictable storages if that is possible.
  // Returning without evicting anything ends the run as out_of_memory.
  virtual void make_room(Bytes shortfall, const View&, Actions&) = 0;
  virtual ReleaseRule release_rule() const { return ReleaseRule::stream_wait; }
  virtual std::vector<PolicyMetric> metrics() const { return {}; }
};

}  // namespace swaplab
