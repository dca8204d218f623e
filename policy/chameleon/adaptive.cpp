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
#include <memory>

#include "policy/chameleon/learned.hpp"
#include "policy/policy.hpp"
#include "sim/wide_math.hpp"

namespace swaplab::adaptive {
namespace {

struct AdaptiveParams {
  std::int64_t effort = 1;
  std::string planner = "background";
  std::int64_t plan_ns = 25, record_ns = 100, match_ns = 100;
  std::int64_t window = 64, kept = 32;
  Ppm same_sequence = 20'000, same_memory = 50'000, margin = 40'000;
};

struct Entry {
  LearnedIteration it;
  LearnedPlan plan;
  bool planned = false;
  Nanos ready{0};            // the plan may be used from then on
  Bytes peak{0};             // largest sum of objects alive
  std::int64_t used = 0;     // iteration that used it last
  std::size_t next = kNone;  // entry that followed it last time
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
    plan_budget_ = view.budget();
    // Free bytes of the caching allocator lie in pieces; the plan leaves it some.
    if (view.allocator_config() != nullptr) {
      plan_budget_ -= Bytes{ceil_mul_div(view.budget().value, params_.margin, kUnchanged)};
    }
    return {};
  }

  void before_op(std::uint32_t op, const View& view, Actions& actions) override {
    if (!in_iteration_) begin_iteration();
    recorder_.op(op, view);
    const std::uint32_t k = recorder_.current().op_count() - 1;
    if (current_ != Entry::kNone) {
      follow(k, view);
      actions.spend_profiling_time(Nanos{params_.match_ns});
      run_steps(view, actions);
      look_ahead(view, actions);
    }
    if (!exact_) actions.spend_profiling_time(Nanos{params_.record_ns});
  }

  void end_iteration(std::uint32_t, const View& view, Actions& actions) override {
    if (!in_iteration_) return;
    in_iteration_ = false;
    const std::uint32_t first = view.position() + 1 - recorder_.current().op_count();
    learn(first, recorder_.finish(), view, actions);
    ++iteration_;
  }

  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    ++rooms_;
    // Bytes enough, but in pieces: one storage whose place is large enough helps.
    if (view.allocated() + shortfall <= view.budget()) {
      Slot best = kNoSlot;
      std::int64_t best_score = -1;
      for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) {
        if (view.size(s) < shortfall || !view.evictable(s)) continue;
        const std::int64_t score = distance(s);
        if (score > best_score) best = s, best_score = score;
      }
      if (best != kNoSlot) {
        actions.evict(best);
        return;
      }
    }
    // What is used within a moment is spared as long as anything else will do; small storages likewise.
    Bytes left = shortfall;
    const auto evict = [&](std::int64_t soonest, Bytes smallest) {
      if (left <= Bytes{0}) return;
      const Bytes out = view.outgoing();
      evict_by_score(left, view, actions, [&](Slot s) {
        const std::int64_t d = distance(s);
        return d < soonest || view.size(s) < smallest ? -1 : d;
      });
      left -= view.outgoing() - out;
    };
    evict(params_.window, shortfall / 64);
    evict(8, Bytes{4096});
    evict(0, Bytes{1});
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
        {"adaptation_iterations", "1", "iterations before the first plan was in use",
         first_planned_ < 0 ? iteration_ : first_planned_},
    };
  }

 private:
  // ---- the running iteration

  void begin_iteration() {
    in_iteration_ = true;
    recorder_.begin_iteration();
    exact_ = false;
    const std::size_t before = current_;
    const std::vector<Slot> slots_before = std::move(slot_of_);
    const std::size_t predicted = last_ == Entry::kNone ? Entry::kNone : predict();
    adopt(predicted);
    if (current_ == Entry::kNone) return;
    exact_ = true;
    // What the last iteration left to be consumed is known when it was like this one.
    if (before != current_) return;
    for (const auto& carry : entry().it.carries) {
      if (carry.successor < slots_before.size()) bind(carry.dying, slots_before[carry.successor]);
    }
  }

  std::size_t predict() const {
    const std::size_t next = library_[last_]->next;
    return next != Entry::kNone && next < library_.size() && library_[next] ? next : last_;
  }

  Entry& entry() { return *library_[current_]; }
  const Entry& entry() const { return *library_[current_]; }

  void adopt(std::size_t which) {
    current_ = which;
    pointer_ = ahead_ = 0;
    step_ = 0;
    synced_ = true;
    ++epoch_;
    late_.clear();
    slot_of_.clear();
    if (which == Entry::kNone) return;
    slot_of_.assign(entry().it.objects.size(), kNoSlot);
    for (std::uint32_t o = 0; o < entry().it.objects.size(); ++o) {
      if (entry().it.persistent(o)) bind(o, entry().it.objects[o].slot);
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
  void follow(std::uint32_t k, const View&) {
    const LearnedIteration& now = recorder_.current();
    if (exact_) {
      const LearnedIteration& it = entry().it;
      exact_ = k < it.op_count() && it.signature_prefix[k] == now.signature_prefix[k];
      if (!exact_) reconsider(k);
    }
    align(k);
  }

  // The sequence has left the plan's: is it the beginning of another one?
  void reconsider(std::uint32_t k) {
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
    adopt(best);
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

  bool plan_usable(const View& view) const { return entry().planned && view.host_now() >= entry().ready; }

  void run_steps(const View& view, Actions& actions) {
    if (!plan_usable(view)) return;
    if (first_planned_ < 0) first_planned_ = iteration_;
    // pointer_ is past the operator about to be issued when that one is in the sequence.
    const std::uint32_t at = synced_ && pointer_ > 0 ? pointer_ - 1 : pointer_;
    const auto& steps = entry().plan.steps;
    for (; step_ < steps.size() && steps[step_].op <= at; ++step_) {
      const Step& step = steps[step_];
      const Slot slot = slot_of_[step.object];
      if (slot == kNoSlot) continue;
      const Residency residency = view.residency(slot);
      const bool resident = residency == Residency::device || residency == Residency::both;
      if (step.action == PlanAction::evict) {
        // Passed over while out of step: only if it is not wanted soon.
        if (resident && view.evictable(slot) && (step.op == at || distance(slot) > params_.window))
          actions.evict(slot);
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

  // Operators until the predicted next use.
  std::int64_t distance(Slot slot) const {
    constexpr std::int64_t kUnknown = 100'000, kNoUse = std::int64_t{1} << 40;
    if (current_ == Entry::kNone) return kUnknown;
    const std::uint32_t s = index(slot);
    const LearnedIteration& it = entry().it;
    if (s >= object_of_.size() || object_of_[s].epoch != epoch_) return std::int64_t{it.op_count()} / 2;
    const std::uint32_t object = object_of_[s].object;
    const auto uses = it.uses_of(object);
    const auto next = std::lower_bound(uses.begin(), uses.end(), pointer_);
    if (next != uses.end()) return std::int64_t{*next} - pointer_;
    if (!it.persistent(object) || uses.empty()) return kNoUse;
    return std::int64_t{it.op_count()} - pointer_ + uses.front();
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
    fresh->it = std::move(it);
    fresh->peak = peak_of(fresh->it);
    const std::size_t place = free_place();
    // Event times are there once the device is done; the pipeline drains once per new sequence.
    actions.synchronize();
    for (std::uint32_t op = 0; op < fresh->it.op_count(); ++op) {
      fresh->it.device_time.push_back(view.measured_time(first + op));
    }
    make_plan(*fresh, view, actions);
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
    if (last_ != Entry::kNone && library_[last_]) library_[last_]->next = which;
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
    for (auto& e : library_) {
      if (e->next == oldest) e->next = Entry::kNone;
    }
    if (current_ == oldest) current_ = Entry::kNone;
    return oldest;
  }

  void make_plan(Entry& e, const View& view, Actions& actions) {
    std::vector<std::uint8_t> on_host(e.it.objects.size(), 0);
    for (std::uint32_t o = 0; o < e.it.objects.size(); ++o) {
      if (!e.it.persistent(o)) continue;
      const Residency residency = view.residency(e.it.objects[o].slot);
      on_host[o] = residency == Residency::host || residency == Residency::outgoing ? 1 : 0;
    }
    e.plan = plan_learned(e.it, view.machine(), plan_budget_, on_host, params_.effort);
    e.planned = true;
    ++plans_;
    last_steps_ = static_cast<std::int64_t>(e.plan.steps.size());
    const Nanos cost{static_cast<std::int64_t>(e.plan.work) * params_.plan_ns};
    if (params_.planner == "background") {
      e.ready = view.host_now() + cost;
    } else {
      actions.spend_host_time(cost);
    }
  }

  const AdaptiveParams params_;
  Bytes plan_budget_{0};
  Recorder recorder_;
  std::vector<std::unique_ptr<Entry>> library_;
  std::size_t last_ = Entry::kNone, current_ = Entry::kNone;  // entry of the last, of the running iteration
  std::int64_t iteration_ = 0;
  // Of the running iteration.
  bool in_iteration_ = false;
  bool exact_ = false;  // every operator so far is the plan's, by signature
  bool synced_ = true;  // the last operator was found in the plan's sequence
  std::uint32_t pointer_ = 0, ahead_ = 0;
  std::size_t step_ = 0;
  std::vector<Slot> slot_of_;  // by object
  struct Bound {
    std::uint32_t epoch, object;
  };
  std::vector<Bound> object_of_;  // by slot
  std::uint32_t epoch_ = 0;
  std::vector<Slot> late_;  // planned swap-ins that found no room
  // Figures.
  std::int64_t learned_ = 0, plans_ = 0, last_steps_ = 0, recognised_ = 0, shared_ = 0, switches_ = 0,
               resyncs_ = 0, rooms_ = 0, first_planned_ = -1;
};

SWAPLAB_REGISTER_POLICY(
    Adaptive, AdaptiveParams,
    {.name = "adaptive",
     .summary =
         "online: a library of plans, one per recognised sequence, switched and aligned as operators run",
     .citation = "",
     .needs = Needs::op_events | Needs::op_stream | Needs::measured_times | Needs::link_model},
    {integer_parameter("effort", &AdaptiveParams::effort, 0, 1000,
                       "millions of accesses that planning may replay"),
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
                        "and the share by which its peak may differ"),
     fraction_parameter("margin", &AdaptiveParams::margin, 0, 500'000,
                        "share of the budget that plans leave to the caching allocator")});

}  // namespace
}  // namespace swaplab::adaptive
