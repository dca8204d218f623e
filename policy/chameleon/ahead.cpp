#include "policy/chameleon/ahead.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>

#include "policy/foresight_gaps.hpp"
#include "policy/foresight_model.hpp"
#include "sim/memory_fork.hpp"
#include "sim/wide_math.hpp"

namespace swaplab::adaptive {
namespace {

using foresight::LayoutRules;
using foresight::Rules;

bool on_device(Residency residency) {
  return residency == Residency::device || residency == Residency::both;
}

// The laps as a program whose initial slots are the storages that live now.
class AheadProgram {
 public:
  AheadProgram(std::span<const Lap> laps, std::span<const Slot> slot_of, std::span<const Slot> leaving,
               const View& view)
      : laps_(laps), view_(view), dispatch_(view.machine().host.op_dispatch) {
    p_.names = StringTable(Column<std::uint64_t>(std::vector<std::uint64_t>{0, 0}), Column<char>());
    p_.access_begin.push_back(0);
    p_.gap_begin.push_back(0);
    adopt_live(slot_of, leaving);
    by_object_ = object_slot_;
    for (std::uint32_t lap = 0; lap < laps.size(); ++lap) write_lap(lap);
    p_.gap_begin.push_back(static_cast<std::uint32_t>(p_.gap_events.size()));
    p_.steady_first = 0;
    p_.steady_end = static_cast<std::uint32_t>(laps.size());
  }

  const Program& program() const { return p_; }
  // Of the initial slots.
  const foresight::Placement& placement() const { return placement_; }
  // By initial slot: the storage of the run.
  const std::vector<Slot>& live() const { return live_; }
  // Operators of the laps before `lap`.
  std::uint32_t begin_of(std::uint32_t lap) const { return lap == 0 ? 0 : p_.iterations[lap - 1].end_op; }

  AheadStep step(const PlanStep& planned) const {
    std::uint32_t lap = 0;
    while (planned.position >= p_.iterations[lap].end_op) ++lap;
    const std::uint32_t s = index(planned.slot);
    const auto found = played_[lap].find(s);
    const std::uint32_t first = lap == 0 ? laps_[0].first_op : 0;
    return {lap, planned.position - begin_of(lap) + first, planned.action,
            found == played_[lap].end() ? kNever : found->second, s < live_.size() ? live_[s] : kNoSlot};
  }

  // The storage that a step of the first lap means, kNoSlot when there is none; its position.
  Slot slot_of(const Step& step) const {
    if (step.object != kNever) return by_object_[step.object];
    if (!step.storage.alive(view_)) return kNoSlot;
    const auto found = adopted_.find(index(step.storage.slot));
    return found == adopted_.end() ? kNoSlot : found->second;
  }

 private:
  using Kind = std::pair<std::int64_t, std::uint8_t>;  // bytes, class
  static Kind kind_of(const Object& o) { return {o.bytes.value, static_cast<std::uint8_t>(o.cls)}; }

  Slot add(Bytes bytes, StorageClass cls, bool initial) {
    const Slot slot{p_.slot_count()};
    p_.origin.push_back(StorageId{p_.slot_count()});
    p_.bytes.push_back(bytes);
    p_.cls.push_back(cls);
    p_.home_stream.push_back(0);
    p_.initial.push_back(initial ? 1 : 0);
    p_.birth.push_back(initial ? 0 : p_.op_count());
    p_.death.push_back(kNever);
    p_.slot_name.push_back(NameId{});
    alive_.push_back(1);
    return slot;
  }

  void adopt(Slot storage, Residency residency) {
    const auto [at, fresh] = adopted_.emplace(index(storage), Slot{p_.slot_count()});
    if (!fresh) return;
    add(view_.size(storage), view_.storage_class(storage), true);
    live_.push_back(storage);
    placement_.on_host.push_back(on_device(residency) ? 0 : 1);
    placement_.clean.push_back(residency == Residency::both ? 1 : 0);
  }

  void adopt_live(std::span<const Slot> slot_of, std::span<const Slot> leaving) {
    const auto adopt_if_alive = [&](Slot storage) {
      if (storage == kNoSlot) return false;
      const Residency residency = view_.residency(storage);
      if (residency == Residency::absent) return false;
      adopt(storage, residency);
      return true;
    };
    object_slot_.assign(slot_of.size(), kNoSlot);
    for (std::uint32_t o = 0; o < slot_of.size(); ++o) {
      if (adopt_if_alive(slot_of[o])) object_slot_[o] = adopted_.at(index(slot_of[o]));
    }
    for (Slot s = view_.oldest(); s != kNoSlot; s = view_.newer(s)) adopt_if_alive(s);
    for (const Slot s : leaving) adopt_if_alive(s);
    for (const Lap& lap : laps_.subspan(1)) {
      for (std::uint32_t o = 0; o < lap.it.objects.size(); ++o) {
        const Remembered& storage = lap.it.objects[o].storage;
        if (lap.it.persistent(o) && storage.alive(view_)) adopt_if_alive(storage.slot);
      }
    }
  }

  void release(Slot slot) {
    p_.gap_events.push_back({slot, true});
    p_.death[index(slot)] = p_.op_count();
    alive_[index(slot)] = 0;
  }

  // Who plays the objects of the next lap: the same storages, else survivors of equal size and class, in
  // order. What the lap before made and nobody takes over goes with it, or the laps would grow.
  void hand_over(std::uint32_t lap) {
    const LearnedIteration& it = laps_[lap].it;
    std::vector<Slot> before = std::move(object_slot_);
    object_slot_.assign(it.objects.size(), kNoSlot);
    std::vector<std::uint8_t> taken(p_.slot_count(), 0);
    for (std::uint32_t o = 0; o < it.objects.size(); ++o) {
      if (!it.persistent(o) || !it.objects[o].storage.alive(view_)) continue;
      const auto same = adopted_.find(index(it.objects[o].storage.slot));
      if (same == adopted_.end() || alive_[index(same->second)] == 0) continue;
      object_slot_[o] = same->second;
      taken[index(same->second)] = 1;
    }
    std::map<Kind, std::vector<Slot>> survivors;  // last first
    for (std::size_t o = before.size(); o-- > 0;) {
      const Slot slot = before[o];
      if (slot == kNoSlot || alive_[index(slot)] == 0 || taken[index(slot)] != 0) continue;
      if (laps_[lap - 1].it.objects[o].death != kNever) {  // behind the last operator
        release(slot);
        continue;
      }
      survivors[kind_of(laps_[lap - 1].it.objects[o])].push_back(slot);
    }
    for (std::uint32_t o = 0; o < it.objects.size(); ++o) {
      if (it.objects[o].born != kNever || object_slot_[o] != kNoSlot) continue;
      auto& same = survivors[kind_of(it.objects[o])];
      if (same.empty()) continue;
      object_slot_[o] = same.back();
      same.pop_back();
    }
    for (const auto& [kind, left] : survivors) {
      for (const Slot slot : left) {
        if (p_.initial[index(slot)] == 0) release(slot);
      }
    }
  }

  void write_lap(std::uint32_t lap) {
    const LearnedIteration& it = laps_[lap].it;
    if (lap > 0) hand_over(lap);
    played_.emplace_back();
    for (std::uint32_t o = 0; o < object_slot_.size(); ++o) {
      if (object_slot_[o] != kNoSlot) played_[lap].emplace(index(object_slot_[o]), o);
    }
    std::vector<std::vector<std::uint32_t>> dying(it.op_count());
    for (std::uint32_t o = 0; o < it.objects.size(); ++o) {
      if (it.objects[o].death != kNever && it.objects[o].death < it.op_count())
        dying[it.objects[o].death].push_back(o);
    }
    const std::uint32_t first = p_.op_count();
    for (std::uint32_t op = laps_[lap].first_op; op < it.op_count(); ++op) write_op(lap, op, dying[op]);
    p_.iterations.push_back({lap, IterationKind::train, false, first, p_.op_count()});
  }

  void write_op(std::uint32_t lap, std::uint32_t op, const std::vector<std::uint32_t>& dying) {
    const LearnedIteration& it = laps_[lap].it;
    for (const std::uint32_t o : dying) {
      if (object_slot_[o] == kNoSlot || alive_[index(object_slot_[o])] == 0) continue;
      release(object_slot_[o]);
      object_slot_[o] = kNoSlot;
    }
    for (const Operand& operand : it.operands_of(op)) {
      const std::uint32_t o = operand.object;
      if (it.objects[o].born != op || object_slot_[o] != kNoSlot) continue;
      object_slot_[o] = add(it.objects[o].bytes, it.objects[o].cls, false);
      played_[lap].emplace(index(object_slot_[o]), o);
      if (lap == 0) by_object_[o] = object_slot_[o];
      p_.gap_events.push_back({object_slot_[o], false});
    }
    for (const Operand& operand : it.operands_of(op)) {
      if (object_slot_[operand.object] == kNoSlot) continue;
      p_.accesses.push_back({object_slot_[operand.object], operand.flags});
    }
    p_.gap_begin.push_back(static_cast<std::uint32_t>(p_.gap_events.size()));
    p_.access_begin.push_back(static_cast<std::uint32_t>(p_.accesses.size()));
    const Nanos time = it.device_time[op];
    p_.device_time.push_back(time);
    p_.host_time.push_back(dispatch_);
    p_.op_flags.push_back(time > Nanos{0} ? static_cast<std::uint8_t>(kKernel) : std::uint8_t{0});
    p_.stream.push_back(0);
    p_.phase.push_back(it.phase[op]);
    p_.name.push_back(NameId{});
    p_.signature.push_back(SigId{});
  }

  std::span<const Lap> laps_;
  const View& view_;
  const Nanos dispatch_;
  Program p_;
  foresight::Placement placement_;
  std::vector<Slot> live_;
  std::unordered_map<std::uint32_t, Slot> adopted_;  // by storage of the run
  std::vector<std::uint8_t> alive_;                  // by slot
  std::vector<Slot> object_slot_;                    // by object of the lap being written
  std::vector<Slot> by_object_;                      // of the first lap
  std::vector<std::unordered_map<std::uint32_t, std::uint32_t>> played_;  // per lap: slot -> object
};

// `program` from operator `from` on, with the same slots: those that live then are initial.
Program rest_of(const Program& program, std::uint32_t from) {
  Program rest;
  rest.names = program.names;
  rest.bytes = program.bytes;
  rest.cls = program.cls;
  rest.home_stream = program.home_stream;
  rest.origin = program.origin;
  rest.slot_name = program.slot_name;
  rest.initial = program.initial;
  for (std::uint32_t g = 0; g < from; ++g) {
    for (const GapEvent& event : program.gap(g)) rest.initial[index(event.slot)] = event.is_free ? 0 : 1;
  }
  const auto tail = [&](const auto& column, std::size_t begin) {
    return std::remove_cvref_t<decltype(column)>(column.begin() + static_cast<std::ptrdiff_t>(begin),
                                                 column.end());
  };
  rest.device_time = tail(program.device_time, from);
  rest.host_time = tail(program.host_time, from);
  rest.op_flags = tail(program.op_flags, from);
  rest.stream = tail(program.stream, from);
  rest.phase = tail(program.phase, from);
  rest.name = tail(program.name, from);
  rest.signature = tail(program.signature, from);
  rest.access_begin = tail(program.access_begin, from);
  rest.accesses = tail(program.accesses, program.access_begin[from]);
  for (std::uint32_t& begin : rest.access_begin) begin -= program.access_begin[from];
  rest.gap_begin = tail(program.gap_begin, from);
  rest.gap_events = tail(program.gap_events, program.gap_begin[from]);
  for (std::uint32_t& begin : rest.gap_begin) begin -= program.gap_begin[from];
  rest.birth.assign(program.slot_count(), 0);
  rest.death.assign(program.slot_count(), kNever);
  for (const ProgramIteration& it : program.iterations) {
    if (it.end_op <= from) continue;
    rest.iterations.push_back(it);
    rest.iterations.back().first_op = it.first_op > from ? it.first_op - from : 0;
    rest.iterations.back().end_op = it.end_op - from;
  }
  rest.steady_end = static_cast<std::uint32_t>(rest.iterations.size());
  return rest;
}

// What the planners of `foresight` want to know of a program.
class Study {
 public:
  Study(const Program& program, const Machine& machine, const foresight::Placement& placement, Bytes budget,
        Bytes granularity)
      : gaps_(foresight::find_gaps(program, granularity)),
        clock_(program.op_count() + 1, 0),
        problem{program, machine, gaps_, placement, sizes_, clock_, roots_, budget.value} {
    for (const Bytes bytes : program.bytes) {
      sizes_.push_back(foresight::rounded(bytes, granularity));
      roots_.push_back(std::sqrt(std::sqrt(static_cast<double>(bytes.value))));
    }
    for (std::uint32_t op = 0; op < program.op_count(); ++op) {
      clock_[op + 1] = clock_[op] + program.device_time[op].value;
    }
    problem.sizes = sizes_;
    problem.clock = clock_;
    problem.root_size = roots_;
  }
  Study(const Study&) = delete;
  Study& operator=(const Study&) = delete;

 private:
  const foresight::GapTable gaps_;
  std::vector<std::int64_t> sizes_, clock_;
  std::vector<double> roots_;

 public:
  foresight::Problem problem;
};

class Planner {
 public:
  // `state` null: only bytes count. Plans operators before `end`.
  Planner(const Program& program, const foresight::Placement& placement, const foresight::LiveState* state,
          std::uint32_t end, const AheadOptions& options, const Machine& machine)
      : program_(program),
        placement_(placement),
        options_(options),
        machine_(machine),
        end_(end),
        study_(program, machine, placement, options.budget, Bytes{state != nullptr ? 512 : 1}) {
    if (state != nullptr) start_.emplace(foresight::LiveStart{*state, end});
  }

  void run(const Tuning& first) {
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
      const std::uint64_t which = options_.round * static_cast<std::uint64_t>(options_.trials - 1) +
                                  static_cast<std::uint64_t>(t - 1);
      consider(vary(best_tuning_, which));
    }
  }
  const Plan& plan() const { return best_; }
  const Tuning& tuning() const { return best_tuning_; }
  Nanos expected() const { return Nanos{best_score_->time}; }
  std::uint64_t work() const { return work_; }

 private:
  struct Score {
    std::uint64_t broken = 0;
    std::int64_t time = 0;
    auto operator<=>(const Score&) const = default;
  };

  std::uint64_t pass() const { return program_.access_begin[end_] + end_; }

  foresight::ModelResult model(const Plan& plan, bool keep_ends) {
    work_ += pass();
    return foresight::replay(program_, machine_, plan, placement_, study_.problem.sizes, options_.budget,
                             end_, keep_ends);
  }

  void consider(const Tuning& tuning) {
    foresight::Rules rules = tuning.rules;
    const bool follows = start_ && !tuning.layout.sweep;
    if (follows) rules.slack = std::max(rules.slack, options_.budget.value / 1000 * tuning.margin);
    work_ += pass();
    foresight::Selection selection = foresight::select(study_.problem, rules, {}, end_);
    foresight::ModelResult result = model(selection.plan, start_.has_value());
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

  void accept(const Tuning& tuning, Plan&& plan, const Score& score) {
    if (best_score_ && !(score < *best_score_)) return;
    best_score_ = score;
    best_ = std::move(plan);
    best_tuning_ = tuning;
  }

  // One thing changed, another one each time.
  Tuning vary(Tuning t, std::uint64_t which) const {
    const std::int64_t budget = options_.budget.value;
    const auto flip = [](bool& value) { value = !value; };
    const auto toggle = [](std::int64_t& value, std::int64_t a, std::int64_t b) {
      value = value == a ? b : a;
    };
    if (start_ && which % 2 == 0) {
      LayoutRules& layout = t.layout;
      if (which % 12 == 0) {
        flip(layout.sweep);
        return t;
      }
      if (!layout.sweep) {
        constexpr std::int64_t kMargins[] = {0, 80, 20, 160, 40};
        t.margin = kMargins[which / 2 % 5];
        return t;
      }
      switch (which / 2 % 7) {
        case 0:
          flip(layout.states_first);
          break;
        case 1:
          toggle(layout.near, 2, 1);
          break;
        case 2:
          toggle(layout.stray, 1, 6);
          break;
        case 3:
          toggle(layout.reserve, 40, 20);
          break;
        case 4:
          toggle(layout.near, 2, 3);
          break;
        case 5:
          toggle(layout.stray, 1, 0);
          break;
        default:
          toggle(layout.reserve, 40, 80);
          break;
      }
      return t;
    }
    Rules& rules = t.rules;
    switch ((start_ ? which / 2 : which) % 9) {
      case 0:
        flip(rules.in_order);
        break;
      case 1:
        toggle(rules.min_bytes, 0, budget / 1000);
        break;
      case 2:
        toggle(rules.size_power, 0, 1);
        break;
      case 3:
        flip(rules.by_length);
        break;
      case 4:
        toggle(rules.cost_weight, 0, 2);
        break;
      case 5:
        toggle(rules.size_power, 0, 4);
        break;
      case 6:
        flip(rules.trim);
        break;
      case 7:
        flip(rules.early_copy_out);
        break;
      default:
        toggle(rules.slack, 0, budget / 50);
        break;
    }
    return t;
  }

  const Program& program_;
  const foresight::Placement& placement_;
  const AheadOptions& options_;
  const Machine& machine_;
  const std::uint32_t end_;
  const Study study_;
  std::optional<foresight::LiveStart> start_;
  std::uint64_t work_ = 0;
  Plan best_;
  Tuning best_tuning_;
  std::optional<Score> best_score_;
};

foresight::LiveState state_now(const AheadProgram& ahead, std::shared_ptr<MemoryFork> memory,
                               std::span<const Slot> leaving, const View& view) {
  foresight::LiveState state;
  state.memory = std::move(memory);
  state.block.assign(ahead.program().slot_count(), kNoBlock);
  std::unordered_map<std::uint32_t, std::uint32_t> slot;
  for (std::uint32_t s = 0; s < ahead.live().size(); ++s) {
    const Slot storage = ahead.live()[s];
    slot.emplace(index(storage), s);
    const Residency residency = view.residency(storage);
    if (on_device(residency) || residency == Residency::outgoing) state.block[s] = view.block(storage);
  }
  for (const Slot storage : leaving) {
    const auto found = slot.find(index(storage));
    if (found != slot.end()) state.outgoing.push_back(found->second);
  }
  return state;
}

}  // namespace

AheadPlan plan_ahead(std::span<const Lap> laps, std::span<const Slot> slot_of, std::span<const Slot> leaving,
                     std::span<const Step> held, const Tuning& tuning, const AheadOptions& options,
                     const View& view) {
  const AheadProgram ahead(laps, slot_of, leaving, view);
  const Program& program = ahead.program();
  const Machine& machine = view.machine();
  const std::uint32_t end = ahead.begin_of(static_cast<std::uint32_t>(laps.size()) - 1);
  std::uint64_t work = program.accesses.size() + program.op_count();
  std::uint32_t hold = 0;
  std::optional<foresight::LiveState> state;
  if (std::shared_ptr<MemoryFork> memory = view.fork_memory()) {
    state = state_now(ahead, std::move(memory), leaving, view);
    hold = std::min(options.hold, end > 0 ? end - 1 : 0);
  }
  // Until the new plan takes over, the run goes on as it does now.
  if (hold > 0) {
    const Study study(program, machine, ahead.placement(), options.budget, Bytes{512});
    Plan kept;
    for (const Step& step : held) {
      const Slot slot = ahead.slot_of(step);
      if (slot == kNoSlot || step.op < laps[0].first_op) continue;
      kept.steps.push_back({step.op - laps[0].first_op, step.action, slot});
    }
    std::vector<std::int64_t> op_end;
    for (std::uint32_t op = 0; op < program.op_count(); ++op) {
      op_end.push_back((op == 0 ? 0 : op_end.back()) +
                       std::max(program.device_time[op], program.host_time[op]).value);
    }
    const foresight::LiveStart start{*state, hold, true};
    work += 2 * (std::uint64_t{program.access_begin[hold]} + hold);
    foresight::LayoutResult until = foresight::fit_to_allocator(
        study.problem, kept, op_end, kUnplanned, state->memory->allocator.config(), options.budget, &start);
    if (until.failures == 0) {
      state = std::move(until.end);
    } else {
      hold = 0;
    }
  }
  const Program rest = hold > 0 ? rest_of(program, hold) : program;
  if (hold == 0 && state) {
    state->placement = ahead.placement();
    state->placement.on_host.resize(program.slot_count(), 0);
    state->placement.clean.resize(program.slot_count(), 0);
  }
  Planner planner(rest, state ? state->placement : ahead.placement(), state ? &*state : nullptr, end - hold,
                  options, machine);
  planner.run(tuning);
  AheadPlan plan;
  for (PlanStep step : planner.plan().steps) {
    step.position += hold;
    if (step.position >= end) break;
    plan.steps.push_back(ahead.step(step));
  }
  plan.tuning = planner.tuning();
  plan.work = work + planner.work();
  plan.expected = planner.expected();
  return plan;
}

}  // namespace swaplab::adaptive
