// What the host must have spent before it launches an operator, whatever is swapped.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/machine.hpp"
#include "sim/program.hpp"

namespace swaplab {

// Costs that no policy avoids.
struct HostRules {
  bool counts = false;  // false: the host is for free
  Nanos launch_latency, sync_resume, alloc_cached;
  std::int64_t launch_queue_depth = 0;  // 0: unlimited
};
HostRules host_rules(const Machine& machine);

// Sums over a program's operators, once for all windows.
class HostClock {
 public:
  explicit HostClock(const Program& program);

  // Host time spent from the run's beginning until operator `op` is launched: issuing it and those before it,
  // taking the bytes of what they create, coming back from synchronizations.
  std::int64_t spent(std::uint32_t op, const HostRules& rules) const {
    return issuing_[op].value + allocations_[op] * rules.alloc_cached.value +
           synchronizations_[op] * rules.sync_resume.value;
  }

  // The host does not go on behind `op` before `kernel` has ended.
  struct Sync {
    std::uint32_t op, kernel;
  };
  const std::vector<Sync>& syncs() const { return syncs_; }  // ascending by op

  // The kernel of the same stream `depth` launches before `kernel`; kNever: none.
  std::uint32_t launched_before(std::uint32_t kernel, std::int64_t depth) const;

 private:
  std::vector<Nanos> issuing_;                  // including the operator
  std::vector<std::int64_t> allocations_;       // the same
  std::vector<std::int64_t> synchronizations_;  // before the operator
  std::vector<Sync> syncs_;
  std::vector<std::uint32_t> place_, stream_;         // per operator; of kernels
  std::vector<std::vector<std::uint32_t>> launched_;  // per stream
};

}  // namespace swaplab
