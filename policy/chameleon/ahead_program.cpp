#include "policy/chameleon/ahead_program.hpp"

#include <map>
#include <type_traits>
#include <utility>

namespace swaplab::adaptive {
namespace {

using Kind = std::pair<std::int64_t, std::uint8_t>;  // bytes, class
Kind kind_of(const Object& o) {
  return {o.bytes.value, static_cast<std::uint8_t>(o.cls)};
}

}  // namespace

AheadProgram::AheadProgram(std::span<const Lap> laps, std::span<const Slot> slot_of,
                           std::span<const Slot> leaving, const View& view)
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

AheadStep AheadProgram::step(const PlanStep& planned) const {
  std::uint32_t lap = 0;
  while (planned.position >= p_.iterations[lap].end_op) ++lap;
  const std::uint32_t s = index(planned.slot);
  const auto found = played_[lap].find(s);
  const std::uint32_t first = lap == 0 ? laps_[0].first_op : 0;
  return {lap, planned.position - begin_of(lap) + first, planned.action,
          found == played_[lap].end() ? kNever : found->second, s < live_.size() ? live_[s] : kNoSlot};
}

Slot AheadProgram::slot_of(const Step& step) const {
  if (step.object != kNever) return by_object_[step.object];
  if (!step.storage.alive(view_)) return kNoSlot;
  const auto found = adopted_.find(index(step.storage.slot));
  return found == adopted_.end() ? kNoSlot : found->second;
}

Slot AheadProgram::add(Bytes bytes, StorageClass cls, bool initial) {
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

void AheadProgram::adopt(Slot storage, Residency residency) {
  const auto [at, fresh] = adopted_.emplace(index(storage), Slot{p_.slot_count()});
  if (!fresh) return;
  add(view_.size(storage), view_.storage_class(storage), true);
  live_.push_back(storage);
  placement_.on_host.push_back(on_device(residency) ? 0 : 1);
  placement_.clean.push_back(residency == Residency::both ? 1 : 0);
}

void AheadProgram::adopt_live(std::span<const Slot> slot_of, std::span<const Slot> leaving) {
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

void AheadProgram::release(Slot slot) {
  p_.gap_events.push_back({slot, true});
  p_.death[index(slot)] = p_.op_count();
  alive_[index(slot)] = 0;
}

// Who plays the objects of the next lap: the same storages, else survivors of equal size and class, in
// order. What the lap before made and nobody takes over goes with it, or the laps would grow.
void AheadProgram::hand_over(std::uint32_t lap) {
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

void AheadProgram::write_lap(std::uint32_t lap) {
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

void AheadProgram::write_op(std::uint32_t lap, std::uint32_t op, const std::vector<std::uint32_t>& dying) {
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

}  // namespace swaplab::adaptive
