#include "policy/foresight_layout.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "policy/foresight_memory.hpp"
#include "policy/foresight_places.hpp"
#include "policy/foresight_projection.hpp"
#include "policy/foresight_room.hpp"
#include "sim/memory_fork.hpp"

namespace swaplab::foresight {
namespace {

class Walk {
 public:
  Walk(const Problem& problem, const Plan& plan, std::span<const std::int64_t> op_end,
       const LayoutRules& rules, const AllocatorConfig& config, Bytes capacity, const LiveStart* start)
      : in_(problem),
        program_(problem.program),
        planned_(plan.steps),
        op_end_(op_end),
        rules_(rules),
        capacity_(capacity.value),
        start_(start),
        clock_(start != nullptr && start->state.clock ? *start->state.clock
                                                      : LayoutClock(problem.machine.interference)),
        memory_(program_,
                start == nullptr ? std::make_unique<MemoryFork>(
                                       StubDevice(static_cast<std::uint64_t>(capacity.value)), config)
                                 : std::make_unique<MemoryFork>(*start->state.memory),
                capacity, clock_),
        slots_(program_.slot_count()),
        room_(projected_room(problem, rules.sweep ? std::span<const PlanStep>() : std::span(plan.steps),
                             capacity)),
        reserve_(rules.sweep ? capacity.value / 1000 * rules.reserve : 0),
        queue_time_(problem.machine.link(Direction::host_to_device).time(capacity / 50).value),
        near_time_(near_time(rules, capacity, problem.machine)) {
    clock_.enter(program_);
    if (!rules_.sweep) return;
    departures_.resize(program_.slot_count());
    for (const PlanStep& step : planned_) {
      if (step.action == PlanAction::evict) departures_[index(step.slot)].push_back(step.position);
    }
  }

  LayoutResult run() {
    start_ == nullptr ? place_initial() : take_over();
    const std::int64_t begin = clock_.latest();
    const std::uint32_t end = start_ == nullptr ? program_.op_count() : start_->end_op;
    for (op_ = 0; op_ < end && result_.failures == 0; ++op_) {
      for (const Access& access : program_.accesses_of(op_)) slots_[index(access.slot)].pinned_for = op_;
      const auto events = program_.gap(op_);
      std::size_t e = 0;
      for (; e < events.size() && events[e].is_free; ++e) memory_.release(index(events[e].slot));
      if (start_ != nullptr && start_->as_is) {
        run_as_is();
      } else {
        if (!rules_.sweep) run_planned();
        bring_back();
      }
      for (; e < events.size() && result_.failures == 0; ++e) {
        const std::uint32_t s = index(events[e].slot);
        if (events[e].is_free) {
          memory_.release(s);
        } else if (take(s, true)) {
          memory_.set_place(s, Place::device);
          clock_.create(s, program_.home_stream[s]);
        }
      }
      for (std::uint32_t a = program_.access_begin[op_]; a < program_.access_begin[op_ + 1]; ++a) access(a);
      clock_.issue(program_, op_, in_.machine);
      memory_.forget_log();
    }
    result_.time = clock_.latest() - begin;
    result_.recoveries = memory_.recoveries();
    finish();
    if (start_ != nullptr) hand_over();
    return std::move(result_);
  }

 private:
  struct SlotState {
    std::uint32_t pinned_for = kNever;
    bool waits = false;                      // brought back, not used since
    std::uint32_t current = kNever;          // latest access
    std::uint32_t used = 0;                  // position after it
    std::uint32_t complete = 0;              // position after its last write
    std::uint32_t version_on_host = kNever;  // `complete` of the content that the host holds
  };

  void place_initial() {
    for (std::uint32_t s = 0; s < program_.slot_count(); ++s) {
      if (program_.initial[s] == 0) continue;
      if (in_.placement.on_host[s] != 0 || !take(s, false)) {
        memory_.set_place(s, Place::host);
        slots_[s].version_on_host = 0;
      } else {
        memory_.set_place(s, Place::device);
      }
    }
  }

  // Initial slots where a running allocator has them; what is on the host comes back by its next use.
  void take_over() {
    for (std::uint32_t s = 0; s < program_.slot_count(); ++s) {
      if (program_.initial[s] == 0) continue;
      memory_.adopt(s, start_->state.block[s]);
      const bool away = in_.placement.on_host[s] != 0;
      memory_.set_place(s, away ? Place::host : Place::device);
      if (away || in_.placement.is_clean(s)) slots_[s].version_on_host = 0;
    }
    for (const std::uint32_t s : start_->state.outgoing) memory_.leave(s);
    if (!rules_.sweep || start_->as_is) return;
    for (std::uint32_t s = 0; s < program_.slot_count(); ++s) {
      const bool away = program_.initial[s] != 0 && memory_.place(s) != Place::device;
      if (away && in_.gaps.first_use[s] != kNever) pending_.emplace(in_.gaps.first_use[s], s);
    }
  }

  void hand_over() {
    LiveState& end = result_.end;
    end.block.assign(program_.slot_count(), kNoBlock);
    end.placement.on_host.assign(program_.slot_count(), 0);
    end.placement.clean.assign(program_.slot_count(), 0);
    for (std::uint32_t s = 0; s < program_.slot_count(); ++s) {
      const Place place = memory_.place(s);
      if (place == Place::absent) continue;
      end.placement.on_host[s] = place == Place::device ? 0 : 1;
      end.placement.clean[s] = clean(s) ? 1 : 0;
      if (place != Place::host) end.block[s] = memory_.block(s);
    }
    end.outgoing = memory_.outgoing();
    end.memory = memory_.take_fork();
    end.clock = std::move(clock_);
  }

  void keep(PlanAction action, std::uint32_t s) { result_.plan.steps.push_back({op_, action, Slot{s}}); }

  void run_planned() {
    for (; next_ < planned_.size() && planned_[next_].position <= op_; ++next_) {
      const std::uint32_t s = index(planned_[next_].slot);
      switch (planned_[next_].action) {
        case PlanAction::copy_out:
          copy_out(s);
          break;
        case PlanAction::evict:
          if (!may_leave(s)) break;
          keep(PlanAction::evict, s);
          evict(s);
          break;
        case PlanAction::prefetch:
          if (memory_.place(s) == Place::outgoing) {
            keep(PlanAction::prefetch, s);
            memory_.stay(s);
          } else if (memory_.place(s) == Place::host && fetch(s, false)) {
            keep(PlanAction::prefetch, s);
          } else if (memory_.place(s) == Place::host) {
            pending_.emplace(next_use(s), s);
            room_.add(op_, std::min(next_use(s), program_.op_count()), in_.sizes[s]);
          }
          break;
      }
    }
  }

  // The steps, as a policy takes them that tries again where a copy back found no room.
  void run_as_is() {
    for (; next_ < planned_.size() && planned_[next_].position <= op_; ++next_) {
      const std::uint32_t s = index(planned_[next_].slot);
      switch (planned_[next_].action) {
        case PlanAction::copy_out:
          copy_out(s);
          break;
        case PlanAction::evict:
          if (may_leave(s)) evict(s);
          break;
        case PlanAction::prefetch:
          if (!return_now(s)) late_.push_back(s);
          break;
      }
    }
    std::erase_if(late_, [&](std::uint32_t s) { return return_now(s); });
  }
  // False: no room.
  bool return_now(std::uint32_t s) {
    if (memory_.place(s) == Place::outgoing) memory_.stay(s);
    return memory_.place(s) != Place::host || fetch(s, false);
  }
  // What is on the host gets a place and is copied there. `forced`: others leave for it.
  bool fetch(std::uint32_t s, bool forced) {
    if (!take(s, forced)) return false;
    memory_.set_place(s, Place::device);
    clock_.copy_to_device(s, program_.bytes[s], in_.machine);
    return true;
  }
  bool may_leave(std::uint32_t s) const {
    return memory_.place(s) == Place::device && slots_[s].pinned_for != op_;
  }
  // The host holds its content.
  bool clean(std::uint32_t s) const { return slots_[s].version_on_host == slots_[s].complete; }

  void copy_out(std::uint32_t s) {
    if (memory_.place(s) != Place::device || clean(s)) return;
    keep(PlanAction::copy_out, s);
    write_back(s, clock_.host());
  }

  // Storages that still have to return, most urgent first, as soon as bytes are free that nobody
  // planned for. What is not back by its use is fetched then.
  void bring_back() {
    while (!pending_.empty()) {
      const auto [due, s] = *pending_.begin();
      if (memory_.place(s) == Place::host && due > op_) {
        if (memory_.changes() == changes_at_failure_ || room_.minimum(op_, due) < in_.sizes[s] + reserve_)
          return;
        if (!memory_.fits(s) || !memory_.could_take(s)) {
          changes_at_failure_ = memory_.changes();
          return;
        }
        keep(PlanAction::prefetch, s);
        fetch(s, false);
        slots_[s].waits = true;
        room_.add(op_, due, -in_.sizes[s]);
      }
      pending_.erase(pending_.begin());
    }
  }

  void access(std::uint32_t a) {
    const Access& access = program_.accesses[a];
    const std::uint32_t s = index(access.slot);
    SlotState& slot = slots_[s];
    if (memory_.place(s) == Place::outgoing) {
      memory_.stay(s);
    } else if (memory_.place(s) == Place::host && result_.failures == 0) {
      fetch(s, true);
    }
    slot.current = a;
    slot.used = op_ + 1;
    slot.waits = false;
    if ((access.flags & kWrite) != 0) slot.complete = op_ + 1;
  }

  std::uint32_t next_use(std::uint32_t s) const {
    const std::uint32_t current = slots_[s].current;
    return current == kNever ? in_.gaps.first_use[s] : in_.gaps.next[current];
  }

  void write_back(std::uint32_t s, std::int64_t earliest) {
    clock_.copy_to_host(s, program_.bytes[s], earliest, in_.machine);
    slots_[s].version_on_host = slots_[s].complete;
  }
  // `early`: written back as soon as the content was complete.
  void evict(std::uint32_t s, bool early = false) {
    if (!clean(s)) write_back(s, early ? 0 : clock_.host());
    memory_.leave(s);
  }

  // In the executor's order of attempts. `forced`: others leave for it.
  bool take(std::uint32_t s, bool forced) {
    bool hopeless = false;
    for (;;) {
      if (memory_.fits(s) && (memory_.could_take(s) || (forced && hopeless && !memory_.any_outgoing()))) {
        if (memory_.allocate(s)) return true;
        ++result_.failures;
        return false;
      }
      if (!forced && !memory_.could_fit(s)) return false;
      if (memory_.hand_on_oldest()) continue;
      if (!forced) return false;
      if (!hopeless && clear_a_place(s)) continue;
      if (hopeless) {
        ++result_.failures;
        return false;
      }
      clear_segments(s);
      hopeless = true;
    }
  }

  TenantAt tenants() const {
    return [this](std::uint64_t address) {
      const std::uint32_t s = memory_.slot_at(address);
      return Tenant{s, rules_.sweep ? cost_in_sweep(s) : eviction_cost(s)};
    };
  }

  // Evicts the cheapest neighbours that make a place for `s`; false when no segment has one.
  bool clear_a_place(std::uint32_t wanted) {
    const auto leaving = cheapest_place(memory_.segments(), memory_.request(wanted), tenants());
    for (const std::uint32_t s : leaving) send_away(s);
    return !leaving.empty();
  }

  // No segment is large enough: empties the cheapest ones.
  void clear_segments(std::uint32_t wanted) {
    for (const std::uint32_t s : cheapest_segments(memory_.segments(), memory_.missing(wanted), tenants()))
      send_away(s);
  }

  // Nanoseconds of copies, and of waiting where the next use is too near for them, given that copies
  // back queue behind others. -1: not possible.
  std::int64_t eviction_cost(std::uint32_t s) const {
    if (!may_leave(s)) return -1;
    const std::uint32_t due = next_use(s);
    const auto copy_time = [&](Direction direction) {
      return in_.machine.link(direction).time(program_.bytes[s]).value;
    };
    std::int64_t copies = clean(s) ? 0 : copy_time(Direction::device_to_host);
    if (due == kNever) return 2 + copies;
    copies += copy_time(Direction::host_to_device);
    const std::int64_t distance = op_end_[due] - now();
    return 2 + copies + 2 * std::max<std::int64_t>(0, copies + queue_time_ - distance);
  }

  // -1: not possible.
  std::int64_t cost_in_sweep(std::uint32_t s) const {
    if (!may_leave(s)) return -1;
    const std::uint32_t due = next_use(s);
    const bool used = due != kNever;
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    return (slots_[s].waits ? kMost : 0) +
           sweep_cost({Bytes{in_.sizes[s]}, program_.cls[s], clean(s), used && planned_to_leave(s, due),
                       used ? std::max<std::int64_t>(op_end_[due] - now(), 1) : -1},
                      rules_, Bytes{capacity_}, near_time_);
  }
  bool planned_to_leave(std::uint32_t s, std::uint32_t due) const {
    const auto& list = departures_[s];
    const auto it = std::lower_bound(list.begin(), list.end(), slots_[s].used);
    return it != list.end() && *it <= due;
  }
  std::int64_t now() const { return op_ == 0 ? 0 : op_end_[op_ - 1]; }

  void send_away(std::uint32_t s) {
    const SlotState& slot = slots_[s];
    const bool early = !clean(s) && slot.complete < op_;
    if (early) early_.push_back({slot.complete, PlanAction::copy_out, Slot{s}});
    keep(PlanAction::evict, s);
    evict(s, early);
    ++result_.repairs;
    const std::uint32_t due = next_use(s);
    room_.add(op_, std::min(due, program_.op_count()), in_.sizes[s]);
    if (due != kNever) pending_.emplace(due, s);
  }

  void finish() {
    auto& steps = result_.plan.steps;
    if (result_.failures != 0) {
      while (next_ < planned_.size() && planned_[next_].position < op_) ++next_;
      steps.insert(steps.end(), planned_.begin() + static_cast<std::ptrdiff_t>(next_), planned_.end());
    }
    steps.insert(steps.end(), early_.begin(), early_.end());
    std::stable_sort(steps.begin(), steps.end(),
                     [](const PlanStep& a, const PlanStep& b) { return a.position < b.position; });
  }

  const Problem& in_;
  const Program& program_;
  const std::vector<PlanStep>& planned_;
  std::span<const std::int64_t> op_end_;
  LayoutRules rules_;
  std::int64_t capacity_;
  const LiveStart* start_;
  LayoutClock clock_;
  LayoutMemory memory_;  // refers to clock_
  std::vector<SlotState> slots_;
  Room room_;
  std::int64_t reserve_;     // bytes that copies back leave free
  std::int64_t queue_time_;  // that a copy back may have to wait for its turn
  std::int64_t near_time_;   // ns before its next use that a storage counts as near
  std::vector<std::vector<std::uint32_t>> departures_;         // per slot: where the plan lets it leave
  std::size_t next_ = 0;                                       // of planned_
  std::uint64_t changes_at_failure_ = ~std::uint64_t{0};       // of what a copy back could use
  std::set<std::pair<std::uint32_t, std::uint32_t>> pending_;  // (next use, slot)
  std::vector<std::uint32_t> late_;                            // as_is: copies back without room
  std::vector<PlanStep> early_;                                // copies out of the repairs' victims
  std::uint32_t op_ = 0;
  LayoutResult result_;
};

}  // namespace

LayoutResult fit_to_allocator(const Problem& problem, const Plan& plan, std::span<const std::int64_t> op_end,
                              const LayoutRules& rules, const AllocatorConfig& config, Bytes capacity,
                              const LiveStart* start) {
  return Walk(problem, plan, op_end, rules, config, capacity, start).run();
}

}  // namespace swaplab::foresight
