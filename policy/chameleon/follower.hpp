// Following: the plan in force, step by step as the run gets there, and the one that takes over from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/chameleon/alignment.hpp"
#include "policy/chameleon/learned.hpp"
#include "policy/chameleon/predicted_use.hpp"
#include "sim/policy_api.hpp"

namespace swaplab::adaptive {

class Follower {
 public:
  // `window`: operators ahead that swap-in without a plan looks, and within which a storage is wanted soon.
  explicit Follower(std::int64_t window) : window_(static_cast<std::uint32_t>(window)) {}

  // Another sequence: no plan.
  void clear();
  // A plan that can be followed from operator `from` of the sequence on, and from `ready` on of the host's
  // time.
  void offer(std::vector<Step> steps, std::uint32_t from, Nanos ready);
  // The same, and as the sequence begins: what was planned while the one before ran is in force at once.
  void bridge(std::vector<Step> steps, Nanos ready);

  bool in_force() const { return in_force_; }
  bool offered() const { return offered_; }
  // Steps of the plan in force that are still to come.
  std::span<const Step> rest() const {
    return std::span<const Step>(steps_).subspan(next_ < steps_.size() ? next_ : steps_.size());
  }

  // The plan offered takes over when the run has come to its operator. Where places count it is waited for;
  // bytes alone forgive a late start.
  void take_over(std::uint32_t here, bool places, const View& view, Actions& actions);
  // The steps that are due; swap-ins that found no room are tried again.
  void run(const Alignment& at, const PredictedUse& use, const View& view, Actions& actions);
  // Without a plan: swap-in of what is used a window ahead and is not here, for whatever reason.
  void look_ahead(const Alignment& at, const View& view, Actions& actions);

  // Every eviction is made here, so that leaving() is complete.
  void evict(Slot slot, const View& view, Actions& actions);
  // Storages on their way out, oldest first.
  std::vector<Slot> leaving(const View& view);

 private:
  const std::uint32_t window_;
  std::vector<Step> steps_, fresh_;  // followed; offered
  std::size_t next_ = 0;             // of steps_
  bool in_force_ = false, offered_ = false;
  std::uint32_t from_ = 0, ahead_ = 0;  // of fresh_; operators looked ahead at
  Nanos ready_{0};                      // of fresh_
  std::vector<Slot> late_;              // planned swap-ins that found no room
  std::vector<Remembered> leaving_;     // some handed on since
};

}  // namespace swaplab::adaptive
