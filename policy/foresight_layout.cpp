#include "policy/foresight_layout.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "policy/foresight_places.hpp"
#include "policy/foresight_projection.hpp"
#include "policy/foresight_room.hpp"
#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/stub_device.hpp"

namespace swaplab::foresight {
namespace {

enum class Place : std::uint8_t { absent, device, outgoing, host };

class Walk {
 public:
  Walk(const Problem& problem, const Plan& plan, std::span<const std::int64_t> op_end,
       const LayoutRules& rules, const AllocatorConfig& config, Bytes capacity)
      : in_(problem),
        program_(problem.program),
        planned_(plan.steps),
        op_end_(op_end),
        rules_(rules),
        capacity_(capacity.value),
        device_(static_cast<std::uint64_t>(capacity.value)),
        allocator_(device_, config),
        slots_(program_.slot_count()),
        room_(projected_room(problem, rules.sweep ? std::span<const PlanStep>() : std::span(plan.steps),
                             capacity)),
        reserve_(rules.sweep ? capacity.value / 1000 * rules.reserve : 0),
        queue_time_(problem.machine.link(Direction::host_to_device).time(capacity / 50).value),
        near_time_(problem.machine.link(Direction::host_to_device).time(capacity / 128).value * rules.near) {
    if (!rules_.sweep) return;
    departures_.resize(program_.slot_count());
    for (const PlanStep& step : planned_) {
      if (step.action == PlanAction::evict) departures_[index(step.slot)].push_back(step.position);
    }
  }

  LayoutResult run() {
    place_initial();
    for (op_ = 0; op_ < program_.op_count() && result_.failures == 0; ++op_) {
      for (const Access& access : program_.accesses_of(op_)) slots_[index(access.slot)].pinned_for = op_;
      const auto events = program_.gap(op_);
      std::size_t e = 0;
      for (; e < events.size() && events[e].is_free; ++e) release(index(events[e].slot));
      if (!rules_.sweep) run_planned();
      bring_back();
      for (; e < events.size() && result_.failures == 0; ++e) {
        const std::uint32_t s = index(events[e].slot);
        if (events[e].is_free) {
          release(s);
        } else if (take(s, true)) {
          slots_[s].place = Place::device;
        }
      }
      for (std::uint32_t a = program_.access_begin[op_]; a < program_.access_begin[op_ + 1]; ++a) access(a);
      device_.log().clear();
    }
    finish();
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
          if (slot.place == Place::absent) break;
          keep(PlanAction::prefetch, s);
          if (slot.place == Place::outgoing) {
            cancel(s);
          } else if (slot.place == Place::host && take(s, false)) {
            slot.place = Place::device;
          } else if (slot.place == Place::host) {
            pending_.emplace(next_use(s), s);
            room_.add(op_, std::min(next_use(s), program_.op_count()), in_.sizes[s]);
          }
          break;
      }
    }
  }

  void copy_out(std::uint32_t s) {
    SlotState& slot = slots_[s];
    if (slot.place != Place::device || slot.version_on_host == slot.complete) return;
    keep(PlanAction::copy_out, s);
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

  void evict(std::uint32_t s) {
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
    by_address_.erase(allocator_.block_address(slots_[s].block));
    allocator_.free(slots_[s].block);
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
          by_address_.emplace(got.address, s);
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
      return Tenant{s, rules_.sweep ? sweep_cost(s) : eviction_cost(s)};
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

  // Of a sweep. Nearly the same for everything that is not needed soon, so that one sweep goes on where the
  // last one ended: which of them leaves matters less than that large places stay whole. -1: not possible.
  std::int64_t sweep_cost(std::uint32_t s) const {
    const SlotState& slot = slots_[s];
    if (slot.place != Place::device || slot.pinned_for == op_) return -1;
    const std::uint32_t due = next_use(s);
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    const std::int64_t moves = slot.version_on_host == slot.complete ? 1 : 2;
    const std::int64_t shares = std::max<std::int64_t>(
        moves * in_.sizes[s] / std::max<std::int64_t>(1, capacity_ >> 24), 1);  // of 2^-24 of the budget
    if (due == kNever) return 2 + (shares >> 10);  // a copy for nothing, but none back
    const std::int64_t distance = std::max<std::int64_t>(op_end_[due] - now(), 1);
    if (rules_.states_first) {
      if (program_.cls[s] == StorageClass::optimizer_state && distance > near_time_) return 0;
      if (program_.cls[s] == StorageClass::parameter) return 12 + nearness(shares, distance, near_time_);
    }
    std::int64_t cost = 2 + (slot.waits ? kMost : 0);
    if (!planned_to_leave(s, due)) cost += shares * rules_.stray >> 16;
    return cost + std::min(nearness(shares, distance, near_time_), kMost);
  }
  // shares * (reach / distance)^4, in steps that neither overflow nor lose what counts.
  static std::int64_t nearness(std::int64_t shares, std::int64_t distance, std::int64_t reach) {
    const std::int64_t ratio = std::min<std::int64_t>((reach << 8) / distance, 64 << 8);
    return ((shares * ratio >> 8) * ratio >> 8) * ratio / 256 * ratio / 256;
  }
  bool planned_to_leave(std::uint32_t s, std::uint32_t due) const {
    const auto& list = departures_[s];
    const auto it = std::lower_bound(list.begin(), list.end(), slots_[s].used);
    return it != list.end() && *it <= due;
  }
  std::int64_t now() const { return op_ == 0 ? 0 : op_end_[op_ - 1]; }

  void send_away(std::uint32_t s) {
    SlotState& slot = slots_[s];
    if (slot.version_on_host != slot.complete) {
      if (slot.complete < op_) early_.push_back({slot.complete, PlanAction::copy_out, Slot{s}});
    }
    keep(PlanAction::evict, s);
    evict(s);
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
  StubDevice device_;
  CachingAllocator<StubDevice> allocator_;
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
  std::vector<PlanStep> early_;                                         // copies out of the repairs' victims
  std::uint32_t op_ = 0;
  LayoutResult result_;
};

}  // namespace

LayoutResult fit_to_allocator(const Problem& problem, const Plan& plan, std::span<const std::int64_t> op_end,
                              const LayoutRules& rules, const AllocatorConfig& config, Bytes capacity) {
  return Walk(problem, plan, op_end, rules, config, capacity).run();
}

}  // namespace swaplab::foresight
