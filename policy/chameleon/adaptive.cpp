// `adaptive`: an online policy that keeps what it has learned.
//
// - A library holds one plan per sequence of operators (training, validation, skipped step, each length). The
//   running iteration switches plans as soon as its prefix belongs to another one (Library).
// - Where no sequence fits, the one at hand is followed by alignment (Alignment).
// - A plan is made after one iteration, from its measured operator times and the machine's link, on the model
// of
//   `foresight` (plan_ahead); it takes effect when a background thread would be done (Follower).
// - Whatever the plan did not foresee: victims by predicted use (victims.hpp), and swap-in a window ahead of
// use.
#include <algorithm>
#include <memory>
#include <utility>

#include "policy/chameleon/ahead.hpp"
#include "policy/chameleon/alignment.hpp"
#include "policy/chameleon/follower.hpp"
#include "policy/chameleon/library.hpp"
#include "policy/chameleon/victims.hpp"
#include "policy/policy.hpp"

namespace swaplab::adaptive {
namespace {

struct AdaptiveParams {
  std::int64_t trials = 6;
  std::string planner = "background";
  std::int64_t plan_ns = 25, record_ns = 100, match_ns = 100;
  std::int64_t window = 64, kept = 32;
  Ppm same_sequence = 20'000, same_memory = 50'000;
};

class Adaptive final : public Policy {
 public:
  explicit Adaptive(AdaptiveParams params)
      : params_(std::move(params)),
        library_(params_.kept, params_.same_sequence, params_.same_memory),
        follower_(params_.window) {}

  Plan start(const View& view, Actions&) override {
    recorder_.start(view);
    places_ = view.allocator_config() != nullptr;
    return {};
  }

  void before_op(std::uint32_t op, const View& view, Actions& actions) override {
    if (!in_iteration_) begin_iteration(view);
    recorder_.op(op, view);
    const std::uint32_t k = recorder_.current().op_count() - 1;
    if (current_ != Library::kNone) {
      recognise(k, view);
      alignment_.advance(k, recorder_);
      actions.spend_profiling_time(Nanos{params_.match_ns});
      follower_.take_over(alignment_.here(), places_, view, actions);
      if (plan_wanted_ && op >= plan_after_) make_plan(op, view, actions);
      follower_.take_over(alignment_.here(), places_, view, actions);
      if (follower_.in_force()) {
        if (first_planned_ < 0) first_planned_ = iteration_;
        follower_.run(alignment_, use(), view, actions);
      }
      if (!alignment_.synced() || !(follower_.in_force() || follower_.offered()))
        follower_.look_ahead(alignment_, view, actions);
    }
    if (!exact_) actions.spend_profiling_time(Nanos{params_.record_ns});
  }

  void end_iteration(std::uint32_t, const View& view, Actions& actions) override {
    if (!in_iteration_) return;
    in_iteration_ = false;
    if (!follower_.in_force()) ++without_plan_;
    const std::uint32_t first = view.position() + 1 - recorder_.current().op_count();
    learn(first, recorder_.finish(view), view, actions);
    ++iteration_;
  }

  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    ++rooms_;
    plan_wanted_ = diverged_ = true;  // the plan did not foresee this, so what follows will be otherwise, too
    const Evict evict = [&](Slot slot) { follower_.evict(slot, view, actions); };
    if (places_ && clear_a_place(shortfall, use(), view, evict)) return;
    evict_farthest(shortfall, use(), view, evict);
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
         alignment_.resynchronisations()},
        {"unplanned_evictions_asked", "1", "times that room was short in spite of the plan", rooms_},
        {"iterations_without_plan", "1", "iterations at whose end no plan was in force", without_plan_},
        {"adaptation_iterations", "1", "iterations before the first plan was in use",
         first_planned_ < 0 ? iteration_ : first_planned_},
    };
  }

 private:
  Entry& entry() { return library_[current_]; }
  PredictedUse use() const {
    return {alignment_, current_ == Library::kNone ? nullptr : &library_[current_].clock, params_.window,
            first_op_};
  }

  void begin_iteration(const View& view) {
    in_iteration_ = true;
    recorder_.begin_iteration();
    begin_time_ = view.host_now();
    iteration_time_ = view.last_iteration_time();
    first_op_ = view.position();
    const std::size_t predicted = library_.next();
    adopt(predicted, view);
    exact_ = predicted != Library::kNone;
    if (!exact_) return;
    // The last plan went on into the iteration that should follow: it bridges the time until the next is
    // made.
    if (predicted == bridge_to_) follower_.bridge(std::move(bridge_), bridge_ready_);
    bridge_to_ = Library::kNone;
    alignment_.bind_survivors(recorder_.survivors(), view);
  }

  void adopt(std::size_t which, const View& view) {
    current_ = which;
    alignment_.begin(which == Library::kNone ? nullptr : &entry().it, view);
    follower_.clear();
    diverged_ = false;
    plan_wanted_ = which != Library::kNone;
    plan_after_ = 0;
  }

  // When the iteration leaves the sequence that it is taken for with operator k: is it the beginning of
  // another one?
  void recognise(std::uint32_t k, const View& view) {
    if (!exact_) return;
    const LearnedIteration& now = recorder_.current();
    const LearnedIteration& mine = entry().it;
    exact_ = k < mine.op_count() && mine.signature_prefix[k] == now.signature_prefix[k];
    if (exact_) return;
    const Library::Match other = library_.beginning_with(now, k, current_);
    if (other.entry == Library::kNone) return;
    // By name only: no better than the plan at hand unless that one fails by name, too.
    if (!other.exact && k < mine.op_count() && mine.name_prefix[k] == now.name_prefix[k]) return;
    ++switches_;
    adopt(other.entry, view);
    exact_ = other.exact;
    alignment_.skip(k, recorder_);
  }

  void learn(std::uint32_t first, LearnedIteration it, const View& view, Actions& actions) {
    const std::size_t known = library_.find(it);
    if (known != Library::kNone) {
      ++(Library::identical(library_[known].it, it) ? recognised_ : shared_);
      library_.note(known, iteration_);
      return;
    }
    ++learned_;
    auto fresh = std::make_unique<Entry>();
    if (library_.last() != Library::kNone) fresh->tuning = library_[library_.last()].tuning;
    fresh->it = std::move(it);
    fresh->peak = peak_of(fresh->it);
    // Event times are there once the device is done; the pipeline drains once per new sequence.
    actions.synchronize();
    const Nanos dispatch = view.machine().host.op_dispatch;
    fresh->clock.assign(1, 0);
    for (std::uint32_t op = 0; op < fresh->it.op_count(); ++op) {
      const Nanos time = view.measured_time(first + op);
      fresh->it.device_time.push_back(time);
      fresh->clock.push_back(fresh->clock.back() + std::max(time, dispatch).value);
    }
    const std::size_t place = library_.add(std::move(fresh));
    if (place == current_) adopt(Library::kNone, view);  // what it held is forgotten
    library_.note(place, iteration_);
  }

  // From the state that the run is in. While a plan is in force and nothing went wrong, it is left alone and
  // the iteration that should follow is planned, in good time; else the rest of this one, too.
  void make_plan(std::uint32_t op, const View& view, Actions& actions) {
    plan_wanted_ = false;
    const bool keep = follower_.in_force() && !diverged_;
    diverged_ = false;
    std::vector<Lap> laps{{entry().it, alignment_.here()}};
    const std::vector<std::size_t> following = library_.forecast(current_, keep ? 3 : 2);
    for (const std::size_t which : following) laps.push_back({library_[which].it, 0});
    const std::size_t next = following[0];
    Entry& planned = keep ? library_[next] : entry();
    AheadOptions options;
    options.budget = view.budget();
    options.trials = keep ? params_.trials : 1;
    options.first = planned.plans == 0;
    options.round = planned.plans;
    options.in_force = keep;
    const std::uint32_t left = alignment_.left();
    // A plan that takes next to nothing of the iteration is waited for: what is done without it costs more.
    const Nanos time = planning_time(laps, options.first ? 3 : options.trials);
    const bool wait = time.value * kWorthWaiting < std::max(iteration_time_.value, entry().clock.back());
    options.hold = keep ? left : wait ? 0 : std::min(left, operators_in(time, view));
    AheadPlan plan = plan_ahead(laps, alignment_.slots(), follower_.leaving(view), follower_.rest(),
                                planned.tuning, options, view);
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
    follower_.offer(std::move(now), alignment_.here() + options.hold, bridge_ready_);
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

  static constexpr std::int64_t kWorthWaiting = 32;

  const AdaptiveParams params_;
  bool places_ = false;  // the allocator's free bytes lie in pieces
  Recorder recorder_;
  Library library_;
  Alignment alignment_;
  Follower follower_;
  std::int64_t iteration_ = 0;
  // Of the running iteration.
  bool in_iteration_ = false;
  std::size_t current_ = Library::kNone;  // entry that it is taken for
  bool exact_ = false;                    // every operator so far is that one's, by signature
  bool plan_wanted_ = false;
  bool diverged_ = false;         // the run is not where the plan in force would have it
  std::uint32_t plan_after_ = 0;  // operator of the run before which no other plan is made
  std::uint32_t first_op_ = 0;
  Nanos iteration_time_{0};  // of the newest iteration that is done
  Nanos begin_time_{0};      // on the host clock
  // Of the iteration that should follow: its entry, its plan, and when that may be followed.
  std::size_t bridge_to_ = Library::kNone;
  std::vector<Step> bridge_;
  Nanos bridge_ready_{0};
  // Figures.
  std::int64_t learned_ = 0, plans_ = 0, last_steps_ = 0, recognised_ = 0, shared_ = 0, switches_ = 0,
               rooms_ = 0, without_plan_ = 0, first_planned_ = -1;
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
