#include "policy/foresight_layout.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "policy/foresight_room.hpp"
#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/stub_device.hpp"

namespace swaplab::foresight {
namespace {

enum class Place : std::uint8_t { absent, device, outgoing, host };

class Walk {
 public:
  Walk(const Problem& problem, const Plan& plan, std::span<const std::int64_t> op_end,
       const AllocatorConfig& config, Bytes capacity)
      : in_(problem),
        program_(problem.program),
        planned_(plan.steps),
        op_end_(op_end),
        capacity_(capacity.value),
        device_(static_cast<std::uint64_t>(capacity.value)),
        allocator_(device_, config),
        slots_(program_.slot_count()),
        room_(projected_room()),
        queue_time_(problem.machine.link(Direction::host_to_device).time(capacity / 50).value) {}

  LayoutResult run() {
    place_initial();
    for (op_ = 0; op_ < program_.op_count() && result_.failures == 0; ++op_) {
      for (const Access& access : program_.accesses_of(op_)) slots_[index(access.slot)].pinned_for = op_;
      const auto events = program_.gap(op_);
      std::size_t e = 0;
      for (; e < events.size() && events[e].is_free; ++e) release(index(events[e].slot));
      run_planned();
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
    std::uint32_t current = kNever;          // latest access
    std::uint32_t complete = 0;              // position after its last write
    std::uint32_t version_on_host = kNever;  // `complete` of the content that the host holds
  };

  // Bytes that the plan leaves free at each operator.
  std::vector<std::int64_t> projected_values() const {
    std::vector<std::int64_t> values(program_.op_count());
    std::vector<std::uint8_t> away(program_.slot_count(), 0), live(program_.slot_count(), 0);
    std::int64_t resident = 0;
    for (std::uint32_t s = 0; s < program_.slot_count(); ++s) {
      if (program_.initial[s] == 0) continue;
      live[s] = 1;
      away[s] = in_.placement.on_host[s];
      if (away[s] == 0) resident += in_.sizes[s];
    }
    const auto move = [&](std::uint32_t s, bool leave) {
      if (live[s] == 0 || (away[s] != 0) == leave) return;
      away[s] = leave ? 1 : 0;
      resident += leave ? -in_.sizes[s] : in_.sizes[s];
    };
    std::size_t step = 0;
    for (std::uint32_t op = 0; op < program_.op_count(); ++op) {
      for (; step < planned_.size() && planned_[step].position <= op; ++step) {
        if (planned_[step].action != PlanAction::copy_out) {
          move(index(planned_[step].slot), planned_[step].action == PlanAction::evict);
        }
      }
      for (const GapEvent& event : program_.gap(op)) {
        const std::uint32_t s = index(event.slot);
        if (!event.is_free) {
          live[s] = 1;
          away[s] = 0;
          resident += in_.sizes[s];
        } else {
          if (away[s] == 0) resident -= in_.sizes[s];
          live[s] = 0;
        }
      }
      for (const Access& access : program_.accesses_of(op)) move(index(access.slot), false);
      values[op] = capacity_ - resident - in_.gaps.surge[op];
    }
    return values;
  }
  Room projected_room() const { return Room(projected_values()); }

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
        if (changes_ == changes_at_failure_ || room_.minimum(op_, due) < in_.sizes[s]) return;
        if (!fits(s) || !could_take(s)) {
          changes_at_failure_ = changes_;
          return;
        }
        keep(PlanAction::prefetch, s);
        take(s, false);
        slots_[s].place = Place::device;
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
           device_.used() + AllocatorConfig::segment_size(static_cast<std::uint64_t>(occupied(s))) <=
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

  // Evicts the cheapest neighbours that make a place for `s`; false when no segment has one.
  bool clear_a_place(std::uint32_t wanted) {
    const std::int64_t bytes = occupied(wanted);
    const bool large = bytes > static_cast<std::int64_t>(kSmallSize);
    std::int64_t best_cost = -1;
    std::vector<std::uint32_t> best, window;
    for (const SegmentInfo& segment : allocator_.snapshot()) {
      if (segment.large != large || segment.stream != program_.home_stream[wanted]) continue;
      if (static_cast<std::int64_t>(segment.size) < bytes) continue;
      std::vector<std::int64_t> cost(segment.blocks.size());
      std::vector<std::uint32_t> owner(segment.blocks.size(), kNever);
      std::uint64_t address = segment.address;
      for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
        if (segment.blocks[i].active) {
          owner[i] = by_address_.at(address);
          cost[i] = eviction_cost(owner[i]);
        }
        address += segment.blocks[i].size;
      }
      std::int64_t size = 0, sum = 0;
      std::size_t first = 0;
      for (std::size_t last = 0; last < cost.size(); ++last) {
        if (cost[last] < 0) {
          size = sum = 0;
          first = last + 1;
          continue;
        }
        size += static_cast<std::int64_t>(segment.blocks[last].size);
        sum += cost[last];
        while (size - static_cast<std::int64_t>(segment.blocks[first].size) >= bytes) {
          size -= static_cast<std::int64_t>(segment.blocks[first].size);
          sum -= cost[first++];
        }
        if (size >= bytes && (best_cost < 0 || sum < best_cost)) {
          best_cost = sum;
          best.clear();
          for (std::size_t i = first; i <= last; ++i) {
            if (owner[i] != kNever) best.push_back(owner[i]);
          }
        }
      }
    }
    for (const std::uint32_t s : best) send_away(s);
    return !best.empty();
  }

  // No segment is large enough: empties the cheapest ones, so that the allocator can give them back to
  // the device for a new one.
  void clear_segments(std::uint32_t wanted) {
    struct Emptied {
      double cost_per_byte;
      std::int64_t size;
      std::vector<std::uint32_t> owners;
    };
    std::vector<Emptied> choices;
    std::int64_t missing = static_cast<std::int64_t>(device_.used()) - capacity_ +
                           static_cast<std::int64_t>(
                               AllocatorConfig::segment_size(static_cast<std::uint64_t>(occupied(wanted))));
    for (const SegmentInfo& segment : allocator_.snapshot()) {
      Emptied choice{0, static_cast<std::int64_t>(segment.size), {}};
      std::uint64_t address = segment.address;
      std::int64_t cost = 0;
      for (const SegmentInfo::BlockInfo& block : segment.blocks) {
        if (block.active && cost >= 0) {
          choice.owners.push_back(by_address_.at(address));
          const std::int64_t one = eviction_cost(choice.owners.back());
          cost = one < 0 ? -1 : cost + one;
        }
        address += block.size;
      }
      if (cost < 0) continue;
      choice.cost_per_byte = static_cast<double>(cost) / static_cast<double>(choice.size);
      if (choice.owners.empty())
        missing -= choice.size;  // empty already
      else
        choices.push_back(std::move(choice));
    }
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Emptied& a, const Emptied& b) { return a.cost_per_byte < b.cost_per_byte; });
    for (const Emptied& choice : choices) {
      if (missing <= 0) break;
      missing -= choice.size;
      for (const std::uint32_t s : choice.owners) send_away(s);
    }
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
  std::int64_t capacity_;
  StubDevice device_;
  CachingAllocator<StubDevice> allocator_;
  std::vector<SlotState> slots_;
  Room room_;
  std::int64_t queue_time_;                            // that a copy back may have to wait for its turn
  std::map<std::uint64_t, std::uint32_t> by_address_;  // allocated block -> slot
  std::vector<std::uint32_t> outgoing_;                // first in, first out; stale entries allowed
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
                              const AllocatorConfig& config, Bytes capacity) {
  return Walk(problem, plan, op_end, config, capacity).run();
}

}  // namespace swaplab::foresight
