#include "policy/chameleon/ahead_search.hpp"

#include <algorithm>
#include <utility>

#include "policy/foresight_model.hpp"

namespace swaplab::adaptive {

AheadSearch::AheadSearch(const Program& program, const foresight::Placement& placement,
                         const foresight::LiveState* state, std::uint32_t end, const AheadOptions& options,
                         const Machine& machine)
    : program_(program),
      placement_(placement),
      options_(options),
      machine_(machine),
      end_(end),
      study_(program, machine, placement, options.budget, Bytes{state != nullptr ? 512 : 1}) {
  if (state != nullptr) start_.emplace(foresight::LiveStart{*state, end});
}

void AheadSearch::run(const Tuning& first) {
  consider(first);
  if (options_.first && start_) {
    Tuning followed = first;
    followed.layout.sweep = false;
    consider(followed);
    followed.margin = 160;
    followed.rules.cost_weight = 2;
    followed.rules.size_power = 4;
    consider(followed);
    return;
  }
  for (std::int64_t t = 1; t < options_.trials; ++t) {
    const std::uint64_t which =
        options_.round * static_cast<std::uint64_t>(options_.trials - 1) + static_cast<std::uint64_t>(t - 1);
    consider(vary(best_tuning_, which, options_.budget, start_.has_value()));
  }
}

void AheadSearch::consider(const Tuning& tuning) {
  foresight::Rules rules = tuning.rules;
  const bool follows = start_ && !tuning.layout.sweep;
  if (follows) rules.slack = std::max(rules.slack, options_.budget.value / 1000 * tuning.margin);
  work_ += 2 * pass();
  foresight::Selection selection = foresight::select(study_.problem, rules, {}, end_);
  foresight::ModelResult result = foresight::replay(program_, machine_, selection.plan, placement_,
                                                    study_.sizes, options_.budget, end_, start_.has_value());
  if (!start_) {
    accept(tuning, std::move(selection.plan),
           {result.overdrafts + selection.hopeless, result.iteration_end.back()});
    return;
  }
  // What lies beyond the horizon is only ever compared: its time goes on with the kernels'.
  std::vector<std::int64_t>& op_end = result.op_end;
  for (std::uint32_t op = end_; op < program_.op_count(); ++op) {
    op_end.push_back((op_end.empty() ? 0 : op_end.back()) + program_.device_time[op].value);
  }
  work_ += 2 * pass();
  foresight::LayoutResult laid =
      foresight::fit_to_allocator(study_.problem, selection.plan, op_end, tuning.layout,
                                  start_->state.memory->allocator.config(), options_.budget, &*start_);
  // Giving the cache back drains the device, with all copies that are on their way.
  const std::int64_t drain = machine_.link(Direction::host_to_device).time(options_.budget / 64).value;
  accept(tuning, std::move(laid.plan),
         {laid.failures, laid.time + drain * static_cast<std::int64_t>(laid.recoveries)});
}

void AheadSearch::accept(const Tuning& tuning, Plan&& plan, const Score& score) {
  if (best_score_ && !(score < *best_score_)) return;
  best_score_ = score;
  best_ = std::move(plan);
  best_tuning_ = tuning;
}

}  // namespace swaplab::adaptive
