#include "sim/bounds/host_clock.hpp"

namespace swaplab {

HostRules host_rules(const Machine& machine) {
  return {true, machine.host.launch_latency, machine.host.sync_resume, machine.host.alloc_cached,
          machine.launch_queue_depth};
}

HostClock::HostClock(const Program& program) : launched_(program.stream_count) {
  const std::uint32_t n = program.op_count();
  issuing_.reserve(n);
  allocations_.reserve(n);
  synchronizations_.reserve(n);
  place_.reserve(n);
  stream_.reserve(n);
  Nanos issuing{0};
  std::int64_t allocations = 0, synchronizations = 0;
  for (std::uint32_t op = 0; op < n; ++op) {
    issuing += program.host_time[op];
    for (const GapEvent& event : program.gap(op)) allocations += event.is_free ? 0 : 1;
    issuing_.push_back(issuing);
    allocations_.push_back(allocations);
    synchronizations_.push_back(synchronizations);
    auto& launched = launched_[program.stream[op]];
    stream_.push_back(program.stream[op]);
    place_.push_back(static_cast<std::uint32_t>(launched.size()));
    if ((program.op_flags[op] & kKernel) != 0) launched.push_back(op);
    if ((program.op_flags[op] & kSync) == 0) continue;
    ++synchronizations;
    if (!launched.empty()) syncs_.push_back({op, launched.back()});
  }
}

std::uint32_t HostClock::launched_before(std::uint32_t kernel, std::int64_t depth) const {
  const std::int64_t place = std::int64_t{place_[kernel]} - depth;
  return place < 0 ? kNever : launched_[stream_[kernel]][static_cast<std::size_t>(place)];
}

}  // namespace swaplab
