// The executor side of a plan: finds the plan's tensors in the running iteration and moves them when their
// stages come.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "policy/chameleon/fingerprint.hpp"
#include "policy/chameleon/generator.hpp"
#include "policy/chameleon/profiler.hpp"
#include "sim/policy_api.hpp"

namespace swaplab::chameleon {

struct RunnerParams {
  bool fuzzy = true;    // fingerprints; else operator and argument numbers
  bool swap_in = true;  // at the planned stage; else at first use
  bool last_out_first_in = true;
  bool planned_release = true;  // at the free stage; else when the bytes are needed
};

struct RunnerCounts {
  std::int64_t planned = 0, matched = 0, already_out = 0, pinned = 0, not_found = 0;
  std::int64_t swap_ins = 0, no_room = 0;
};

// Told of copies that it starts (for the detailed profiler).
class SwapObserver {
 public:
  virtual ~SwapObserver() = default;
  virtual void on_swap(bool out, Slot slot, const View& view) = 0;
};

class PlanRunner {
 public:
  explicit PlanRunner(RunnerParams params) : params_(params) {}

  // Takes over a plan made from `profile`, made by DetailedProfiler. `tokens`: its operators. Tensors that
  // outlive the iteration (optimizer state) are known by identity.
  void load(const SwapPlan& plan, const IterationProfile& profile, const GeneratorParams& generator,
            std::span<const std::uint32_t> tokens);
  void clear();
  bool loaded() const { return loaded_; }
  // Smallest tensor that it looks at.
  Bytes smallest() const { return smallest_; }

  void begin_iteration(const View& view);
  // After operator `op` of the run, number `offset` of the iteration, in step `at`.
  void after_op(std::uint32_t op, std::uint32_t offset, std::uint32_t token, const StepTracker& at,
                const View& view, Actions& actions, SwapObserver& observer);
  // Before an operator in step `at`: what its stage and those before it ask for.
  void before_op(const StepTracker& at, const View& view, Actions& actions, SwapObserver& observer);
  const RunnerCounts& counts() const { return counts_; }

 private:
  struct Entry {
    Fingerprint print;
    std::uint32_t offset,
        argument;  // operator of the iteration after which it leaves, and which operand it is
    std::uint32_t out_stage, in_stage, free_stage;
    Remembered persistent;  // optimizer state; kNoSlot else
    bool done;
  };
  std::uint32_t stage_of(const StepTracker& at) const;  // index, kNever when the plan has no such stage
  void swap_out(Entry& entry, Slot slot, const View& view, Actions& actions, SwapObserver& observer);
  static std::uint64_t key_of(const Fingerprint& print, std::uint32_t stage);
  static std::uint64_t key_of(std::uint32_t offset, std::uint32_t argument) {
    return std::uint64_t{offset} << 32 | argument;
  }

  RunnerParams params_;
  bool loaded_ = false;
  Bytes smallest_{0};
  std::vector<std::int64_t> layers_[2];  // boundaries, forward and backward
  bool boundary_starts_layer_ = false;   // v2
  bool single_layer_ = false;
  std::unordered_map<std::uint64_t, std::uint32_t> stage_index_;
  std::vector<Entry> entries_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> by_key_;
  std::vector<std::uint32_t> persistent_;  // entries of optimizer state
  Fingerprints prints_;
  // Of the running iteration.
  std::uint32_t stage_ = 0;                   // stages below it have begun
  std::vector<std::vector<Slot>> in_, free_;  // per stage, in order of swap-out
  std::vector<Slot> late_;                    // swap-ins that found no room
  RunnerCounts counts_;
};

}  // namespace swaplab::chameleon
