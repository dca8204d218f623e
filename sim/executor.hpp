// The host program: walks a Program, applies a policy and drives a device. Written once against the
// device and memory interfaces (virtual_device.hpp, memory.hpp), bound at compile time.
//
// Decisions and memory accounting happen in program order on the host clock; the device turns them
// into time. A storage's bytes carry tickets of whoever used them last, so their next user waits on
// its own stream and the host runs on (design.md, "Swap-out releases device memory by one of two rules").
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/host_pool.hpp"
#include "sim/memory.hpp"
#include "sim/policy_api.hpp"
#include "sim/program.hpp"
#include "sim/program_windows.hpp"
#include "sim/schedule.hpp"
#include "trace/error.hpp"

namespace swaplab {

// Ends a run; the outcome is a result, not an error.
struct RunEnded {
  Outcome outcome;
  std::string explanation;
};

template <class Device, class Memory>
class Executor final : public View, public Actions {
 public:
  // `schedule` may be null; otherwise entries and initial placement are appended to it. `windows`: null, or
  // `program` is its present window.
  Executor(const Program& program, const Machine& machine, Device& device, Memory& memory, Bytes budget,
           Needs needs, Schedule* schedule, ProgramWindow* windows = nullptr)
      : program_(program),
        machine_(machine),
        device_(device),
        memory_(memory),
        budget_(budget),
        needs_(needs),
        schedule_(schedule),
        windows_(windows),
        host_pool_(machine.host_memory),
        out_lane_(device.copy_lane(Direction::device_to_host)),
        in_lane_(device.copy_lane(Direction::host_to_device)),
        slots_(program.slot_count()),
        waited_(std::size_t{out_lane_ + 2u} * (out_lane_ + 2u), 0) {
    if (has(needs, Needs::future)) {
      access_index_ = index_accesses(program);
      next_access_.assign(access_index_.begin.begin(), access_index_.begin.end() - 1);
    }
    if (schedule_ != nullptr) device_.attach(&schedule_->entries);
  }

  // Runs the program to its end or to an early end, which it returns. Metrics of iterations whose end
  // was reached are complete once the device is finished.
  std::optional<RunEnded> run(Policy& policy);

  RunResult& result() { return result_; }
  Bytes host_pinned() const { return host_pool_.pinned(); }

  // ---- View
  std::uint32_t position() const override { return op_; }
  Nanos host_now() const override { return device_.host_now(); }
  Bytes budget() const override { return budget_; }
  Bytes allocated() const override { return memory_.allocated(); }
  Bytes outgoing() const override { return outgoing_bytes_; }
  const AllocatorConfig* allocator_config() const override { return memory_.config(); }
  Bytes size(Slot s) const override { return program_.bytes[index(s)]; }
  StorageClass storage_class(Slot s) const override { return program_.cls[index(s)]; }
  Residency residency(Slot s) const override {
    const SlotState& state = slots_[index(s)];
    return state.residency == Residency::device && state.host_valid ? Residency::both : state.residency;
  }
  bool host_copy_valid(Slot s) const override { return slots_[index(s)].host_valid; }
  bool evictable(Slot s) const override {
    return slots_[index(s)].residency == Residency::device && slots_[index(s)].pinned_for != op_;
  }
  std::uint32_t last_use(Slot s) const override { return slots_[index(s)].last_use; }
  std::uint32_t birth_rank(Slot s) const override {
    return windows_ == nullptr ? index(s) : program_.birth_rank[index(s)];
  }
  Slot oldest() const override { return Slot{oldest_}; }
  Slot newer(Slot s) const override { return Slot{slots_[index(s)].newer}; }
  NameId op_name(std::uint32_t op) const override { return seen(op), program_.name[program_.row(op)]; }
  SigId op_signature(std::uint32_t op) const override {
    return seen(op), program_.signature[program_.row(op)];
  }
  Phase op_phase(std::uint32_t op) const override { return seen(op), program_.phase[program_.row(op)]; }
  std::span<const Access> operands(std::uint32_t op) const override {
    return seen(op), program_.accesses_of(op);
  }
  std::span<const GapEvent> gap_events(std::uint32_t op) const override {
    seen(op);
    const auto events = program_.gap(op);
    if (op < op_ || issued_ > op) return events;
    std::size_t frees = 0;
    while (frees < events.size() && events[frees].is_free) ++frees;
    return events.first(frees);
  }
  std::string_view name_text(NameId name) const override { return program_.names[name]; }
  Nanos last_iteration_time() const override { return device_.last_iteration_time(); }
  Nanos measured_time(std::uint32_t op) const override {
    need(Needs::measured_times, "measured operator times");
    if (op >= done_) {
      throw Error(ErrorKind::policy, "the policy asked for the time of operator " + std::to_string(op) +
                                         ", which is not known to be done: synchronize first");
    }
    in_window(op);
    return device_.measured_time(op, program_.device_time[program_.row(op)]);
  }
  std::shared_ptr<MemoryFork> fork_memory() const override {
    need(Needs::places, "the allocator's blocks");
    return memory_.fork();
  }
  BlockId block(Slot s) const override {
    return need(Needs::places, "the allocator's blocks"), slots_[index(s)].block;
  }
  const Program& program() const override { return need(Needs::future, "the future"), program_; }
  const AccessIndex& accesses() const override { return need(Needs::future, "the future"), access_index_; }
  std::uint32_t next_use(Slot s) const override {
    need(Needs::future, "the future");
    const std::uint32_t row = next_access_[index(s)];
    return row < access_index_.begin[index(s) + 1] ? access_index_.ops[row] : kNever;
  }
  Nanos device_time(std::uint32_t op) const override {
    need(Needs::op_times, "operator times");
    in_window(op);
    return program_.device_time[program_.row(op)];
  }
  const Machine& machine() const override { return need(Needs::link_model, "the link model"), machine_; }

  // ---- Actions
  void evict(Slot slot) override;
  void copy_out(Slot slot) override;
  bool prefetch(Slot slot) override;
  void release(Slot slot) override;
  void wait_for_copies_out() override {
    device_.host_wait(out_lane_, device_.issued(out_lane_), Stall::memory);
  }
  void synchronize() override {
    device_.host_wait_all(Stall::profiling);
    done_ = issued_;
  }
  void spend_host_time(Nanos time) override { device_.host_spend(time, Stall::policy); }
  void spend_profiling_time(Nanos time) override { device_.host_spend(time, Stall::profiling); }

 private:
  struct SlotState {                          // one cache line
    Residency residency = Residency::absent;  // `both` is device with host_valid
    bool host_valid = false;                  // a copy of the current version is on the host or on its way
    bool has_host_block = false;
    std::uint16_t last_stream = 0;
    std::uint32_t pinned_for = kNever;             // operator that accesses it now
    std::uint32_t last_use = 0;                    // operator
    std::uint32_t older = kNever, newer = kNever;  // recency list of device storages
    typename Memory::Block block{};
    Ticket last_use_ticket = 0, last_write_ticket = 0;  // of last_stream
    Ticket in_ticket = 0, out_ticket = 0;               // of the latest copies
  };

  void place_initial();
  bool enter_next_window();
  void run_gap(std::uint32_t gap, Policy& policy, bool plan_due);
  void issue(std::uint32_t op);
  void run_plan(std::uint32_t position);
  void allocate(Slot slot);
  void free(Slot slot);
  void make_resident(Slot slot, std::uint16_t stream);
  void fetch(Slot slot);
  void start_copy_in(Slot slot);
  bool take(Slot slot, MemoryUser user, bool forced);
  void hand_on(Slot slot);
  void cancel_eviction(Slot slot);
  bool release_oldest_outgoing();
  void hand_on_outgoing(Slot slot);
  void require_host_block(Slot slot);
  void wait(std::uint16_t lane, std::uint16_t on, Ticket ticket);
  void order_after(std::uint16_t on, Ticket ticket);
  std::uint32_t log(ScheduleKind kind, std::uint32_t id, Bytes bytes, std::uint16_t stream);
  void end_iteration(Policy& policy, std::uint32_t which);
  std::string describe(Slot slot) const;
  RunEnded out_of_memory(Slot slot, bool fragmented) const;
  void need(Needs one, const char* what) const {
    if (!has(needs_, one)) {
      throw Error(ErrorKind::policy,
                  std::string("the policy asked for ") + what + ", which it did not declare to need");
    }
  }
  void seen(std::uint32_t op) const {
    need(Needs::op_stream, "operators as they run");
    if (op > op_ || op >= program_.op_count()) {
      throw Error(ErrorKind::policy, "the policy asked for operator " + std::to_string(op) + " at operator " +
                                         std::to_string(op_) + ": it has not run yet");
    }
    in_window(op);
  }
  void in_window(std::uint32_t op) const {
    if (op >= program_.first_op && op < program_.op_count()) return;
    throw Error(ErrorKind::policy, "the policy asked for operator " + std::to_string(op) + " at operator " +
                                       std::to_string(op_) +
                                       ": a replay in bounded memory keeps operators from " +
                                       std::to_string(program_.first_op) + " on");
  }
  void append_recent(std::uint32_t s) {
    slots_[s].older = newest_;
    slots_[s].newer = kNever;
    (newest_ == kNever ? oldest_ : slots_[newest_].newer) = s;
    newest_ = s;
  }
  void remove_recent(std::uint32_t s) {
    const SlotState& state = slots_[s];
    (state.older == kNever ? oldest_ : slots_[state.older].newer) = state.newer;
    (state.newer == kNever ? newest_ : slots_[state.newer].older) = state.older;
  }

  const Program& program_;
  const Machine& machine_;
  Device& device_;
  Memory& memory_;
  const Bytes budget_;
  const Needs needs_;
  Schedule* schedule_;
  ProgramWindow* const windows_;
  Policy* policy_ = nullptr;
  HostPool host_pool_;
  const std::uint16_t out_lane_, in_lane_;
  ReleaseRule release_rule_ = ReleaseRule::stream_wait;

  std::uint32_t op_ = 0, issued_ = 0;
  std::uint32_t done_ = 0;  // operators before it are known to be done
  std::vector<SlotState> slots_;
  std::uint32_t oldest_ = kNever, newest_ = kNever;
  std::vector<Slot>
      outgoing_;  // evicted, bytes not handed on: FIFO from outgoing_head_, may hold stale entries
  std::size_t outgoing_head_ = 0;
  Bytes outgoing_bytes_{0};
  std::vector<Ticket> waited_;  // [lane][on]: ticket already waited for
  AccessIndex access_index_;
  std::vector<std::uint32_t> next_access_;
  Plan plan_;
  std::size_t plan_next_ = 0;
  RunResult result_;
  IterationMetrics current_;
};

}  // namespace swaplab

#include "sim/executor_impl.hpp"  // IWYU pragma: export
