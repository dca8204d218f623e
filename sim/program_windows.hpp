// A trace that need not fit in memory, replayed window by window: only the operators of one window, and the
// storages that live in it, are compiled at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "sim/program.hpp"
#include "trace/io.hpp"

namespace swaplab {

// What a replay must know before it starts, found by one pass over the whole trace.
struct ProgramTotals {
  Bytes peak_bytes, largest_working_set;  // as in Program
  std::uint32_t largest_working_set_op = 0;
  NameId largest_working_set_name{};
  std::uint16_t stream_count = 1;
};

// One pass over the operators. Windows are whole iterations, together at least kWindowOps operators; only an
// iteration of more than kLongestWindow is cut.
class ProgramWindow {
 public:
  static constexpr std::uint32_t kWindowOps = 1u << 17, kLongestWindow = 1u << 22;

  // Stands at the first window. The trace must outlive it. `progress` (may be empty) gets the number of
  // operators compiled so far.
  ProgramWindow(const MappedTrace& trace, const Machine& machine, TimeSource times,
                std::uint32_t window_ops = kWindowOps, std::function<void(std::uint32_t)> progress = {});
  ~ProgramWindow();
  ProgramWindow(ProgramWindow&&) noexcept;

  // The present window: columns from first_op on (the last operator of the window before stands first), every
  // iteration of the trace; peaks and streams as seen so far. Slots are used again: those that died before
  // the window before the present one began.
  const Program& program() const;
  // Moves on; false, without effect, when the present window is the last. Throws Error(input) as
  // compile_program at the end of the trace.
  bool advance();
  // Slots whose next user is another storage than before, as of the latest advance().
  std::span<const Slot> recycled() const { return recycled_; }

 private:
  void fill();

  const MappedTrace& trace_;
  std::uint32_t window_ops_;
  std::function<void(std::uint32_t)> progress_;
  std::unique_ptr<class ProgramCompiler> compiler_;
  std::vector<Slot> recycled_;
  bool last_ = false;
};

class ProgramWindows {
 public:
  // Scans the trace once. Throws as compile_program.
  ProgramWindows(std::shared_ptr<const MappedTrace> trace, const Machine& machine, TimeSource times,
                 std::uint32_t window_ops = ProgramWindow::kWindowOps,
                 std::function<void(std::uint32_t)> progress = {});

  const MappedTrace& trace() const { return *trace_; }
  TimeSource times() const { return times_; }
  const ProgramTotals& totals() const { return totals_; }
  // Independent of each other; may be used from many threads.
  ProgramWindow open(const Machine& machine, std::function<void(std::uint32_t)> progress = {}) const;

 private:
  std::shared_ptr<const MappedTrace> trace_;
  TimeSource times_;
  std::uint32_t window_ops_;
  ProgramTotals totals_;
};

}  // namespace swaplab
