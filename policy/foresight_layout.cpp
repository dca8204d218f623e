#include "policy/foresight_layout.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "policy/foresight_places.hpp"
#include "policy/foresight_projection.hpp"
#include "policy/foresight_room.hpp"
#include "sim/allocator/caching_allocator.hpp"
#include "sim/memory_fork.hpp"

namespace swaplab::foresight {
namespace {

enum class Place : std::uint8_t { absent, device, outgoing, host };

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
        memory_(start == nullptr ? std::make_unique<MemoryFork>(
                                       StubDevice(static_cast<std::uint64_t>(capacity.value)), config)
                                 : std::make_unique<MemoryFork>(*start->state.memory)),
        device_(memory_->device),
        allocator_(memory_->allocator),
        clock_(start != nullptr && start->state.clock ? *start->state.clock
                                                      : LayoutClock(problem.machine.interference)),
        submit_((problem.machine.host.copy_submit + problem.machine.host.event_record +
                 problem.machine.host.event_wait)
                    .value),
        slots_(program_.slot_count()),
        room_(projected_room(problem, rules.sweep ? std::span<const PlanStep>() : std::span(plan.steps),
                             capacity)),
        reserve_(rules.sweep ? capacity.value / 1000 * rules.reserve : 0),
        queue_time_(problem.machine.link(Direction::host_to_device).time(capacity / 50).value),
        near_time_(near_time(rules, capacity, problem.machine)) {
    clock_.streams.resize(program_.stream_count, 0);
    clock_.slots.resize(program_.slot_count());
    if (!rules_.sweep) return;
    departures_.resize(program_.slot_count());
    for (const PlanStep& step : planned_) {
      if (step.action == PlanAction::evict) departures_[index(step.slot)].push_back(step.position);
    }
  }

  LayoutResult run() {
    start_ == nullptr ? place_initial() : take_over();
    const std::int64_t begin = latest();
    const std::uint32_t end = start_ == nullptr ? program_.op_count() : start_->end_op;
    for (op_ = 0; op_ < end && result_.failures == 0; ++op_) {
      for (const Access& access : program_.accesses_of(op_)) slots_[index(access.slot)].pinned_for = op_;
      const auto events = program_.gap(op_);
      std::size_t e = 0;
      for (; e < events.size() && events[e].is_free; ++e) release(index(events[e].slot));
      if (start_ != nullptr && start_->as_is) {
        run_as_is();
      } else {
        if (!rules_.sweep) run_planned();
        bring_back();
      }
      for (; e < events.size() && result_.failures == 0; ++e) {
        const std::uint32_t s = index(events[e].slot);
        if (events[e].is_free) {
          release(s);
        } else if (take(s, true)) {
          slots_[s].place = Place::device;
          std::int64_t& stream = clock_.streams[program_.home_stream[s]];
          stream = std::max(stream, clock_.slots[s].copied_out);
        }
      }
      for (std::uint32_t a = program_.access_begin[op_]; a < program_.access_begin[op_ + 1]; ++a) access(a);
      issue();
      device_.log().clear();
    }
    result_.time = latest() - begin;
    finish();
    if (start_ != nullptr) hand_over();
    return std::move(result_);
  }

 private:
  struct SlotState {
    Place place = Place::absent;
    BlockId block = kNoBlock;
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
        slots_[s].place = Place::host;
        slots_[s].version_on_host = 0;
      } else {
        slots_[s].place = Place::device;
      }
    }
  }

  // Initial slots where a running allocator has them; what is on the host comes back by its next use.
  void take_over() {
    for (std::uint32_t s = 0; s < program_.slot_count(); ++s) {
      if (program_.initial[s] == 0) continue;
      SlotState& slot = slots_[s];
      slot.block = start_->state.block[s];
      if (slot.block != kNoBlock) by_address_.emplace(allocator_.block_address(slot.block), s);
      const bool away = in_.placement.on_host[s] != 0;
      slot.place = away ? Place::host : Place::device;
      if (away || in_.placement.is_clean(s)) slot.version_on_host = 0;
    }
    for (const std::uint32_t s : start_->state.outgoing) {
      slots_[s].place = Place::outgoing;
      outgoing_.push_back(s);
      outgoing_bytes_ += program_.bytes[s].value;
    }
    if (!rules_.sweep || start_->as_is) return;
    for (std::uint32_t s = 0; s < program_.slot_count(); ++s) {
      const bool away = program_.initial[s] != 0 && slots_[s].place != Place::device;
      if (away && in_.gaps.first_use[s] != kNever) pending_.emplace(in_.gaps.first_use[s], s);
    }
  }

  void hand_over() {
    LiveState& end = result_.end;
    end.block.assign(program_.slot_count(), kNoBlock);
    end.placement.on_host.assign(program_.slot_count(), 0);
    end.placement.clean.assign(program_.slot_count(), 0);
    for (std::uint32_t s = 0; s < program_.slot_count(); ++s) {
      const SlotState& slot = slots_[s];
      if (slot.place == Place::absent) continue;
      end.placement.on_host[s] = slot.place == Place::device ? 0 : 1;
      end.placement.clean[s] = slot.version_on_host == slot.complete ? 1 : 0;
      if (slot.place != Place::host) end.block[s] = slot.block;
    }
    for (; outgoing_head_ < outgoing_.size(); ++outgoing_head_) {
      const std::uint32_t s = outgoing_[outgoing_head_];
      if (slots_[s].place == Place::outgoing) end.outgoing.push_back(s);
    }
    end.memory = std::move(memory_);
    end.clock = std::move(clock_);
  }

  void keep(PlanAction action, std::uint32_t s) { result_.plan.steps.push_back({op_, action, Slot{s}}); }

  void run_planned() {
    for (; next_ < planned_.size() && planned_[next_].position <= op_; ++next_) {
      const std::uint32_t s = index(planned_[next_].slot);
      SlotState& slot = slots_[s];
      switch (planned_[next_].action) {
        case PlanAction::copy_out:
          copy_out(s);
          break;
        case PlanAction::evict:
          if (slot.place != Place::device || slot.pinned_for == op_) break;
          keep(PlanAction::evict, s);
          evict(s);
          break;
        case PlanAction::prefetch:
          if (slot.place == Place::outgoing) {
            keep(PlanAction::prefetch, s);
            cancel(s);
          } else if (slot.place == Place::host && take(s, false)) {
            keep(PlanAction::prefetch, s);
            slot.place = Place::device;
            copy_to_device(s);
          } else if (slot.place == Place::host) {
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
      SlotState& slot = slots_[s];
      switch (planned_[next_].action) {
        case PlanAction::copy_out:
          copy_out(s);
          break;
        case PlanAction::evict:
          if (slot.place == Place::device && slot.pinned_for != op_) evict(s);
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
    if (slots_[s].place == Place::outgoing) cancel(s);
    if (slots_[s].place != Place::host) return true;
    if (!take(s, false)) return false;
    slots_[s].place = Place::device;
    copy_to_device(s);
    return true;
  }

  void copy_out(std::uint32_t s) {
    SlotState& slot = slots_[s];
    if (slot.place != Place::device || slot.version_on_host == slot.complete) return;
    keep(PlanAction::copy_out, s);
    copy_to_host(s, clock_.host);
    slot.version_on_host = slot.complete;
  }

  // Storages that still have to return, most urgent first, as soon as bytes are free that nobody
  // planned for. What is not back by its use is fetched then.
  void bring_back() {
    while (!pending_.empty()) {
      const auto [due, s] = *pending_.begin();
      if (slots_[s].place == Place::host && due > op_) {
        if (changes_ == changes_at_failure_ || room_.minimum(op_, due) < in_.sizes[s] + reserve_) return;
        if (!fits(s) || !could_take(s)) {
          changes_at_failure_ = changes_;
          return;
        }
        keep(PlanAction::prefetch, s);
        take(s, false);
        slots_[s].place = Place::device;
        copy_to_device(s);
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
    if (slot.place == Place::outgoing) {
      cancel(s);
    } else if (slot.place == Place::host && result_.failures == 0 && take(s, true)) {
      slot.place = Place::device;
      copy_to_device(s);
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

  // `earliest`: when the copy could be submitted.
  void copy_to_host(std::uint32_t s, std::int64_t earliest) {
    LayoutClock::SlotTimes& t = clock_.slots[s];
    clock_.host += submit_;
    t.copied_out = clock_.out_lane.copy(
        std::max({t.written, t.copied_in, earliest}),
        in_.machine.link(Direction::device_to_host).time(program_.bytes[s]).value, clock_.in_lane);
  }
  void copy_to_device(std::uint32_t s) {
    LayoutClock::SlotTimes& t = clock_.slots[s];
    clock_.host += submit_;
    t.copied_in = clock_.in_lane.copy(
        std::max({t.used, t.copied_out, clock_.host}),
        in_.machine.link(Direction::host_to_device).time(program_.bytes[s]).value, clock_.out_lane);
  }
  std::int64_t latest() const { return *std::max_element(clock_.streams.begin(), clock_.streams.end()); }

  // The operator itself, when all that it accesses is there.
  void issue() {
    std::int64_t& stream = clock_.streams[program_.stream[op_]];
    clock_.host += program_.host_time[op_].value;
    if ((program_.op_flags[op_] & kKernel) != 0) {
      std::int64_t start = std::max(stream, clock_.host + in_.machine.host.launch_latency.value);
      for (const Access& access : program_.accesses_of(op_)) {
        const LayoutClock::SlotTimes& t = clock_.slots[index(access.slot)];
        start = std::max({start, t.copied_in, t.used});
        if ((access.flags & kWrite) != 0) start = std::max(start, t.copied_out);
      }
      stream = start + program_.device_time[op_].value;
      for (const Access& access : program_.accesses_of(op_)) {
        LayoutClock::SlotTimes& t = clock_.slots[index(access.slot)];
        t.used = stream;
        if ((access.flags & kWrite) != 0) t.written = stream;
      }
    }
    if ((program_.op_flags[op_] & kSync) != 0)
      clock_.host = std::max(clock_.host, stream) + in_.machine.host.sync_resume.value;
  }

  // `early`: written back as soon as the content was complete.
  void evict(std::uint32_t s, bool early = false) {
    if (slots_[s].version_on_host != slots_[s].complete) copy_to_host(s, early ? 0 : clock_.host);
    slots_[s].version_on_host = slots_[s].complete;
    slots_[s].place = Place::outgoing;
    outgoing_.push_back(s);
    outgoing_bytes_ += program_.bytes[s].value;
  }
  void cancel(std::uint32_t s) {
    slots_[s].place = Place::device;
    outgoing_bytes_ -= program_.bytes[s].value;
  }
  void release(std::uint32_t s) {
    SlotState& slot = slots_[s];
    if (slot.place == Place::outgoing) outgoing_bytes_ -= program_.bytes[s].value;
    if (slot.place == Place::device || slot.place == Place::outgoing) give(s);
    slot.place = Place::absent;
  }
  void give(std::uint32_t s) {
    if (slots_[s].block != kNoBlock) by_address_.erase(allocator_.block_address(slots_[s].block));
    LayoutClock::SlotTimes& t = clock_.slots[s];
    allocator_.free(slots_[s].block, {static_cast<std::uint64_t>(std::max(t.used, t.copied_in)),
                                      static_cast<std::uint64_t>(t.copied_out)});
    slots_[s].block = kNoBlock;
    ++changes_;
  }
  bool release_oldest_outgoing() {
    while (outgoing_head_ < outgoing_.size()) {
      const std::uint32_t s = outgoing_[outgoing_head_++];
      if (slots_[s].place != Place::outgoing) continue;
      outgoing_bytes_ -= program_.bytes[s].value;
      slots_[s].place = Place::host;
      give(s);
      return true;
    }
    return false;
  }

  // ---- memory, in the executor's order of attempts

  std::int64_t allocated() const { return allocator_.stats().all.allocated_bytes.current; }
  std::int64_t occupied(std::uint32_t s) const {
    return static_cast<std::int64_t>(
        allocator_.config().round_size(static_cast<std::uint64_t>(program_.bytes[s].value)));
  }
  bool fits(std::uint32_t s) const { return allocated() + occupied(s) <= capacity_; }
  bool could_take(std::uint32_t s) const {
    return allocator_.could_fit_cached(program_.bytes[s], program_.home_stream[s]) ||
           device_.used() + allocator_.config().growth(static_cast<std::uint64_t>(occupied(s))) <=
               device_.capacity();
  }

  bool take(std::uint32_t s, bool forced) {
    bool hopeless = false;
    for (;;) {
      if (fits(s) && (could_take(s) || (forced && hopeless && outgoing_bytes_ == 0))) {
        const auto retries = allocator_.stats().num_alloc_retries;
        const AllocResult got = allocator_.alloc(program_.bytes[s], program_.home_stream[s]);
        if (allocator_.stats().num_alloc_retries != retries) ++result_.recoveries;
        if (got.status == AllocStatus::ok) {
          slots_[s].block = got.block;
          if (got.block != kNoBlock) by_address_.emplace(got.address, s);
          LayoutClock::SlotTimes& t = clock_.slots[s];
          t.used = std::max(t.used, static_cast<std::int64_t>(got.tag.compute));
          t.copied_out = std::max(t.copied_out, static_cast<std::int64_t>(got.tag.d2h));
          return true;
        }
        ++result_.failures;
        return false;
      }
      if (!forced && allocated() - outgoing_bytes_ + program_.bytes[s].value > capacity_) return false;
      if (release_oldest_outgoing()) continue;
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
      const std::uint32_t s = by_address_.at(address);
      return Tenant{s, rules_.sweep ? cost_in_sweep(s) : eviction_cost(s)};
    };
  }

  // Evicts the cheapest neighbours that make a place for `s`; false when no segment has one.
  bool clear_a_place(std::uint32_t wanted) {
    const std::int64_t bytes = occupied(wanted);
    const auto leaving = cheapest_place(
        allocator_.snapshot(),
        {bytes, bytes > static_cast<std::int64_t>(kSmallSize), program_.home_stream[wanted]}, tenants());
    for (const std::uint32_t s : leaving) send_away(s);
    return !leaving.empty();
  }

  // No segment is large enough: empties the cheapest ones.
  void clear_segments(std::uint32_t wanted) {
    const std::int64_t missing =
        static_cast<std::int64_t>(device_.used()) - capacity_ +
        static_cast<std::int64_t>(allocator_.config().growth(static_cast<std::uint64_t>(occupied(wanted))));
    for (const std::uint32_t s : cheapest_segments(allocator_.snapshot(), missing, tenants())) send_away(s);
  }

  // Nanoseconds of copies, and of waiting where the next use is too near for them, given that copies
  // back queue behind others. -1: not possible.
  std::int64_t eviction_cost(std::uint32_t s) const {
    const SlotState& slot = slots_[s];
    if (slot.place != Place::device || slot.pinned_for == op_) return -1;
    const std::uint32_t due = next_use(s);
    const auto copy_time = [&](Direction direction) {
      return in_.machine.link(direction).time(program_.bytes[s]).value;
    };
    std::int64_t copies = slot.version_on_host == slot.complete ? 0 : copy_time(Direction::device_to_host);
    if (due == kNever) return 2 + copies;
    copies += copy_time(Direction::host_to_device);
    const std::int64_t distance = op_end_[due] - now();
    return 2 + copies + 2 * std::max<std::int64_t>(0, copies + queue_time_ - distance);
  }

  // -1: not possible.
  std::int64_t cost_in_sweep(std::uint32_t s) const {
    const SlotState& slot = slots_[s];
    if (slot.place != Place::device || slot.pinned_for == op_) return -1;
    const std::uint32_t due = next_use(s);
    const bool used = due != kNever;
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    return (slot.waits ? kMost : 0) +
           sweep_cost({Bytes{in_.sizes[s]}, program_.cls[s], slot.version_on_host == slot.complete,
                       used && planned_to_leave(s, due),
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
    SlotState& slot = slots_[s];
    const bool early = slot.version_on_host != slot.complete && slot.complete < op_;
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
  std::unique_ptr<MemoryFork> memory_;
  StubDevice& device_;
  CachingAllocator<StubDevice>& allocator_;
  LayoutClock clock_;
  const std::int64_t submit_;  // host time of a copy
  std::vector<SlotState> slots_;
  Room room_;
  std::int64_t reserve_;     // bytes that copies back leave free
  std::int64_t queue_time_;  // that a copy back may have to wait for its turn
  std::int64_t near_time_;   // ns before its next use that a storage counts as near
  std::vector<std::vector<std::uint32_t>> departures_;  // per slot: where the plan lets it leave
  std::map<std::uint64_t, std::uint32_t> by_address_;   // allocated block -> slot
  std::vector<std::uint32_t> outgoing_;                 // first in, first out; stale entries allowed
  std::size_t outgoing_head_ = 0, next_ = 0;
  std::int64_t outgoing_bytes_ = 0;
  std::uint64_t changes_ = 0, changes_at_failure_ = ~std::uint64_t{0};  // of what a copy back could use
  std::set<std::pair<std::uint32_t, std::uint32_t>> pending_;           // (next use, slot)
  std::vector<std::uint32_t> late_;                                     // as_is: copies back without room
  std::vector<PlanStep> early_;                                         // copies out of the repairs' victims
  std::uint32_t op_ = 0;
  LayoutResult result_;
};

// shares * (reach / distance)^4, in steps that neither overflow nor lose what counts.
std::int64_t nearness(std::int64_t shares, std::int64_t distance, std::int64_t reach) {
  const std::int64_t ratio = std::min<std::int64_t>((reach << 8) / distance, 64 << 8);
  return ((shares * ratio >> 8) * ratio >> 8) * ratio / 256 * ratio / 256;
}

}  // namespace

std::int64_t near_time(const LayoutRules& rules, Bytes capacity, const Machine& machine) {
  return machine.link(Direction::host_to_device).time(capacity / 128).value * rules.near;
}

std::int64_t sweep_cost(const SweepItem& item, const LayoutRules& rules, Bytes capacity, std::int64_t near) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::int64_t shares = std::max<std::int64_t>(
      (item.clean ? 1 : 2) * item.bytes.value / std::max<std::int64_t>(1, capacity.value >> 24),
      1);                                            // of 2^-24 of the budget
  if (item.distance < 0) return 2 + (shares >> 10);  // a copy for nothing, but none back
  if (rules.states_first) {
    if (item.cls == StorageClass::optimizer_state && item.distance > near) return 0;
    if (item.cls == StorageClass::parameter) return 12 + nearness(shares, item.distance, near);
  }
  const std::int64_t stray = item.planned ? 0 : shares * rules.stray >> 16;
  return 2 + stray + std::min(nearness(shares, item.distance, near), kMost);
}

LayoutResult fit_to_allocator(const Problem& problem, const Plan& plan, std::span<const std::int64_t> op_end,
                              const LayoutRules& rules, const AllocatorConfig& config, Bytes capacity,
                              const LiveStart* start) {
  return Walk(problem, plan, op_end, rules, config, capacity, start).run();
}

}  // namespace swaplab::foresight
