// `adaptive`: an online policy that keeps what it has learned.
//
// - Sequences are recognised by signature (names and shapes), so that other lengths and other routings are
// other
//   sequences; where no signature matches, by name; where that fails too, the plan at hand is followed by
//   alignment: operators that are not in it are passed over until its sequence is met again.
// - A library holds one plan per sequence (training, validation, skipped step, each length). The running
//   iteration switches plans as soon as its prefix belongs to another one. A new sequence that is within a
//   few edits of a known one, with about its memory, shares that one's plan.
// - A plan is made after one iteration, from its measured operator times and the machine's link, with a
// budget
//   for each direction, on the model of `foresight`; it takes effect when a background thread would be done.
// - Whatever the plan did not foresee: victims by farthest predicted use, and swap-in a window ahead of use.
#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>

#include "policy/chameleon/ahead.hpp"
#include "policy/chameleon/learned.hpp"
#include "policy/foresight_places.hpp"
#include "policy/policy.hpp"
#include "sim/memory_fork.hpp"
#include "sim/wide_math.hpp"

namespace swaplab::adaptive {
namespace {

struct AdaptiveParams {
  std::int64_t trials = 6;
  std::string planner = "background";
  std::int64_t plan_ns = 25, record_ns = 100, match_ns = 100;
  std::int64_t window = 64, kept = 32;
  Ppm same_sequence = 20'000, same_memory = 50'000;
};

struct Entry {
  LearnedIteration it;
  std::vector<std::int64_t> clock;  // ns of kernels, or of issuing them, before each operator
  Tuning tuning;
  std::uint64_t plans = 0;  // made so far
  Bytes peak{0};            // largest sum of objects alive
  std::int64_t used = 0;    // iteration that used it last
  static constexpr std::size_t kNone = ~std::size_t{0};
};

Bytes peak_of(const LearnedIteration& it) {
  std::vector<std::int64_t> change(it.op_count() + 1, 0);
  std::int64_t live = 0, peak = 0;
  for (const Object& o : it.objects) {
    if (o.born == kNever) {
      live += o.bytes.value;
    } else {
      change[o.born] += o.bytes.value;
    }
    if (o.death != kNever) change[o.death] -= o.bytes.value;
  }
  for (const std::int64_t c : change) {
    live += c;
    peak = std::max(peak, live);
  }
  return Bytes{peak};
}

class Adaptive final : public Policy {
 public:
  explicit Adaptive(AdaptiveParams params) : params_(std::move(params)) {}

  Plan start(const View& view, Actions&) override {
    recorder_.start(view);
    places_ = view.allocator_config() != nullptr;
    return {};
  }

  void before_op(std::uint32_t op, const View& view, Actions& actions) override {
    if (!in_iteration_) begin_iteration(view);
    recorder_.op(op, view);
    const std::uint32_t k = recorder_.current().op_count() - 1;
    if (current_ != Entry::kNone) {
      follow(k, view);
      actions.spend_profiling_time(Nanos{params_.match_ns});
      take_over(view, actions);
      if (plan_wanted_ && op >= plan_after_) make_plan(op, view, actions);
      run_steps(view, actions);
      if (!synced_ || !(in_force_ || fresh_made_)) look_ahead(view, actions);
    }
    if (!exact_) actions.spend_profiling_time(Nanos{params_.record_ns});
  }

  void end_iteration(std::uint32_t, const View& view, Actions& actions) override {
    if (!in_iteration_) return;
    in_iteration_ = false;
    if (!in_force_) ++without_plan_;
    const std::uint32_t first = view.position() + 1 - recorder_.current().op_count();
    learn(first, recorder_.finish(view), view, actions);
    ++iteration_;
  }

  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    ++rooms_;
    plan_wanted_ = diverged_ = true;  // the plan did not foresee this, so what follows will be otherwise, too
    if (places_ && clear_a_place(shortfall, view, actions)) return;
    // What is used within a moment is spared as long as anything else will do; small storages likewise.
    Bytes left = shortfall;
    const auto send_away = [&](std::int64_t soonest, Bytes smallest) {
      if (left <= Bytes{0}) return;
      std::vector<std::pair<std::int64_t, Slot>> candidates;
      for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) {
        if (!view.evictable(s) || view.size(s) < smallest) continue;
        const std::int64_t d = distance(s, view);
        if (d >= soonest) candidates.emplace_back(d, s);
      }
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const auto& a, const auto& b) { return a.first > b.first; });
      for (const auto& [d, s] : candidates) {
        if (left <= Bytes{0}) return;
        left -= view.size(s);
        evict(s, view, actions);
      }
    };
    send_away(params_.window, shortfall / 64);
    send_away(8, Bytes{4096});
    send_away(0, Bytes{1});
  }

  std::vector<PolicyMetric> metrics() const override {
    return {
        {"sequences_learned", "1", "entries of the library, past ones included", learned_},
        {"plans_generated", "1", "plans made", plans_},
        {"planned_steps", "1", "steps of the newest plan", last_steps_},
        {"recognised_iterations", "1", "iterations whose sequence was known to the last operator",
         recognised_},
        {"shared_iterations", "1", "iterations that were within a few edits of a known sequence", shared_},
        {"plan_switches", "1", "changes of plan within an iteration", switches_},
        {"resynchronisations", "1", "times that a sequence was met again after operators not in it",
         resyncs_},
        {"unplanned_evictions_asked", "1", "times that room was short in spite of the plan", rooms_},
        {"iterations_without_plan", "1", "iterations at whose end no plan was in force", without_plan_},
        {"adaptation_iterations", "1", "iterations before the first plan was in use",
         first_planned_ < 0 ? iteration_ : first_planned_},
    };
  }

 private:
  // ---- the running iteration

  void begin_iteration(const View& view) {
    in_iteration_ = true;
    recorder_.begin_iteration();
    exact_ = false;
    const std::size_t predicted = last_ == Entry::kNone ? Entry::kNone : predict(history_, last_);
    // The last plan went on into the iteration that should follow: it bridges the time until the next is
    // made.
    std::vector<Step> bridge;
    const bool bridged = predicted != Entry::kNone && predicted == bridge_to_;
    if (bridged) bridge = std::move(bridge_);
    bridge_to_ = Entry::kNone;
    begin_time_ = view.host_now();
    iteration_time_ = view.last_iteration_time();
    first_op_ = view.position();
    adopt(predicted, view);
    if (current_ == Entry::kNone) return;
    exact_ = true;
    if (bridged) {
      fresh_ = std::move(bridge);
      fresh_made_ = in_force_ = true;
      ready_ = bridge_ready_;
      fresh_from_ = 0;
    }
    bind_survivors(view);
  }

  // What should follow `after`, itself the last of `past`: what followed the most recent occurrence of the
  // longest run of sequences that ends like this; the same again when there is none.
  std::size_t predict(const std::vector<std::size_t>& past, std::size_t after) const {
    constexpr std::size_t kLongest = 16;
    std::size_t best = after, longest = 0;
    const std::size_t n = past.size();
    for (std::size_t at = n - 1; at-- > 0;) {
      std::size_t same = 0;
      while (same < kLongest && same <= at && past[at - same] == past[n - 1 - same]) ++same;
      if (same <= longest) continue;
      const std::size_t next = past[at + 1];
      if (next >= library_.size() || !library_[next]) continue;
      longest = same;
      best = next;
    }
    return best;
  }
  // The sequences that should follow the running one, nearest first.
  std::vector<std::size_t> forecast(std::size_t count) const {
    std::vector<std::size_t> past = history_;
    past.push_back(current_);
    std::vector<std::size_t> next;
    for (std::size_t i = 0; i < count; ++i) {
      next.push_back(predict(past, past.back()));
      past.push_back(next.back());
    }
    return next;
  }

  Entry& entry() { return *library_[current_]; }
  const Entry& entry() const { return *library_[current_]; }

  void adopt(std::size_t which, const View& view) {
    current_ = which;
    pointer_ = ahead_ = 0;
    synced_ = true;
    ++epoch_;
    late_.clear();
    slot_of_.clear();
    steps_.clear();
    fresh_.clear();
    step_ = 0;
    in_force_ = fresh_made_ = diverged_ = false;
    plan_wanted_ = which != Entry::kNone;
    plan_after_ = 0;
    if (which == Entry::kNone) return;
    const LearnedIteration& it = entry().it;
    slot_of_.assign(it.objects.size(), kNoSlot);
    for (std::uint32_t o = 0; o < it.objects.size(); ++o) {
      const Remembered& storage = it.objects[o].storage;
      if (it.persistent(o) && storage.alive(view)) bind(o, storage.slot);
    }
  }

  // Objects from before that are not the storages of last time: survivors of equal size and class, in order.
  void bind_survivors(const View& view) {
    const LearnedIteration& it = entry().it;
    std::map<std::pair<std::int64_t, StorageClass>, std::vector<Slot>> left;  // last first
    const auto& survivors = recorder_.survivors();
    for (std::size_t i = survivors.size(); i-- > 0;) {
      const Slot slot = survivors[i];
      const std::uint32_t s = index(slot);
      if (view.residency(slot) == Residency::absent) continue;
      if (s < object_of_.size() && object_of_[s].epoch == epoch_) continue;
      left[{view.size(slot).value, view.storage_class(slot)}].push_back(slot);
    }
    for (std::uint32_t o = 0; o < it.objects.size(); ++o) {
      if (it.objects[o].born != kNever || it.objects[o].death == 0 || slot_of_[o] != kNoSlot) continue;
      auto& same = left[{it.objects[o].bytes.value, it.objects[o].cls}];
      if (same.empty()) continue;
      bind(o, same.back());
      same.pop_back();
    }
  }

  void bind(std::uint32_t object, Slot slot) {
    if (slot == kNoSlot) return;
    slot_of_[object] = slot;
    const std::uint32_t s = index(slot);
    if (s >= object_of_.size()) object_of_.resize(s + 1, {0, 0});
    object_of_[s] = {epoch_, object};
  }

  // Operators of the iteration (k) against operators of the plan's sequence (pointer_).
  void follow(std::uint32_t k, const View& view) {
    const LearnedIteration& now = recorder_.current();
    if (exact_) {
      const LearnedIteration& it = entry().it;
      exact_ = k < it.op_count() && it.signature_prefix[k] == now.signature_prefix[k];
      if (!exact_) reconsider(k, view);
    }
    align(k);
  }

  // The sequence has left the plan's: is it the beginning of another one?
  void reconsider(std::uint32_t k, const View& view) {
    const LearnedIteration& now = recorder_.current();
    std::size_t best = Entry::kNone;
    bool best_exact = false;
    for (std::size_t e = 0; e < library_.size(); ++e) {
      if (!library_[e] || e == current_) continue;
      const LearnedIteration& it = library_[e]->it;
      if (k >= it.op_count()) continue;
      const bool same = it.signature_prefix[k] == now.signature_prefix[k];
      if (!same && (best_exact || it.name_prefix[k] != now.name_prefix[k])) continue;
      if (best != Entry::kNone && best_exact == same && library_[e]->used <= library_[best]->used) continue;
      best = e;
      best_exact = same;
    }
    if (best == Entry::kNone) return;
    // By name only: no better than the plan at hand unless that one fails by name, too.
    const LearnedIteration& mine = entry().it;
    if (!best_exact && k < mine.op_count() && mine.name_prefix[k] == now.name_prefix[k]) return;
    ++switches_;
    adopt(best, view);
    exact_ = best_exact;
    for (std::uint32_t i = 0; i < k; ++i) bind_operands(i, i);
    pointer_ = k;
  }

  void align(std::uint32_t k) {
    const LearnedIteration& now = recorder_.current();
    const LearnedIteration& it = entry().it;
    const NameId name = now.name[k];
    if (synced_ && pointer_ < it.op_count() && it.name[pointer_] == name) {
      bind_operands(k, pointer_++);
      return;
    }
    synced_ = false;
    // Met again: three operators in a row that stand together in the plan's sequence, nearest first.
    const auto matches = [&](std::uint32_t at) {
      for (std::uint32_t i = 0; i < 3; ++i) {
        if (at < i || k < i || it.name[at - i] != now.name[k - i]) return false;
      }
      return true;
    };
    const auto end = std::min<std::uint32_t>(it.op_count(), pointer_ + 512);
    for (std::uint32_t at = pointer_; at < end; ++at) {
      if (!matches(at)) continue;
      ++resyncs_;
      synced_ = true;
      for (std::uint32_t i = 2; i > 0; --i) bind_operands(k - i, at - i);
      bind_operands(k, at);
      pointer_ = at + 1;
      return;
    }
  }

  // The operands of operator k play the objects of the plan's operator `at`.
  void bind_operands(std::uint32_t k, std::uint32_t at) {
    const LearnedIteration& now = recorder_.current();
    const auto theirs = entry().it.operands_of(at);
    const std::uint32_t begin = now.operand_begin[k], count = now.operand_begin[k + 1] - begin;
    if (theirs.size() != count) return;
    for (std::uint32_t i = 0; i < count; ++i) bind(theirs[i].object, recorder_.slots()[begin + i]);
  }

  // ---- moves

  void evict(Slot slot, const View& view, Actions& actions) {
    actions.evict(slot);
    leaving_.push_back(remember(slot, view));
  }

  // The new plan takes over: from the operator on that it was made for, or when it is ready before and the
  // steps until then are the same. What comes too late is waited for.
  void take_over(const View& view, Actions& actions) {
    if (!fresh_made_ || here() < fresh_from_) return;
    if (!places_ && view.host_now() < ready_) return;  // bytes alone forgive a late start
    if (view.host_now() < ready_) actions.spend_host_time(ready_ - view.host_now());
    steps_ = std::move(fresh_);
    fresh_.clear();
    fresh_made_ = false;
    in_force_ = true;
    step_ = 0;
    late_.clear();
  }

  void run_steps(const View& view, Actions& actions) {
    take_over(view, actions);
    if (!in_force_) return;
    if (first_planned_ < 0) first_planned_ = iteration_;
    // pointer_ is past the operator about to be issued when that one is in the sequence.
    const std::uint32_t at = here();
    for (; step_ < steps_.size() && steps_[step_].op <= at; ++step_) {
      const Step& step = steps_[step_];
      if (step.object == kNever && !step.storage.alive(view)) continue;
      const Slot slot = step.object == kNever ? step.storage.slot : slot_of_[step.object];
      if (slot == kNoSlot) continue;
      const Residency residency = view.residency(slot);
      const bool resident = residency == Residency::device || residency == Residency::both;
      if (step.action == PlanAction::evict) {
        // Passed over while out of step: only if it is not wanted soon.
        if (resident && view.evictable(slot) && (step.op == at || distance(slot, view) > params_.window))
          evict(slot, view, actions);
      } else if (step.action == PlanAction::copy_out) {
        if (resident) actions.copy_out(slot);
      } else if (residency == Residency::host || residency == Residency::outgoing) {
        if (!actions.prefetch(slot)) late_.push_back(slot);
      }
    }
    std::erase_if(late_, [&](Slot slot) {
      const Residency residency = view.residency(slot);
      return (residency != Residency::host && residency != Residency::outgoing) || actions.prefetch(slot);
    });
  }

  // Operator of the plan's sequence that is about to be issued.
  std::uint32_t here() const { return synced_ && pointer_ > 0 ? pointer_ - 1 : pointer_; }

  // Swap-in of what is used a window ahead and is not here, for whatever reason.
  void look_ahead(const View& view, Actions& actions) {
    const LearnedIteration& it = entry().it;
    ahead_ = std::max(ahead_, pointer_);
    const auto end =
        std::min<std::uint32_t>(it.op_count(), pointer_ + static_cast<std::uint32_t>(params_.window));
    for (; ahead_ < end; ++ahead_) {
      for (const Operand& operand : it.operands_of(ahead_)) {
        const Slot slot = slot_of_[operand.object];
        if (slot == kNoSlot || view.residency(slot) != Residency::host) continue;
        if (!actions.prefetch(slot)) return;  // again before the next operator
      }
    }
  }

  // Object of the plan's sequence that a storage plays; kNever when none.
  std::uint32_t object_played(Slot slot) const {
    const std::uint32_t s = index(slot);
    if (current_ == Entry::kNone || s >= object_of_.size() || object_of_[s].epoch != epoch_) return kNever;
    return object_of_[s].object;
  }

  // Operators until the predicted next use.
  std::int64_t distance(Slot slot, const View& view) const {
    constexpr std::int64_t kNoUse = std::int64_t{1} << 40;
    const std::uint32_t object = object_played(slot);
    // What was used long ago will not be used soon: forward passes leave in the order in which backward
    // passes want them last.
    if (object == kNever) return std::int64_t{params_.window} + view.position() - view.last_use(slot);
    const LearnedIteration& it = entry().it;
    const auto uses = it.uses_of(object);
    const auto next = std::lower_bound(uses.begin(), uses.end(), here());
    if (next != uses.end()) return std::int64_t{*next} - here();
    if (!it.persistent(object) || uses.empty()) return kNoUse;
    return std::int64_t{it.op_count()} - here() + uses.front();
  }
  // The same in ns of kernels or of issuing them, until the end of that use; < 0 when there is none.
  std::int64_t time_until_used(Slot slot, const View& view) const {
    const std::int64_t dispatch = view.machine().host.op_dispatch.value;
    if (current_ == Entry::kNone || object_played(slot) == kNever) {
      const bool recent = current_ == Entry::kNone || view.last_use(slot) >= first_op_;
      return recent ? dispatch * (1 + distance(slot, view)) : -1;
    }
    const std::int64_t d = distance(slot, view);
    if (d >= std::int64_t{1} << 40) return -1;
    const auto& clock = entry().clock;
    const auto count = static_cast<std::int64_t>(clock.size()) - 1;
    const std::int64_t end = here() + d + 1;
    const auto at = [&](std::int64_t op) { return clock[static_cast<std::size_t>(std::min(op, count))]; };
    return std::max<std::int64_t>(1, (end <= count ? at(end) : clock.back() + at(end - count)) - at(here()));
  }

  // ---- room among places

  std::int64_t cost_of_leaving(Slot slot, std::int64_t near, const View& view) const {
    if (!view.evictable(slot)) return -1;
    const Bytes bytes{foresight::rounded(view.size(slot), Bytes{512})};
    return foresight::sweep_cost(
        {bytes, view.storage_class(slot), view.host_copy_valid(slot), false, time_until_used(slot, view)},
        kUnplanned, view.budget(), near);
  }

  // The request that room is short for: what the operator about to be issued creates or reads next.
  Bytes request(Bytes shortfall, const View& view) const {
    const auto operands = view.operands(view.position());
    for (const Access& access : operands) {
      if (view.residency(access.slot) == Residency::absent && view.size(access.slot) >= shortfall)
        return view.size(access.slot);
    }
    for (const Access& access : operands) {
      if (view.residency(access.slot) == Residency::host && view.size(access.slot) >= shortfall)
        return view.size(access.slot);
    }
    return shortfall;
  }

  // Evicts neighbours that make one place, or empties segments; false when neither is possible.
  bool clear_a_place(Bytes shortfall, const View& view, Actions& actions) {
    const std::shared_ptr<MemoryFork> memory = view.fork_memory();
    const auto& allocator = memory->allocator;
    std::unordered_map<std::uint64_t, Slot> by_address;
    const auto note = [&](Slot s) {
      if (view.block(s) != kNoBlock) by_address.emplace(allocator.block_address(view.block(s)), s);
    };
    for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) note(s);
    const std::int64_t near = foresight::near_time(kUnplanned, view.budget(), view.machine());
    const foresight::TenantAt tenants = [&](std::uint64_t address) {
      const auto found = by_address.find(address);
      if (found == by_address.end()) return foresight::Tenant{kNever, -1};
      return foresight::Tenant{index(found->second), cost_of_leaving(found->second, near, view)};
    };
    const auto bytes = static_cast<std::int64_t>(
        allocator.config().round_size(static_cast<std::uint64_t>(request(shortfall, view).value)));
    const auto segments = allocator.snapshot();
    auto victims = foresight::cheapest_place(
        segments, {bytes, bytes > static_cast<std::int64_t>(kSmallSize), 0}, tenants);
    if (victims.empty()) {
      const std::int64_t missing =
          static_cast<std::int64_t>(memory->device.used()) - view.budget().value +
          static_cast<std::int64_t>(allocator.config().growth(static_cast<std::uint64_t>(bytes)));
      victims = foresight::cheapest_segments(segments, missing, tenants);
    }
    for (const std::uint32_t s : victims) evict(Slot{s}, view, actions);
    return !victims.empty();
  }

  // ---- learning

  void learn(std::uint32_t first, LearnedIteration it, const View& view, Actions& actions) {
    const std::size_t known = find(it);
    if (known != Entry::kNone) {
      const LearnedIteration& theirs = library_[known]->it;
      const bool same =
          theirs.op_count() == it.op_count() && theirs.signature_prefix.back() == it.signature_prefix.back();
      ++(same ? recognised_ : shared_);
      settle(known);
      return;
    }
    ++learned_;
    auto fresh = std::make_unique<Entry>();
    if (last_ != Entry::kNone) fresh->tuning = library_[last_]->tuning;
    fresh->it = std::move(it);
    fresh->peak = peak_of(fresh->it);
    const std::size_t place = free_place();
    // Event times are there once the device is done; the pipeline drains once per new sequence.
    actions.synchronize();
    for (std::uint32_t op = 0; op < fresh->it.op_count(); ++op) {
      fresh->it.device_time.push_back(view.measured_time(first + op));
    }
    fresh->clock.assign(1, 0);
    const Nanos dispatch = view.machine().host.op_dispatch;
    for (const Nanos time : fresh->it.device_time) {
      fresh->clock.push_back(fresh->clock.back() + std::max(time, dispatch).value);
    }
    library_[place] = std::move(fresh);
    settle(place);
  }

  std::size_t find(const LearnedIteration& it) const {
    for (std::size_t e = 0; e < library_.size(); ++e) {
      if (!library_[e]) continue;
      const LearnedIteration& theirs = library_[e]->it;
      if (theirs.op_count() == it.op_count() && theirs.signature_prefix.back() == it.signature_prefix.back())
        return e;
    }
    const Bytes peak = peak_of(it);
    std::size_t best = Entry::kNone;
    Ppm best_share = params_.same_sequence;
    for (std::size_t e = 0; e < library_.size(); ++e) {
      if (!library_[e]) continue;
      const Bytes apart = std::max(peak, library_[e]->peak) - std::min(peak, library_[e]->peak);
      if (apart.value > ceil_mul_div(library_[e]->peak.value, params_.same_memory, kUnchanged)) continue;
      const Ppm share = edit_share(library_[e]->it.name, it.name, best_share);
      if (share < best_share) best = e, best_share = share;
    }
    return best;
  }

  void settle(std::size_t which) {
    library_[which]->used = iteration_;
    history_.push_back(which);
    if (history_.size() > kHistory) history_.erase(history_.begin(), history_.begin() + kHistory / 2);
    last_ = which;
  }

  std::size_t free_place() {
    if (library_.size() < static_cast<std::size_t>(params_.kept)) {
      library_.emplace_back();
      return library_.size() - 1;
    }
    std::size_t oldest = Entry::kNone;
    for (std::size_t e = 0; e < library_.size(); ++e) {
      if (e != last_ && (oldest == Entry::kNone || library_[e]->used < library_[oldest]->used)) oldest = e;
    }
    if (oldest == Entry::kNone) oldest = 0;
    std::replace(history_.begin(), history_.end(), oldest, Entry::kNone);
    if (current_ == oldest) current_ = Entry::kNone;
    return oldest;
  }

  // From the state that the run is in. While a plan is in force and nothing went wrong, it is left alone and
  // the iteration that should follow is planned, in good time; else the rest of this one, too.
  void make_plan(std::uint32_t op, const View& view, Actions& actions) {
    plan_wanted_ = false;
    const bool keep = in_force_ && !diverged_;
    diverged_ = false;
    std::vector<Lap> laps{{entry().it, here()}};
    const std::vector<std::size_t> following = forecast(keep && places_ ? 3 : 2);
    for (const std::size_t which : following) laps.push_back({library_[which]->it, 0});
    const std::size_t next = following[0];
    std::erase_if(leaving_, [&](const Remembered& r) {
      return !r.alive(view) || view.residency(r.slot) != Residency::outgoing;
    });
    std::vector<Slot> leaving;
    for (const Remembered& r : leaving_) leaving.push_back(r.slot);
    Entry& planned = keep ? *library_[next] : entry();
    AheadOptions options;
    options.budget = view.budget();
    options.trials = keep ? params_.trials : 1;
    options.first = planned.plans == 0;
    options.round = planned.plans;
    const std::uint32_t left = entry().it.op_count() - here();
    // A plan that takes next to nothing of the iteration is waited for: what is done without it costs more.
    const Nanos time = planning_time(laps, options.first ? 3 : options.trials);
    const bool wait = time.value * kWorthWaiting < std::max(iteration_time_.value, entry().clock.back());
    options.hold = keep ? left : wait ? 0 : std::min(left, operators_in(time, view));
    const auto held = std::span<const Step>(steps_).subspan(std::min(step_, steps_.size()));
    AheadPlan plan = plan_ahead(laps, slot_of_, leaving, held, planned.tuning, options, view);
    planned.tuning = plan.tuning;
    ++planned.plans;
    ++plans_;
    bridge_.clear();
    std::vector<Step> now;
    for (const AheadStep& step : plan.steps) {
      if (step.lap < 2)
        (step.lap == 0 ? now : bridge_)
            .push_back({step.op, step.action, step.object, remember(step.slot, view)});
    }
    bridge_to_ = next;
    last_steps_ = static_cast<std::int64_t>(keep ? bridge_.size() : now.size());
    const Nanos cost{static_cast<std::int64_t>(plan.work) * params_.plan_ns};
    bridge_ready_ = view.host_now();
    if (params_.planner == "background") {
      bridge_ready_ += cost;
    } else {
      actions.spend_host_time(cost);
    }
    plan_after_ = op + std::max<std::uint32_t>(16, entry().it.op_count() / 8);
    if (keep) return;
    fresh_ = std::move(now);
    fresh_made_ = true;
    fresh_from_ = here() + options.hold;
    ready_ = bridge_ready_;
  }

  // About what planning will take.
  Nanos planning_time(const std::vector<Lap>& laps, std::int64_t trials) const {
    std::uint64_t size = 0;
    for (const Lap& lap : laps) size += lap.it.operands.size() + lap.it.op_count();
    return Nanos{static_cast<std::int64_t>(size) * params_.plan_ns * (2 + 4 * trials) * 3 / 4};
  }
  // About how many operators the host issues in that time.
  std::uint32_t operators_in(Nanos time, const View& view) const {
    if (params_.planner != "background") return 0;
    const std::int64_t issued = recorder_.current().op_count() - 1;
    std::int64_t each = view.machine().host.op_dispatch.value;
    if (issued >= 64) each = std::max(each, (view.host_now() - begin_time_).value / issued);
    return static_cast<std::uint32_t>(
        std::min<std::int64_t>(time.value / std::max<std::int64_t>(1, each), 1 << 30));
  }

  static constexpr std::ptrdiff_t kHistory = 4096;
  static constexpr std::int64_t kWorthWaiting = 32;

  const AdaptiveParams params_;
  bool places_ = false;  // the allocator's free bytes lie in pieces
  Recorder recorder_;
  std::vector<std::unique_ptr<Entry>> library_;
  std::vector<std::size_t> history_;  // entries of the iterations so far, oldest first
  std::size_t last_ = Entry::kNone, current_ = Entry::kNone;  // entry of the last, of the running iteration
  std::int64_t iteration_ = 0;
  // Of the running iteration.
  bool in_iteration_ = false;
  bool exact_ = false;  // every operator so far is the plan's, by signature
  bool synced_ = true;  // the last operator was found in the plan's sequence
  std::uint32_t pointer_ = 0, ahead_ = 0;
  std::vector<Step> steps_, fresh_,
      bridge_;  // followed; made, not ready; of the iteration that should follow
  std::size_t step_ = 0;
  std::size_t bridge_to_ = Entry::kNone;
  bool in_force_ = false, fresh_made_ = false, plan_wanted_ = false;
  bool diverged_ = false;             // the run is not where the plan in force would have it
  std::uint32_t plan_after_ = 0;      // operator of the run before which no other plan is made
  Nanos ready_{0}, bridge_ready_{0};  // fresh_ and bridge_ may be followed from then on
  std::uint32_t fresh_from_ = 0;      // operator of the sequence from which on fresh_ is followed
  std::uint32_t first_op_ = 0;        // of the running iteration
  Nanos iteration_time_{0};           // of the newest iteration that is done
  Nanos begin_time_{0};               // of the running iteration, on the host clock
  std::vector<Remembered> leaving_;   // evicted, oldest first; some handed on since
  std::vector<Slot> slot_of_;         // by object
  struct Bound {
    std::uint32_t epoch, object;
  };
  std::vector<Bound> object_of_;  // by slot
  std::uint32_t epoch_ = 0;
  std::vector<Slot> late_;  // planned swap-ins that found no room
  // Figures.
  std::int64_t learned_ = 0, plans_ = 0, last_steps_ = 0, recognised_ = 0, shared_ = 0, switches_ = 0,
               resyncs_ = 0, rooms_ = 0, without_plan_ = 0, first_planned_ = -1;
};

SWAPLAB_REGISTER_POLICY(
    Adaptive, AdaptiveParams,
    {.name = "adaptive",
     .summary =
         "online: a library of plans, one per recognised sequence, switched and aligned as operators run",
     .citation = "",
     .needs = Needs::op_events | Needs::op_stream | Needs::measured_times | Needs::link_model |
              Needs::places},
    {integer_parameter("trials", &AdaptiveParams::trials, 1, 1000,
                       "plans compared for the next iteration while one runs"),
     choice_parameter<AdaptiveParams>("planner", &AdaptiveParams::planner, {"background", "blocking"},
                                      "plans are made beside the training thread, or by it"),
     integer_parameter("plan_ns", &AdaptiveParams::plan_ns, 0, 1'000'000,
                       "planning time per access replayed"),
     integer_parameter("record_ns", &AdaptiveParams::record_ns, 0, 1'000'000,
                       "host time per operator of recording a sequence that is not known"),
     integer_parameter("match_ns", &AdaptiveParams::match_ns, 0, 1'000'000,
                       "host time per operator of matching"),
     integer_parameter("window", &AdaptiveParams::window, 1, 100'000, "operators ahead that swap-in looks"),
     integer_parameter("library", &AdaptiveParams::kept, 1, 100'000, "sequences kept"),
     fraction_parameter("same_sequence", &AdaptiveParams::same_sequence, 0, kUnchanged,
                        "share of edited operators below which a sequence shares a known one's plan"),
     fraction_parameter("same_memory", &AdaptiveParams::same_memory, 0, kUnchanged,
                        "and the share by which its peak may differ")});

}  // namespace
}  // namespace swaplab::adaptive
