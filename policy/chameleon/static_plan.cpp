// Baseline: the same profile, generator and moves as `chameleon`, but recorded once and keyed by operator
// number for ever, as systems that assume a constant operator sequence do. When the sequence changes the
// numbers point at other tensors; that is the failure that Chameleon's paper starts from.
#include <algorithm>

#include "policy/chameleon/params.hpp"
#include "policy/chameleon/passive.hpp"
#include "policy/chameleon/profiler.hpp"
#include "policy/chameleon/sequence.hpp"

namespace swaplab::chameleon {
namespace {

struct StaticParams {
  std::int64_t record = 2;  // iteration
  std::int64_t n_layers = 1, d2h_bandwidth = 25600, h2d_bandwidth = 25600;
  std::string synchronous_oom = "on";
  std::int64_t detailed_ns = 25, generate_ns = 100;
};

class StaticPlan final : public Policy {
 public:
  explicit StaticPlan(StaticParams params) : params_(std::move(params)) {}

  Plan start(const View& view, Actions&) override {
    ChameleonParams defaults;
    defaults.n_layers = params_.n_layers;
    defaults.d2h_bandwidth = params_.d2h_bandwidth;
    defaults.h2d_bandwidth = params_.h2d_bandwidth;
    generator_ = generator_params(defaults, view.budget());
    return {};
  }

  void before_op(std::uint32_t op, const View& view, Actions& actions) override {
    if (!in_iteration_) {
      in_iteration_ = true;
      first_op_ = op;
      out_of_memory_ = false;
      step_.begin_iteration();
      for (Move& move : moves_) move.slot = kNoSlot;
      late_.clear();
      if (recording()) profiler_.begin_iteration();
    }
    const std::uint32_t offset = op - first_op_;
    if (offset > 0) after_op(op - 1, offset - 1, view, actions);
    step_.advance(view.op_phase(op));
    if (offset < at_.size()) run(at_[offset], view, actions);
    if (!recording()) return;
    record(op, view);
    actions.spend_profiling_time(Nanos{params_.detailed_ns});
  }

  void end_iteration(std::uint32_t, const View& view, Actions& actions) override {
    if (!in_iteration_) return;
    after_op(view.position(), view.position() - first_op_, view, actions);
    in_iteration_ = false;
    const Nanos time = view.last_iteration_time();
    if (time > Nanos{0} && (shortest_ == Nanos{0} || time < shortest_)) shortest_ = time;
    if (recording()) make_plan(actions);
    ++iteration_;
  }

  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    const Slot victim = swap_out_passively(shortfall, Victims::any, view, actions);
    if (victim == kNoSlot) return;
    out_of_memory_ = true;
    if (recording()) profiler_.leaving(victim, true, view);
    if (params_.synchronous_oom == "on") actions.wait_for_copies_out();
  }

  std::vector<PolicyMetric> metrics() const override {
    return {{"planned_moves", "1", "storages that the plan moves in each iteration",
             static_cast<std::int64_t>(moves_.size())},
            {"misses", "1", "moves whose operand was not there or was in use", misses_}};
  }

 private:
  struct Move {
    std::uint32_t out_op, argument;
    Remembered persistent;
    Slot slot;  // found in the running iteration
  };
  // What is due before an operator: first releases, then optimizer state out, then swap-ins.
  struct Due {
    bool begins_stage = false;
    std::vector<std::uint32_t> release, persistent, back;  // rows of moves_
  };

  bool recording() const { return iteration_ == params_.record; }

  void after_op(std::uint32_t op, std::uint32_t offset, const View& view, Actions& actions) {
    if (offset + 1 >= leave_after_.size()) return;
    for (const std::uint32_t m : leave_after_[offset]) {
      const auto operands = view.operands(op);
      if (moves_[m].argument >= operands.size()) {
        ++misses_;
        continue;
      }
      leave(m, operands[moves_[m].argument].slot, view, actions);
    }
  }

  void leave(std::uint32_t m, Slot slot, const View& view, Actions& actions) {
    const Residency residency = view.residency(slot);
    if (residency == Residency::absent) {
      ++misses_;
      return;
    }
    moves_[m].slot = slot;
    if (residency != Residency::device && residency != Residency::both) return;
    if (view.evictable(slot)) {
      actions.evict(slot);
    } else {
      moves_[m].slot = kNoSlot;
      ++misses_;
    }
  }

  void run(const Due& due, const View& view, Actions& actions) {
    for (const std::uint32_t m : due.release) {
      if (moves_[m].slot != kNoSlot) actions.release(moves_[m].slot);
    }
    for (const std::uint32_t m : due.persistent) {
      if (moves_[m].persistent.alive(view)) {
        leave(m, moves_[m].persistent.slot, view, actions);
      } else {
        ++misses_;
      }
    }
    if (!due.begins_stage) return;
    std::vector<Slot> back = std::move(late_);  // those that found no room come first
    late_.clear();
    for (const std::uint32_t m : due.back) back.push_back(moves_[m].slot);
    for (const Slot slot : back) {
      if (slot == kNoSlot) continue;
      const Residency residency = view.residency(slot);
      if (residency != Residency::host && residency != Residency::outgoing) continue;
      if (!actions.prefetch(slot)) late_.push_back(slot);
    }
  }

  void record(std::uint32_t op, const View& view) {
    profiler_.observe(view);
    Bytes active = view.allocated();
    const auto operands = view.operands(op);
    for (const Access& access : operands) {
      if ((access.flags & kCreate) != 0 && view.residency(access.slot) == Residency::absent) {
        active += view.size(access.slot);
      }
    }
    const std::uint32_t token = tokens_.token(view.op_name(op));
    profiler_.op(step_.type(), step_.micro_batch(), token, active);
    for (const Access& access : operands) {
      profiler_.tensor(access.slot, view.birth_rank(access.slot), view.size(access.slot),
                       view.storage_class(access.slot));
      // Not there: it comes back on demand, after this operator's bytes were counted.
      if (view.residency(access.slot) == Residency::host) {
        profiler_.returning(profiler_.op_count(), access.slot, view.size(access.slot));
      }
    }
  }

  void make_plan(Actions& actions) {
    const IterationProfile p = profiler_.finish(std::max(shortest_, Nanos{1}), out_of_memory_,
                                                std::vector<std::string>(tokens_.names().size()));
    if (p.op_count() == 0) return;
    actions.spend_host_time(Nanos{params_.generate_ns} * p.op_count());
    const SwapPlan plan = generate_plan(p, generator_);
    at_.assign(p.op_count(), {});
    leave_after_.assign(p.op_count() + 1, {});
    for (const Stage& stage : plan.stages) at_[stage.first_op].begins_stage = true;
    for (const std::uint32_t i : plan.emitted) {
      const Selection& s = plan.selected[i];
      const auto m = static_cast<std::uint32_t>(moves_.size());
      Move move{0, 0, {}, kNoSlot};
      if (s.optimizer) {
        move.persistent = storage_of(p.storages[s.tensor]);
        at_[plan.stages[s.out_stage].first_op].persistent.push_back(m);
      } else {
        move.out_op = static_cast<std::uint32_t>(s.out_op);
        const auto operands = p.tensors_of(move.out_op);
        move.argument = static_cast<std::uint32_t>(std::find(operands.begin(), operands.end(), s.tensor) -
                                                   operands.begin());
        leave_after_[move.out_op].push_back(m);
      }
      at_[plan.stages[s.free_stage].first_op].release.push_back(m);
      at_[plan.stages[s.in_stage].first_op].back.push_back(m);
      moves_.push_back(move);
    }
    // Last out first in: moves are listed in the order in which they leave.
    for (Due& due : at_) std::reverse(due.back.begin(), due.back.end());
    for (auto& leaving : leave_after_) {
      std::sort(leaving.begin(), leaving.end(),
                [&](std::uint32_t a, std::uint32_t b) { return moves_[a].argument < moves_[b].argument; });
    }
  }

  const StaticParams params_;
  GeneratorParams generator_;
  DetailedProfiler profiler_;
  TokenTable tokens_;
  StepTracker step_;
  std::int64_t iteration_ = 0, misses_ = 0;
  bool in_iteration_ = false, out_of_memory_ = false;
  std::uint32_t first_op_ = 0;
  Nanos shortest_{0};
  std::vector<Move> moves_;
  std::vector<Slot> late_;  // swap-ins of the running iteration that found no room
  std::vector<Due> at_;     // by operator of the iteration
  std::vector<std::vector<std::uint32_t>> leave_after_;  // likewise
};

SWAPLAB_REGISTER_POLICY(
    StaticPlan, StaticParams,
    {.name = "static-plan",
     .summary = "Chameleon's plan recorded once, keyed by operator number, never refreshed",
     .citation = "",
     .needs = Needs::op_events | Needs::op_stream},
    {integer_parameter("record", &StaticParams::record, 0, 1'000'000, "iteration that is recorded, from 0"),
     integer_parameter("n_layers", &StaticParams::n_layers, -1, 100'000, "as for chameleon, from 1, or -1"),
     integer_parameter("D2H_bandwidth", &StaticParams::d2h_bandwidth, 1, 100'000'000, "assumed, MiB/s"),
     integer_parameter("H2D_bandwidth", &StaticParams::h2d_bandwidth, 1, 100'000'000, "assumed, MiB/s"),
     choice_parameter<StaticParams>("synchronous_oom", &StaticParams::synchronous_oom, {"on", "off"},
                                    "a failed allocation waits for its swap-out on the host"),
     integer_parameter("detailed_ns", &StaticParams::detailed_ns, 0, 1'000'000,
                       "host time per operator of the detailed profiler"),
     integer_parameter("generate_ns", &StaticParams::generate_ns, 0, 1'000'000,
                       "host time per operator of generating the plan")});

}  // namespace
}  // namespace swaplab::chameleon
