#include "policy/chameleon/plan_runner.hpp"

#include <algorithm>

#include "policy/chameleon/profiler.hpp"

namespace swaplab::chameleon {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 29;
}

std::uint64_t stage_key(StageType type, std::int32_t micro_batch, std::int64_t layer) {
  return static_cast<std::uint64_t>(type) << 60 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(micro_batch)) << 28 |
         static_cast<std::uint64_t>(layer);
}

}  // namespace

std::uint64_t PlanRunner::key_of(const Fingerprint& print, std::uint32_t stage) {
  std::uint64_t hash = mix(stage, print.uses);
  hash = mix(hash, print.operators);
  hash = mix(hash, print.last_operators);
  return mix(hash, print.last_arguments);
}

void PlanRunner::clear() {
  loaded_ = false;
  entries_.clear();
  by_key_.clear();
  persistent_.clear();
  in_.clear();
  free_.clear();
  late_.clear();
}

void PlanRunner::load(const SwapPlan& plan, const IterationProfile& p, const GeneratorParams& generator,
                      std::span<const std::uint32_t> tokens) {
  clear();
  loaded_ = true;
  smallest_ = plan.tensor_size_thresh;
  layers_[0] = plan.forward_layers;
  layers_[1] = plan.backward_layers;
  boundary_starts_layer_ = generator.version == GeneratorVersion::v2;
  single_layer_ = generator.version == GeneratorVersion::v1 && generator.layer_rule == LayerRule::single;
  stage_index_.clear();
  for (std::uint32_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    stage_index_.emplace(stage_key(stage.type, stage.micro_batch, stage.layer), s);
  }
  in_.resize(plan.stages.size());
  free_.resize(plan.stages.size());
  // The fingerprint that each selected tensor has after its swap-out operator, by replaying the profile.
  std::vector<std::uint32_t> entry_of(p.storages.size(), kNever);
  for (const std::uint32_t i : plan.emitted) {
    const Selection& s = plan.selected[i];
    if (s.optimizer)
      persistent_.push_back(static_cast<std::uint32_t>(entries_.size()));
    else
      entry_of[s.tensor] = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back({{},
                        static_cast<std::uint32_t>(s.optimizer ? 0 : s.out_op),
                        0,
                        s.out_stage,
                        s.in_stage,
                        s.free_stage,
                        s.optimizer ? storage_of(p.storages[s.tensor]) : Remembered{},
                        false});
  }
  const std::vector<std::uint8_t> frequent = frequent_operators(tokens);
  std::vector<Fingerprint> prints(p.storages.size());
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    const auto operands = p.tensors_of(op);
    for (std::uint32_t a = 0; a < operands.size(); ++a) {
      const std::uint32_t t = operands[a];
      if (entry_of[t] == kNever) continue;
      prints[t].use(frequent[tokens[op]], a);
      Entry& entry = entries_[entry_of[t]];
      if (entry.offset == op) {
        entry.print = prints[t];
        entry.argument = a;
      }
    }
  }
  for (std::uint32_t e = 0; e < entries_.size(); ++e) {
    const Entry& entry = entries_[e];
    if (entry.persistent.slot != kNoSlot) continue;
    by_key_[params_.fuzzy ? key_of(entry.print, entry.out_stage) : key_of(entry.offset, entry.argument)]
        .push_back(e);
  }
  prints_.set_operators(frequent);
}

void PlanRunner::begin_iteration(const View&) {
  prints_.begin_iteration();
  if (!loaded_) return;
  stage_ = 0;
  late_.clear();
  for (auto& slots : in_) slots.clear();
  for (auto& slots : free_) slots.clear();
  for (Entry& entry : entries_) {
    entry.done = false;
    ++counts_.planned;
  }
}

std::uint32_t PlanRunner::stage_of(const StepTracker& at) const {
  std::int64_t layer = 0;
  if (at.type() == StageType::forward || at.type() == StageType::backward) {
    layer = 1;
    if (!single_layer_) {
      const auto& boundaries = layers_[at.type() == StageType::forward ? 0 : 1];
      const auto above = boundary_starts_layer_
                             ? std::upper_bound(boundaries.begin(), boundaries.end(), at.offset())
                             : std::lower_bound(boundaries.begin(), boundaries.end(), at.offset());
      layer += above - boundaries.begin();
    }
  }
  const auto found = stage_index_.find(stage_key(at.type(), at.micro_batch(), layer));
  return found == stage_index_.end() ? kNever : found->second;
}

void PlanRunner::swap_out(Entry& entry, Slot slot, const View& view, Actions& actions,
                          SwapObserver& observer) {
  entry.done = true;
  const Residency residency = view.residency(slot);
  if (residency == Residency::device || residency == Residency::both) {
    if (!view.evictable(slot)) {
      ++counts_.pinned;
      return;
    }
    actions.evict(slot);
    observer.on_swap(true, slot, view);
    ++counts_.matched;
  } else if (residency == Residency::absent) {
    ++counts_.not_found;
    return;
  } else {
    ++counts_.already_out;
  }
  if (entry.in_stage < in_.size()) in_[entry.in_stage].push_back(slot);
  if (entry.free_stage < free_.size()) free_[entry.free_stage].push_back(slot);
}

void PlanRunner::after_op(std::uint32_t op, std::uint32_t offset, std::uint32_t token, const StepTracker& at,
                          const View& view, Actions& actions, SwapObserver& observer) {
  if (!loaded_) return;
  const auto operands = view.operands(op);
  const std::uint32_t stage = params_.fuzzy ? stage_of(at) : 0;
  for (std::uint32_t a = 0; a < operands.size(); ++a) {
    const Slot slot = operands[a].slot;
    if (view.size(slot) < smallest_) continue;
    const Fingerprint& print = prints_.use(slot, token, a);
    const auto found = by_key_.find(params_.fuzzy ? key_of(print, stage) : key_of(offset, a));
    if (found == by_key_.end()) continue;
    for (const std::uint32_t e : found->second) {
      Entry& entry = entries_[e];
      if (entry.done || (params_.fuzzy && (entry.print != print || entry.out_stage != stage))) continue;
      swap_out(entry, slot, view, actions, observer);
      break;
    }
  }
}

void PlanRunner::before_op(const StepTracker& at, const View& view, Actions& actions,
                           SwapObserver& observer) {
  if (!loaded_) return;
  const std::uint32_t now = stage_of(at);
  if (now == kNever || now < stage_) return;
  for (; stage_ <= now; ++stage_) {
    if (params_.planned_release) {
      for (const Slot slot : free_[stage_]) actions.release(slot);
    }
    for (const std::uint32_t e : persistent_) {
      Entry& entry = entries_[e];
      if (entry.out_stage != stage_ || entry.done) continue;
      if (entry.persistent.alive(view)) {
        swap_out(entry, entry.persistent.slot, view, actions, observer);
      } else {
        entry.done = true;
        ++counts_.not_found;
      }
    }
    std::vector<Slot> due = std::move(late_);  // those that found no room come first
    late_.clear();
    std::vector<Slot>& planned = in_[stage_];
    if (params_.last_out_first_in) std::reverse(planned.begin(), planned.end());
    due.insert(due.end(), planned.begin(), planned.end());
    if (!params_.swap_in) continue;
    for (const Slot slot : due) {
      const Residency before = view.residency(slot);
      if (before != Residency::host && before != Residency::outgoing) continue;
      if (!actions.prefetch(slot)) {
        ++counts_.no_room;
        late_.push_back(slot);
        continue;
      }
      observer.on_swap(false, slot, view);
      ++counts_.swap_ins;
    }
  }
}

}  // namespace swaplab::chameleon
