#include "sim/bounds/kernel_order.hpp"

#include <algorithm>
#include <span>

namespace swaplab {
namespace {

bool is_kernel(const Program& program, std::uint32_t op) {
  return !program.accesses_of(op).empty() || program.device_time[op] > Nanos{0};
}

// For each operator, those that it directly follows: on its stream, and the writers of what it reads.
class Predecessors {
 public:
  explicit Predecessors(const Program& program) {
    std::vector<std::uint32_t> on_stream(program.stream_count, kNever), writer(program.slot_count(), kNever);
    begin_.reserve(program.op_count() + std::size_t{1});
    begin_.push_back(0);
    for (std::uint32_t op = 0; op < program.op_count(); ++op) {
      if (is_kernel(program, op)) {
        std::uint32_t& previous = on_stream[program.stream[op]];
        add(previous);
        previous = op;
        for (const Access& access : program.accesses_of(op)) {
          if ((access.flags & kRead) != 0) add(writer[index(access.slot)]);
        }
        for (const Access& access : program.accesses_of(op)) {
          if ((access.flags & kWrite) != 0) writer[index(access.slot)] = op;
        }
      }
      begin_.push_back(ops_.size());
    }
  }
  std::span<const std::uint32_t> of(std::uint32_t op) const {
    return {ops_.data() + begin_[op], ops_.data() + begin_[op + 1]};
  }

 private:
  void add(std::uint32_t op) {
    if (op != kNever) ops_.push_back(op);
  }
  std::vector<std::size_t> begin_;
  std::vector<std::uint32_t> ops_;
};

// A longest chain by device time, of equals the one with later kernels.
std::vector<std::uint32_t> longest_chain(const Program& program, const Predecessors& before) {
  std::vector<Nanos> end(program.op_count(), Nanos{0});
  std::vector<std::uint32_t> previous(program.op_count(), kNever);
  std::uint32_t last = kNever;
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    if (!is_kernel(program, op)) continue;
    std::uint32_t& best = previous[op];
    for (const std::uint32_t p : before.of(op)) {
      if (best == kNever || end[p] > end[best] || (end[p] == end[best] && p > best)) best = p;
    }
    end[op] = (best == kNever ? Nanos{0} : end[best]) + program.device_time[op];
    if (last == kNever || end[op] >= end[last]) last = op;
  }
  std::vector<std::uint32_t> chain;
  for (; last != kNever; last = previous[last]) chain.push_back(last);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

}  // namespace

KernelOrder::KernelOrder(const Program& program) {
  std::uint32_t first = kNever;
  bool several = false;
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    if (!is_kernel(program, op)) continue;
    if (first == kNever) first = op;
    several |= program.stream[op] != program.stream[first];
    spine_.push_back(op);
  }
  if (!several) return;

  const Predecessors before(program);
  spine_ = longest_chain(program, before);
  after_.assign(program.op_count(), kRunStart);
  before_.assign(program.op_count(), static_cast<std::int32_t>(program.op_count()));
  for (const std::uint32_t op : spine_) after_[op] = before_[op] = static_cast<std::int32_t>(op);
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    for (const std::uint32_t p : before.of(op)) after_[op] = std::max(after_[op], after_[p]);
  }
  for (std::uint32_t op = program.op_count(); op-- > 0;) {
    for (const std::uint32_t p : before.of(op)) before_[p] = std::min(before_[p], before_[op]);
  }
}

}  // namespace swaplab
