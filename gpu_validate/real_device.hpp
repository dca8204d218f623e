// The device that the executor (sim/executor.hpp) drives when work is real: it knows which storage is where
// and in which version, gives each piece of work to an accelerator with what it reads and writes, and turns
// what was measured into the figures of a simulated run.
//
// Real bytes = simulated bytes / bytes_divisor; real time = trace time x time_scale. Times that the executor
// sees are real times / time_scale, so that they compare with simulated ones.
//
// Host costs: an operator's own host time is spent (host_dispatch), and so is what a policy charges for its
// decisions and its profiling; costs of API calls are not, since the calls are really made.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu_validate/accelerator.hpp"
#include "gpu_validate/host_blocks.hpp"
#include "gpu_validate/lane_accounting.hpp"
#include "sim/machine.hpp"
#include "sim/program.hpp"

namespace swaplab {

struct RealDeviceOptions {
  std::int64_t bytes_divisor = 1;   // 1 to 64, a power of two: blocks are multiples of 512 B, words are 8 B
  Ppm time_scale = kUnchanged;      // > 0
  std::uint32_t verify_stride = 1;  // every n-th word is checked; 0: nothing is
  bool stretch_copies = true;       // copies take at least the machine's time, where the accelerator can
  MemoryMode memory = MemoryMode::reservation;
  Bytes reservation{0}, range_reservation{0};     // as the accelerator was opened with
  std::array<KernelKind, kOpClassCount> kinds{};  // by OpClass; spin unless said
  const std::atomic<bool>* interrupted = nullptr;
};

// Thrown out of the executor when `interrupted` is set.
struct Interrupted {};

class RealDevice {
 public:
  using Snapshot = VirtualDevice::Snapshot;

  // `program`, `machine` and `accelerator` must outlive it. Throws Error(usage) for options out of range.
  RealDevice(const Program& program, const Machine& machine, Accelerator& accelerator,
             const RealDeviceOptions& options);

  // ---- as VirtualDevice
  std::uint16_t copy_lane(Direction direction) const {
    return static_cast<std::uint16_t>(compute_streams_ + static_cast<std::uint16_t>(direction));
  }
  Nanos host_now() const { return to_model(accelerator_.host_now()); }
  void host_spend(Nanos) {}
  void host_spend(Nanos time, Stall reason);
  void host_dispatch(Nanos time);
  void host_wait(std::uint16_t lane, Ticket ticket, Stall reason);
  void host_wait_all(Stall reason);
  bool query(std::uint16_t lane, Ticket ticket) { return accelerator_.query(lane, ticket); }
  Ticket launch(std::uint16_t stream, Nanos duration, std::uint32_t log, std::uint32_t op,
                std::span<const Access> accesses);
  // Between the events around the operator's kernel; 0 when it launched none. Of operators that are done.
  Nanos measured_time(std::uint32_t op, Nanos simulated);
  Ticket copy(Direction direction, Bytes bytes, std::uint32_t log, Slot slot);
  void wait(std::uint16_t lane, std::uint16_t on, Ticket ticket);
  Ticket issued(std::uint16_t lane) const { return accelerator_.issued(lane); }
  Ticket bytes_taken(Slot slot, std::uint64_t address, bool arriving);
  void bytes_given(Slot slot);
  void host_block_taken(Slot slot);
  void host_block_given(Slot slot);
  void memory_mapped(std::uint64_t address, std::uint64_t size, std::uint64_t piece);
  void memory_unmapped(std::uint64_t address, std::uint64_t size);
  void attach(std::vector<ScheduleEntry>* log) { log_ = log; }
  void end_iteration();
  Nanos last_iteration_time();
  // Waits for everything, then takes the times of all work.
  void finish();
  const std::vector<Snapshot>& snapshots() const { return snapshots_; }

  // ---- after finish()
  const LaneHistory& history() const { return history_; }
  const std::vector<StallSlice>& stalls() const { return stalls_; }
  // Real bytes that a storage has here.
  Bytes held_bytes(Slot slot) const {
    return Bytes{static_cast<std::int64_t>(real_bytes(program_.bytes[index(slot)]))};
  }
  // The work that a finding is about.
  const LaneEvent& work(std::uint16_t lane, Ticket ticket) const;
  // "version 2 of storage 17", or nothing when the word is no storage's: neither now nor in the past.
  std::optional<std::pair<Slot, std::uint32_t>> owner_of(std::uint64_t word, std::uint64_t number) const;

 private:
  struct Storage {
    std::uintptr_t address = 0;  // 0: not on the device
    std::uint32_t version = 0;
    bool content = false;       // some version was written, or it came from outside
    bool from_outside = false;  // no operator creates its content
    bool has_block = false;
    HostBlock block;
    // For memory that is released in stream order: who used it last.
    std::uint16_t used_on = 0;
    Ticket used = 0, in = 0, out = 0;
  };

  Nanos to_real(Nanos model) const;
  Nanos to_model(Nanos real) const;
  std::uint64_t real_bytes(Bytes bytes) const {
    return (static_cast<std::uint64_t>(bytes.value) + divisor_ - 1) / divisor_;
  }
  std::uintptr_t real_address(std::uint64_t address) const;
  Bytes real_extent(std::uint64_t size) const { return Bytes{static_cast<std::int64_t>(size / divisor_)}; }
  void check_extent(std::uint64_t address, std::uint64_t size) const;
  Sampling next_sampling();
  void note(std::uint16_t lane, const LaneEvent& event);
  void begin_measuring();
  Storage& storage(Slot slot) { return storages_[index(slot)]; }

  const Program& program_;
  const Machine& machine_;
  Accelerator& accelerator_;
  const RealDeviceOptions options_;
  const std::uint64_t divisor_;
  const std::uint16_t compute_streams_;
  HostBlocks blocks_;
  std::vector<Storage> storages_;
  std::vector<KernelKind> kind_of_;  // by name id; filled on demand
  std::vector<std::uint8_t> kind_known_;
  std::vector<Ticket> ticket_of_;  // by operator, on its stream; 0: not launched
  std::vector<Operand> operands_;  // of the operator at hand
  std::uint32_t sampling_phase_ = 0;
  bool measuring_ = false;
  Nanos owed_{0};  // real host time that is still to be spent
  std::size_t complete_markers_ = 0;
  Nanos newest_iteration_{-1}, last_marker_{0};
  LaneHistory history_;
  std::vector<Snapshot> snapshots_;
  std::vector<StallSlice> stalls_;
  std::vector<ScheduleEntry>* log_ = nullptr;
};

}  // namespace swaplab
