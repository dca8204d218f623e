// Tries tunings on what the predicted operators are, and keeps the plan that takes least.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "policy/chameleon/ahead.hpp"
#include "policy/foresight_study.hpp"

namespace swaplab::adaptive {

class AheadSearch {
 public:
  // `state` null: only bytes count. Plans operators before `end`.
  AheadSearch(const Program& program, const foresight::Placement& placement,
              const foresight::LiveState* state, std::uint32_t end, const AheadOptions& options,
              const Machine& machine);

  void run(const Tuning& first);
  const Plan& plan() const { return best_; }
  const Tuning& tuning() const { return best_tuning_; }
  Nanos expected() const { return Nanos{best_score_->time}; }
  std::uint64_t work() const { return work_; }  // operators and accesses replayed

 private:
  struct Score {
    std::uint64_t broken = 0;
    std::int64_t time = 0;
    auto operator<=>(const Score&) const = default;
  };
  std::uint64_t pass() const { return program_.access_begin[end_] + end_; }
  void consider(const Tuning& tuning);
  void accept(const Tuning& tuning, Plan&& plan, const Score& score);

  const Program& program_;
  const foresight::Placement& placement_;
  const AheadOptions& options_;
  const Machine& machine_;
  const std::uint32_t end_;
  const foresight::Study study_;
  std::optional<foresight::LiveStart> start_;
  std::uint64_t work_ = 0;
  Plan best_;
  Tuning best_tuning_;
  std::optional<Score> best_score_;
};

}  // namespace swaplab::adaptive
