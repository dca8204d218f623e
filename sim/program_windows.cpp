#include "sim/program_windows.hpp"

#include <algorithm>
#include <utility>

#include "sim/program_compiler.hpp"

namespace swaplab {

ProgramWindow::ProgramWindow(const MappedTrace& trace, const Machine& machine, TimeSource times,
                             std::uint32_t window_ops, std::function<void(std::uint32_t)> progress)
    : trace_(trace),
      window_ops_(window_ops),
      progress_(std::move(progress)),
      compiler_(std::make_unique<ProgramCompiler>(trace.trace, machine, times, trace.forget_pages)) {
  fill();
}
ProgramWindow::~ProgramWindow() = default;
ProgramWindow::ProgramWindow(ProgramWindow&&) noexcept = default;

const Program& ProgramWindow::program() const {
  return compiler_->program();
}

bool ProgramWindow::advance() {
  if (last_) return false;
  const std::span<const Slot> recycled = compiler_->next_window();
  recycled_.assign(recycled.begin(), recycled.end());
  fill();
  return true;
}

void ProgramWindow::fill() {
  const Program& p = compiler_->program();
  const std::uint32_t first = p.op_count();
  const auto all = static_cast<std::uint32_t>(trace_.trace.ops.size());
  const auto longest =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(all, std::uint64_t{first} + kLongestWindow));
  // The first end of an iteration that makes the window large enough.
  const auto enough = [&](const ProgramIteration& it) {
    return it.end_op >= std::uint64_t{first} + window_ops_;
  };
  const auto it = std::find_if(p.iterations.begin(), p.iterations.end(), enough);
  compiler_->append(it == p.iterations.end() ? longest : std::min(it->end_op, longest));
  last_ = p.op_count() == all;
  if (last_) compiler_->close();
  trace_.forget_pages();
  if (progress_) progress_(p.op_count());
}

ProgramWindows::ProgramWindows(std::shared_ptr<const MappedTrace> trace, const Machine& machine,
                               TimeSource times, std::uint32_t window_ops,
                               std::function<void(std::uint32_t)> progress)
    : trace_(std::move(trace)), times_(times), window_ops_(window_ops) {
  ProgramWindow window = open(machine, std::move(progress));
  while (window.advance()) {
  }
  const Program& p = window.program();
  totals_ = {p.peak_bytes, p.largest_working_set, p.largest_working_set_op,
             trace_->trace.signatures.name[index(trace_->trace.ops.signature[p.largest_working_set_op])],
             p.stream_count};
}

ProgramWindow ProgramWindows::open(const Machine& machine,
                                   std::function<void(std::uint32_t)> progress) const {
  return {*trace_, machine, times_, window_ops_, std::move(progress)};
}

}  // namespace swaplab
