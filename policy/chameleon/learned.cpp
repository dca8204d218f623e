#include "policy/chameleon/learned.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "policy/foresight_search.hpp"

namespace swaplab::adaptive {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 29;
}

void index_uses(LearnedIteration& it) {
  it.use_begin.assign(it.objects.size() + 1, 0);
  for (const Operand& operand : it.operands) ++it.use_begin[operand.object + 1];
  for (std::size_t o = 0; o < it.objects.size(); ++o) it.use_begin[o + 1] += it.use_begin[o];
  it.uses.resize(it.operands.size());
  std::vector<std::uint32_t> next(it.use_begin.begin(), it.use_begin.end() - 1);
  for (std::uint32_t op = 0; op < it.op_count(); ++op) {
    for (const Operand& operand : it.operands_of(op)) it.uses[next[operand.object]++] = op;
  }
}

// What dies here came from the iteration before; the equally large survivors, in order, play that part for
// the next one.
void find_carries(LearnedIteration& it) {
  std::map<std::pair<std::int64_t, std::uint8_t>, std::vector<std::uint32_t>> survivors;
  for (std::uint32_t o = it.objects.size() > 0 ? static_cast<std::uint32_t>(it.objects.size()) : 0;
       o-- > 0;) {
    const Object& object = it.objects[o];
    if (object.born == kNever || object.death != kNever) continue;
    survivors[{object.bytes.value, static_cast<std::uint8_t>(object.cls)}].push_back(o);  // last first
  }
  for (std::uint32_t o = 0; o < it.objects.size(); ++o) {
    const Object& object = it.objects[o];
    if (object.born != kNever || object.death == kNever) continue;
    auto& same = survivors[{object.bytes.value, static_cast<std::uint8_t>(object.cls)}];
    if (same.empty()) continue;
    it.carries.push_back({o, same.back()});
    same.pop_back();
  }
}

// Three repetitions of a learned iteration.
class Laps {
 public:
  static constexpr std::uint32_t kLaps = 3;

  Laps(const LearnedIteration& it, const Machine& machine) : it_(it), machine_(machine) {
    p_.names = StringTable(Column<std::uint64_t>(std::vector<std::uint64_t>{0, 0}), Column<char>());
    p_.access_begin.push_back(0);
    p_.gap_begin.push_back(0);
    successor_.assign(it.objects.size(), kNever);
    consumed_.assign(it.objects.size(), false);
    for (const auto& carry : it.carries) {
      successor_[carry.dying] = carry.successor;
      consumed_[carry.successor] = true;
    }
    dying_at_.resize(it.op_count());
    for (std::uint32_t o = 0; o < it.objects.size(); ++o) {
      if (it.objects[o].death != kNever) dying_at_[it.objects[o].death].push_back(o);
    }
    slot_.assign(it.objects.size(), kNoSlot);
    for (std::uint32_t o = 0; o < it.objects.size(); ++o) {
      if (it.objects[o].born == kNever) slot_[o] = add(o, true);
    }
    for (std::uint32_t lap = 0; lap < kLaps; ++lap) write_lap(lap);
    p_.gap_begin.push_back(static_cast<std::uint32_t>(p_.gap_events.size()));
    p_.steady_first = 1;
    p_.steady_end = 2;
    p_.peak_bytes = Bytes{peak_};
  }

  const Program& program() const { return p_; }
  // Object that a slot plays in lap 1; kNever when none.
  std::uint32_t object_in_middle(Slot slot) const { return middle_[index(slot)]; }

 private:
  Slot add(std::uint32_t object, bool initial) {
    const Slot slot{p_.slot_count()};
    p_.origin.push_back(StorageId{p_.slot_count()});
    p_.bytes.push_back(it_.objects[object].bytes);
    p_.cls.push_back(it_.objects[object].cls);
    p_.home_stream.push_back(0);
    p_.initial.push_back(initial ? 1 : 0);
    p_.birth.push_back(initial ? 0 : p_.op_count());
    p_.death.push_back(kNever);
    p_.slot_name.push_back(NameId{});
    middle_.push_back(initial ? object : kNever);
    live_ += it_.objects[object].bytes.value;
    peak_ = std::max(peak_, live_);
    return slot;
  }
  void release(Slot slot) {
    p_.gap_events.push_back({slot, true});
    p_.death[index(slot)] = p_.op_count();
    live_ -= p_.bytes[index(slot)].value;
  }

  void write_lap(std::uint32_t lap) {
    const std::vector<Slot> before = slot_;
    if (lap > 0) {
      for (std::uint32_t o = 0; o < it_.objects.size(); ++o) {
        const Object& object = it_.objects[o];
        if (it_.persistent(o)) continue;
        if (object.born != kNever) {
          // Nobody consumes it: it goes with its lap, or the laps would grow.
          if (object.death == kNever && !consumed_[o]) release(before[o]);
          slot_[o] = kNoSlot;
        } else {
          slot_[o] = successor_[o] == kNever ? kNoSlot : before[successor_[o]];
        }
      }
    }
    if (lap == 1) {
      std::fill(middle_.begin(), middle_.end(), kNever);
      for (std::uint32_t o = 0; o < it_.objects.size(); ++o) {
        if (slot_[o] != kNoSlot) middle_[index(slot_[o])] = o;
      }
    }
    const std::uint32_t first = p_.op_count();
    for (std::uint32_t op = 0; op < it_.op_count(); ++op) write_op(op, lap);
    p_.iterations.push_back({lap, IterationKind::train, false, first, p_.op_count()});
  }

  void write_op(std::uint32_t op, std::uint32_t lap) {
    for (const std::uint32_t o : dying_at_[op]) {
      if (slot_[o] == kNoSlot) continue;
      release(slot_[o]);
      slot_[o] = kNoSlot;
    }
    for (const Operand& operand : it_.operands_of(op)) {
      const std::uint32_t o = operand.object;
      if (it_.objects[o].born != op || slot_[o] != kNoSlot) continue;
      slot_[o] = add(o, false);
      if (lap == 1) middle_[index(slot_[o])] = o;
      p_.gap_events.push_back({slot_[o], false});
    }
    for (const Operand& operand : it_.operands_of(op)) {
      if (slot_[operand.object] == kNoSlot) continue;
      p_.accesses.push_back({slot_[operand.object], operand.flags});
    }
    p_.gap_begin.push_back(static_cast<std::uint32_t>(p_.gap_events.size()));
    p_.access_begin.push_back(static_cast<std::uint32_t>(p_.accesses.size()));
    p_.device_time.push_back(it_.device_time[op]);
    p_.host_time.push_back(machine_.host.op_dispatch);
    p_.op_flags.push_back(it_.device_time[op] > Nanos{0} ? static_cast<std::uint8_t>(kKernel)
                                                         : std::uint8_t{0});
    p_.stream.push_back(0);
    p_.phase.push_back(it_.phase[op]);
    p_.name.push_back(NameId{});
    p_.signature.push_back(SigId{});
  }

  const LearnedIteration& it_;
  const Machine& machine_;
  Program p_;
  std::vector<std::uint32_t> successor_;  // by object from before that dies
  std::vector<bool> consumed_;            // by survivor
  std::vector<std::vector<std::uint32_t>> dying_at_;
  std::vector<Slot> slot_;             // by object, in the lap being written
  std::vector<std::uint32_t> middle_;  // by slot
  std::int64_t live_ = 0, peak_ = 0;
};

// Initial slots are the objects from before, in order. They start where they are, except that those used
// latest start on the host where the budget cannot hold all.
foresight::Placement place_initial(const LearnedIteration& it, const std::vector<std::uint8_t>& on_host,
                                   Bytes budget, std::uint32_t slot_count) {
  foresight::Placement placement;
  placement.on_host.resize(slot_count, 0);
  std::vector<std::uint32_t> object;  // by initial slot
  std::int64_t resident = 0;
  for (std::uint32_t o = 0; o < it.objects.size(); ++o) {
    if (it.objects[o].born != kNever) continue;
    placement.on_host[object.size()] = on_host[o];
    if (on_host[o] == 0) resident += it.objects[o].bytes.value;
    object.push_back(o);
  }
  std::vector<std::uint32_t> latest(object.size());
  std::iota(latest.begin(), latest.end(), 0U);
  const auto first_use = [&](std::uint32_t slot) {
    const auto uses = it.uses_of(object[slot]);
    return uses.empty() ? kNever : uses.front();
  };
  std::stable_sort(latest.begin(), latest.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return first_use(a) > first_use(b); });
  for (const std::uint32_t slot : latest) {
    if (resident <= budget.value) break;
    if (placement.on_host[slot] != 0) continue;
    placement.on_host[slot] = 1;
    resident -= it.objects[object[slot]].bytes.value;
  }
  return placement;
}

}  // namespace

void Recorder::start(const View& view) {
  for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) known_.push_back(s);
}

void Recorder::begin_iteration() {
  now_ = LearnedIteration();
  slots_.clear();
  ++epoch_;
  first_op_ = true;
}

std::uint32_t Recorder::object_of(Slot slot, bool created, const View& view) {
  const std::uint32_t s = index(slot);
  if (s >= object_.size()) {
    object_.resize(s + 1, 0);
    epoch_of_.resize(s + 1, 0);
  }
  if (epoch_of_[s] != epoch_) {
    epoch_of_[s] = epoch_;
    object_[s] = static_cast<std::uint32_t>(now_.objects.size());
    now_.objects.push_back(
        {view.size(slot), view.storage_class(slot), created ? now_.op_count() : kNever, kNever, slot});
  }
  return object_[s];
}

void Recorder::note_frees(std::span<const GapEvent> events) {
  for (const GapEvent& event : events) {
    const std::uint32_t s = index(event.slot);
    if (event.is_free && s < epoch_of_.size() && epoch_of_[s] == epoch_) {
      now_.objects[object_[s]].death = now_.op_count();
    }
  }
}

void Recorder::op(std::uint32_t op, const View& view) {
  if (first_op_) {
    first_op_ = false;
    for (const Slot slot : known_) object_of(slot, false, view);
    known_.clear();
  }
  // What was freed since the last call: behind the allocations of the operator before, then before this one.
  if (now_.op_count() > 0) note_frees(view.gap_events(op - 1).subspan(leading_frees_));
  const auto frees = view.gap_events(op);
  leading_frees_ = frees.size();
  note_frees(frees);
  const NameId name = view.op_name(op);
  const SigId signature = view.op_signature(op);
  for (const Access& access : view.operands(op)) {
    const bool created = (access.flags & kCreate) != 0 && view.residency(access.slot) == Residency::absent;
    now_.operands.push_back({object_of(access.slot, created, view), access.flags});
    slots_.push_back(access.slot);
  }
  now_.name.push_back(name);
  now_.signature.push_back(signature);
  now_.phase.push_back(view.op_phase(op));
  now_.operand_begin.push_back(static_cast<std::uint32_t>(now_.operands.size()));
  const auto last = [](const std::vector<std::uint64_t>& hashes) {
    return hashes.empty() ? 0 : hashes.back();
  };
  now_.signature_prefix.push_back(mix(last(now_.signature_prefix), index(signature) + 1ULL));
  now_.name_prefix.push_back(mix(last(now_.name_prefix), index(name) + 1ULL));
}

LearnedIteration Recorder::finish() {
  LearnedIteration it = std::move(now_);
  now_ = LearnedIteration();
  for (const Object& object : it.objects) {
    if (object.death == kNever) known_.push_back(object.slot);
  }
  index_uses(it);
  find_carries(it);
  return it;
}

LearnedPlan plan_learned(const LearnedIteration& it, const Machine& machine, Bytes budget,
                         const std::vector<std::uint8_t>& on_host, std::int64_t effort) {
  const Laps laps(it, machine);
  const foresight::Placement placement = place_initial(it, on_host, budget, laps.program().slot_count());
  foresight::SearchOptions options;
  options.budget = budget;
  options.effort = effort;
  foresight::SearchResult found = foresight::search_plan(laps.program(), machine, placement, options);
  LearnedPlan plan;
  plan.work = found.evaluations * (laps.program().op_count() + laps.program().accesses.size());
  const std::uint32_t n = it.op_count();
  for (const PlanStep& step : found.plan.steps) {
    if (step.position < n || step.position >= 2 * n) continue;
    const std::uint32_t object = laps.object_in_middle(step.slot);
    if (object != kNever) plan.steps.push_back({step.position - n, step.action, object});
  }
  return plan;
}

Ppm edit_share(std::span<const NameId> a, std::span<const NameId> b, Ppm limit) {
  // Greedy O(ND) (Myers): furthest x on each diagonal after d edits.
  const auto n = static_cast<std::int64_t>(a.size()), m = static_cast<std::int64_t>(b.size());
  const std::int64_t longest = std::max<std::int64_t>(1, std::max(n, m));
  const std::int64_t most = longest * limit / kUnchanged;
  if (std::max(n, m) - std::min(n, m) > most) return kUnchanged;
  std::vector<std::int64_t> furthest(static_cast<std::size_t>(2 * most + 3), 0);
  const auto at = [&](std::int64_t diagonal) -> std::int64_t& {
    return furthest[static_cast<std::size_t>(diagonal + most + 1)];
  };
  for (std::int64_t d = 0; d <= most; ++d) {
    for (std::int64_t k = -d; k <= d; k += 2) {
      std::int64_t x = k == -d || (k != d && at(k - 1) < at(k + 1)) ? at(k + 1) : at(k - 1) + 1;
      std::int64_t y = x - k;
      while (x < n && y < m && a[static_cast<std::size_t>(x)] == b[static_cast<std::size_t>(y)]) ++x, ++y;
      at(k) = x;
      if (x >= n && y >= m) return d * kUnchanged / longest;
    }
  }
  return kUnchanged;
}

}  // namespace swaplab::adaptive
