// One pass over the entries of a schedule in issue order: order and times of operators and copies,
// and where the content of each storage is.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/checker/facts.hpp"
#include "sim/checker/findings.hpp"
#include "sim/machine.hpp"
#include "sim/schedule.hpp"

namespace swaplab::checker {

// Device bytes from an acquire to its release, with the time during which they are really in use:
// from the start of the first kernel or copy on them to the end of the last.
struct Residency {
  std::uint32_t life;
  std::uint64_t acquired;  // entry; entries.size() for those there from the start
  Bytes bytes;
  bool from_start = false;  // holds content at time 0
  bool repeated = false;    // an acquire entry repeated the initial placement
  bool released = false;
  bool active = false;  // has any kernel or copy
  Nanos first{0}, last{0};
};

struct KernelTime {
  Nanos start, end;
};

// Recomputed figures of one iteration; entries before an operator belong to the operator's iteration.
struct IterationFigures {
  Nanos last_kernel_end{0};  // of this and all earlier iterations
  Bytes bytes_out{0}, bytes_in{0}, peak_acquired{0};
  std::uint32_t copies_out = 0, copies_in = 0;
  bool complete = false;  // its last operator was issued
};

struct WalkResult {
  std::uint32_t operators = 0;  // issued, in order
  std::vector<KernelTime> kernels;
  std::vector<Residency> residencies;
  std::vector<IterationFigures> iterations;  // one per iteration of the trace
  Bytes peak_only_on_host{0};                // live storages whose only content is on the host
};

class Walk {
 public:
  Walk(const Schedule& schedule, const Trace& trace, const Facts& facts, const Machine& machine,
       Findings& findings);
  WalkResult run();

 private:
  // What is known about the content of one life.
  struct Content {
    std::uint32_t residency = kNever;  // open one
    bool ever_acquired = false;
    bool on_device = false;     // the open residency holds the current version
    Nanos ready{0};             // since when, if it came from the host
    std::uint64_t version = 0;  // counts writes
    Nanos written{0};           // end of the kernel that wrote the version
    Nanos accessed{0};          // end of the last kernel on it
    Nanos copied_out{0};        // end of the last copy to the host, of any version
    bool host_valid = false;    // the host has, or gets, the current version
    Nanos host_ready{0};        // since when
    bool counted_on_host = false;
  };

  void place_initial();
  void enter_position();  // of operator result_.operators
  void check_entry(std::uint64_t e);
  void check_operator(std::uint64_t e);
  void check_kernel(std::uint64_t e, std::uint32_t op, Nanos previous_end);
  void check_use(std::uint64_t e, std::uint32_t op, const Use& use);
  void check_copy(std::uint64_t e, Direction direction);
  void check_copy_out(std::uint64_t e, std::uint32_t life);
  void check_copy_in(std::uint64_t e, std::uint32_t life);
  void check_acquire(std::uint64_t e);
  void check_release(std::uint64_t e);
  void open_residency(std::uint32_t life, std::uint64_t e, bool from_start);
  void check_end();
  std::uint32_t life_for_acquire(std::uint32_t storage, Bytes bytes) const;
  void touch(std::uint32_t residency, Nanos start, Nanos end);
  void leave_host(std::uint32_t life);
  bool works_without_storages(std::uint32_t op) const;
  Nanos device_time(std::uint32_t op);
  // Of the next operator; null after the last one.
  IterationFigures* iteration() {
    return iteration_ < result_.iterations.size() ? &result_.iterations[iteration_] : nullptr;
  }
  bool live(std::uint32_t life) const {  // at the present position, boundary gap included
    const Life& l = facts_.lives[life];
    return l.birth <= result_.operators && (l.death == kNever || l.death >= result_.operators);
  }
  std::string storage_text(std::uint32_t life) const;
  std::string operator_text(std::uint32_t op) const;

  const Schedule& schedule_;
  const Trace& trace_;
  const Facts& facts_;
  const Machine& machine_;
  Findings& findings_;

  std::vector<Content> contents_;      // per life
  std::vector<std::uint32_t> open_;    // per storage: life whose residency is open
  std::vector<Nanos> stream_end_;      // per compute stream
  std::array<Nanos, 2> lane_end_{};    // per copy direction
  std::vector<Nanos> signature_time_;  // modelled, -1 not yet
  Nanos host_now_{0};                  // latest host time that an entry shows
  Nanos last_kernel_end_{0};
  Bytes acquired_{0}, only_on_host_{0};
  std::size_t iteration_ = 0;
  WalkResult result_;
};

}  // namespace swaplab::checker
