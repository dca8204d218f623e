// The hardware that a replay drives: lanes of work that run by themselves, tickets, pinned host blocks and
// one reservation of device memory. A CUDA device, or threads of this computer.
//
// Lanes are as in sim/virtual_device.hpp: compute streams 0 .. n-1, then copies to the host, then copies to
// the device. Work of one lane runs in order; lanes run at the same time. One host thread drives it all.
// Any call may throw Error(input) naming what the hardware refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_validate/content.hpp"
#include "sim/machine.hpp"
#include "sim/virtual_device.hpp"

namespace swaplab {

// What a surrogate kernel does with its time.
enum class KernelKind : std::uint8_t {
  spin,     // occupies the lane, and nothing else
  compute,  // multiply-adds in registers, as many as fit into the duration when nothing else runs
  memory,   // reads and writes device memory, as many bytes as fit likewise
};
std::string_view kernel_kind_name(KernelKind kind);

struct Operand {
  std::uintptr_t address = 0;  // where the accelerator sees it
  std::uint64_t bytes = 0;
  ContentKey expected = 0;  // content to find; 0: not read
  ContentKey written = 0;   // content to leave; 0: not written
  std::uint32_t slot = 0;   // for findings
};

struct KernelWork {
  Nanos duration;
  KernelKind kind = KernelKind::spin;
  Sampling sampling{};
  std::span<const Operand> operands;  // copied by launch()
};

struct CopyWork {
  Direction direction = Direction::host_to_device;
  std::byte* host = nullptr;
  std::uintptr_t device = 0;
  std::uint64_t bytes = 0;
  Nanos at_least{0};        // the copy is stretched to this time (accelerators that can)
  ContentKey expected = 0;  // to the device: content to find on arrival; 0: not looked at
  Sampling sampling{};
  std::uint32_t slot = 0;
};

// A word that was not what it had to be. The first of each piece of work is kept.
struct Finding {
  std::uint16_t lane = 0;
  Ticket ticket = 0;
  std::uint32_t slot = 0;
  std::uint64_t word = 0;  // number of the word in the storage
  std::uint64_t expected = 0, found = 0;
};

struct VerifyCounts {
  std::uint64_t operands = 0, swap_ins = 0, words = 0, wrong_words = 0;
  VerifyCounts& operator+=(const VerifyCounts& other) {
    operands += other.operands;
    swap_ins += other.swap_ins;
    words += other.words;
    wrong_words += other.wrong_words;
    return *this;
  }
};

// When a piece of work ran, on the clock of host_now().
struct WorkTime {
  Nanos begin, end;
};

struct AcceleratorInfo {
  std::string kind;  // "cuda" or "host"
  std::string name, driver, runtime;
  bool stretches_copies = false;  // CopyWork::at_least has an effect
  Nanos dispatch_grain{0};        // host waits shorter than this are saved up (see RealDevice)
};

enum class MemoryMode : std::uint8_t {
  reservation,     // one reservation, divided by our caching allocator
  stream_ordered,  // cudaMallocAsync for every storage (our allocator still decides what fits)
  vmm,             // one address range; segments and pages of our allocator are mapped and unmapped
};
std::string_view memory_mode_name(MemoryMode mode);
// Throws Error(usage) with a suggestion.
MemoryMode parse_memory_mode(std::string_view text);

struct AcceleratorOptions {
  std::uint16_t compute_streams = 1;
  MemoryMode memory = MemoryMode::reservation;
  Bytes reservation{0};             // real bytes of address space for segments
  Bytes range_reservation{0};       // the same for expandable segments
  std::int64_t queue_depth = 1024;  // work in flight per lane before a launch blocks the host; 0 = unlimited
};

class Accelerator {
 public:
  Accelerator() = default;
  virtual ~Accelerator() = default;  // waits for nothing; work still queued is dropped or finished
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  virtual const AcceleratorInfo& info() const = 0;

  // ---- work. Tickets of a lane count from 1.
  virtual Ticket launch(std::uint16_t lane, const KernelWork& work) = 0;
  virtual Ticket copy(std::uint16_t lane, const CopyWork& work) = 0;
  virtual void wait(std::uint16_t lane, std::uint16_t on, Ticket ticket) = 0;
  virtual bool query(std::uint16_t lane, Ticket ticket) = 0;
  virtual void synchronize(std::uint16_t lane, Ticket ticket) = 0;
  virtual Ticket issued(std::uint16_t lane) const = 0;

  // ---- memory
  virtual std::byte* pin(Bytes bytes) = 0;  // content unspecified; released with the accelerator
  // Addresses of byte 0 of the reservation and of that for expandable segments (0: none reserved).
  virtual std::uintptr_t reservation() const = 0;
  virtual std::uintptr_t range_reservation() const = 0;
  // VMM mode: physical memory behind [address, address + bytes). No effect otherwise.
  virtual void map(std::uintptr_t address, Bytes bytes) = 0;
  virtual void unmap(std::uintptr_t address, Bytes bytes) = 0;
  // Stream-ordered mode: memory that work of `lane` submitted from now on can use.
  virtual std::uintptr_t allocate(std::uint16_t lane, Bytes bytes) = 0;
  virtual void release(std::uint16_t lane, std::uintptr_t address) = 0;
  virtual Bytes peak_device_bytes() const = 0;  // device memory taken, at most; 0 when not known

  // ---- clock and results
  virtual Nanos host_now() const = 0;                            // since the accelerator was opened
  virtual void spend(Nanos time) = 0;                            // the host thread works for that time
  virtual WorkTime time(std::uint16_t lane, Ticket ticket) = 0;  // of completed work
  virtual std::vector<Finding> findings() = 0;                   // of completed work; at most 1000 a lane
  virtual VerifyCounts verified() = 0;                           // likewise
};

// Threads of this computer, one per lane, and real buffers.
std::unique_ptr<Accelerator> open_host_accelerator(const AcceleratorOptions& options);

}  // namespace swaplab
