// `chameleon`: the online system. Profiler, change detector, stages WARMUP -> SEARCHING -> STABLE, plan
// generation from limited information, execution by fuzzy matching, passive swapping.
//
// Where the sources are silent this file chooses (each a parameter or named in README.md): lightweight
// profiling in WARMUP and STABLE, detailed in SEARCHING; a STABLE iteration that differs returns to WARMUP
// and drops the plan; the reference of the comparison is the sequence that the plan was made from, or,
// without one, the iteration before.
#include "policy/chameleon/params.hpp"
#include "policy/chameleon/passive.hpp"
#include "policy/chameleon/plan_runner.hpp"
#include "policy/chameleon/sequence.hpp"
#include "trace/error.hpp"

namespace swaplab::chameleon {
namespace {

enum class State : std::uint8_t { warmup, searching, stable };

class Chameleon final : public Policy, private SwapObserver {
 public:
  explicit Chameleon(ChameleonParams params)
      : params_(std::move(params)),
        detector_{params_.detector == "off"      ? Detector::off
                  : params_.detector == "length" ? Detector::length
                                                 : Detector::length_and_cosine,
                  params_.similarity == "counts" ? Similarity::counts : Similarity::sequence,
                  params_.op_diff_thresh, params_.cosine_thresh},
        victims_(params_.passive_swap_out == "public" ? Victims::published
                 : params_.passive_swap_out == "any"  ? Victims::any
                                                      : Victims::none),
        planning_(params_.swap_out == "on"),
        runner_({params_.match == "fuzzy", params_.swap_in == "on", params_.order == "lifo",
                 params_.release == "planned"}) {
    if (params_.warmup_step == 0) state_ = State::searching;
  }

  Plan start(const View& view, Actions&) override {
    generator_ = generator_params(params_, view.budget());
    return {};
  }

  void before_op(std::uint32_t op, const View& view, Actions& actions) override {
    if (!in_iteration_) begin_iteration(op, view);
    if (op > first_op_) finish_op(op - 1, view, actions);
    step_.advance(view.op_phase(op));
    token_ = tokens_.token(view.op_name(op));
    sequence_.push_back(token_);
    runner_.before_op(step_, view, actions, *this);
    if (profiling()) profile(op, view);
    actions.spend_profiling_time(Nanos{params_.profiler == "conventional" ? params_.conventional_ns
                                       : profiling()                      ? params_.detailed_ns
                                                                          : params_.light_ns});
    if (runner_.loaded()) actions.spend_host_time(Nanos{params_.match_ns});
  }

  void end_iteration(std::uint32_t, const View& view, Actions& actions) override {
    if (!in_iteration_) return;  // no operators: nothing to learn
    finish_op(view.position(), view, actions);
    in_iteration_ = false;
    ++iterations_;
    const Nanos time = view.last_iteration_time();
    if (time > Nanos{0} && (shortest_ == Nanos{0} || time < shortest_)) shortest_ = time;
    advance_state(view, actions);
  }

  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    const Slot victim = swap_out_passively(shortfall, victims_, view, actions);
    if (victim == kNoSlot) return;
    ++passive_out_;
    out_of_memory_ = true;
    if (profiling()) profiler_.leaving(victim, params_.oom_feedback == "on", view);
    if (params_.synchronous_oom == "on") actions.wait_for_copies_out();
  }

  ReleaseRule release_rule() const override {
    return params_.release == "record_stream" ? ReleaseRule::event_polled : ReleaseRule::stream_wait;
  }

  std::vector<PolicyMetric> metrics() const override {
    const RunnerCounts& c = runner_.counts();
    return {
        {"iterations_warmup", "1", "iterations in WARMUP: no plan", in_state_[0]},
        {"iterations_searching", "1", "iterations in SEARCHING: profiled in detail", in_state_[1]},
        {"iterations_stable", "1", "iterations in STABLE", in_state_[2]},
        {"changes_detected", "1", "iterations that the detector found different", changes_},
        {"plans_generated", "1", "plans that the generator made", plans_},
        {"plans_refused", "1", "generator runs without a plan (v2 without attention operators)", refused_},
        {"oom_iterations", "1", "iterations with a failed allocation", oom_iterations_},
        {"passive_swap_outs", "1", "storages that a failed allocation moved out", passive_out_},
        {"planned_swap_outs", "1", "plan entries of all iterations that ran under a plan", c.planned},
        {"matched", "1", "plan entries that found their tensor on the device", c.matched},
        {"already_out", "1", "plan entries whose tensor had left before", c.already_out},
        {"planned_swap_ins", "1", "swap-ins at their stage", c.swap_ins},
        {"swap_ins_without_room", "1", "swap-ins put off for lack of room", c.no_room},
        {"fingerprint_last_plan", "1", "checksum of the last plan's decisions", plan_checksum_},
        {"adaptation_iterations", "1", "iterations before the last change of state to STABLE",
         last_stable_ < 0 ? iterations_ : last_stable_},
    };
  }

 private:
  bool profiling() const { return planning_ && state_ == State::searching; }

  void begin_iteration(std::uint32_t op, const View& view) {
    in_iteration_ = true;
    first_op_ = op;
    finished_ = op;
    out_of_memory_ = false;
    sequence_.clear();
    step_.begin_iteration();
    runner_.begin_iteration(view);
    if (profiling()) profiler_.begin_iteration();
  }

  // Hooks that run after an operator.
  void finish_op(std::uint32_t op, const View& view, Actions& actions) {
    if (finished_ > op) return;
    finished_ = op + 1;
    runner_.after_op(op, op - first_op_, token_, step_, view, actions, *this);
  }

  void profile(std::uint32_t op, const View& view) {
    profiler_.observe(view);
    Bytes active = view.allocated();
    const auto operands = view.operands(op);
    for (const Access& access : operands) {
      if ((access.flags & kCreate) != 0 && view.residency(access.slot) == Residency::absent) {
        active += view.size(access.slot);
      }
    }
    profiler_.op(step_.type(), step_.micro_batch(), token_, active);
    for (const Access& access : operands) {
      const Bytes bytes = view.size(access.slot);
      profiler_.tensor(access.slot, view.birth_rank(access.slot), bytes, view.storage_class(access.slot));
      // Not there: it comes back on demand, after this operator's bytes were counted.
      if (view.residency(access.slot) == Residency::host) {
        profiler_.returning(profiler_.op_count(), access.slot, bytes);
      }
    }
  }

  void on_swap(bool out, Slot slot, const View& view) override {
    if (!profiling()) return;
    if (out) {
      profiler_.leaving(slot, false, view);
    } else {
      profiler_.returning(profiler_.op_count(), slot, view.size(slot));
    }
  }

  void advance_state(const View& view, Actions& actions) {
    ++in_state_[static_cast<std::size_t>(state_)];
    if (out_of_memory_) ++oom_iterations_;
    const bool differs = has_reference_ && sequences_differ(reference_, sequence_, detector_);
    if (differs) ++changes_;
    switch (state_) {
      case State::warmup:
        // Without a plan there is nothing to be similar to: every step counts, as in the public code.
        if (++steps_ >= params_.warmup_step) enter(State::searching);
        break;
      case State::searching:
        if (differs) {
          restart();
          break;
        }
        if (planning_) generate(view, actions);
        reference_ = sequence_;
        has_reference_ = true;
        if (++steps_ >= params_.stable_step) {
          enter(State::stable);
          last_stable_ = iterations_;
        }
        break;
      case State::stable:
        if (differs) restart();
        break;
    }
  }

  void enter(State state) {
    state_ = state;
    steps_ = 0;
  }

  void restart() {
    runner_.clear();
    has_reference_ = false;
    enter(params_.warmup_step == 0 ? State::searching : State::warmup);
  }

  void generate(const View& view, Actions& actions) {
    std::vector<std::string> names;
    for (const NameId name : tokens_.names()) names.emplace_back(view.name_text(name));
    const Nanos duration =
        params_.duration_ns > 0 ? Nanos{params_.duration_ns} : std::max(shortest_, Nanos{1});
    const bool oom = out_of_memory_ && params_.oom_feedback == "on";
    const IterationProfile p = profiler_.finish(duration, oom, std::move(names));
    actions.spend_host_time(Nanos{params_.generate_ns} * p.op_count());
    try {
      const SwapPlan plan = generate_plan(p, generator_);
      ++plans_;
      generator_.redundant_memory = plan.redundant_memory;
      plan_checksum_ = checksum(plan);
      runner_.load(plan, p, generator_, sequence_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      ++refused_;
      runner_.clear();
    }
  }

  static std::int64_t checksum(const SwapPlan& plan) {
    std::uint64_t hash = 1469598103934665603ULL;
    const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211ULL; };
    for (const std::uint32_t i : plan.emitted) {
      const Selection& s = plan.selected[i];
      for (const std::uint64_t value : {static_cast<std::uint64_t>(s.out_op + 1), std::uint64_t{s.out_stage},
                                        std::uint64_t{s.in_stage}, std::uint64_t{s.free_stage}}) {
        add(value);
      }
    }
    return static_cast<std::int64_t>(hash >> 16);
  }

  const ChameleonParams params_;
  const DetectorParams detector_;
  const Victims victims_;
  const bool planning_;
  GeneratorParams generator_;
  PlanRunner runner_;
  TokenTable tokens_;
  DetailedProfiler profiler_;
  StepTracker step_;
  State state_ = State::warmup;
  std::int64_t steps_ = 0;
  Nanos shortest_{0};  // iteration time: the minimum seen so far
  // Of the running iteration.
  bool in_iteration_ = false, out_of_memory_ = false;
  std::uint32_t first_op_ = 0, finished_ = 0, token_ = 0;
  std::vector<std::uint32_t> sequence_;
  std::vector<std::uint32_t> reference_;
  bool has_reference_ = false;
  // Figures.
  std::int64_t iterations_ = 0, changes_ = 0, plans_ = 0, refused_ = 0, oom_iterations_ = 0, passive_out_ = 0;
  std::int64_t in_state_[3] = {0, 0, 0}, last_stable_ = -1, plan_checksum_ = 0;
};

SWAPLAB_REGISTER_POLICY(
    Chameleon, ChameleonParams,
    {.name = "chameleon",
     .summary = "online: learns from names and whole-iteration time, plans, matches tensors by "
                "fingerprint, starts over when the sequence changes",
     .citation = "arXiv 2509.11076 (Chameleon / SmartSwap)",
     .needs = Needs::op_events | Needs::op_stream},
    chameleon_parameters());

}  // namespace
}  // namespace swaplab::chameleon
