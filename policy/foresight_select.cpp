#include "policy/foresight_select.hpp"

#include <algorithm>
#include <queue>
#include <tuple>

#include "policy/foresight_room.hpp"

namespace swaplab::foresight {
namespace {

constexpr std::uint32_t kNoAccess = kNever;

// A storage that leaves after `from` and is needed again by `to` (kNever: not at all).
struct Swap {
  std::uint32_t slot, access;  // access: kNoAccess for storages that start on the host
  std::uint32_t leave, to;     // absent from operator `leave` on
  std::uint32_t back;          // absent until before this operator
  std::uint32_t complete;      // first position at which its version is complete
  bool starts;                 // initial storage that is evicted before its first use
};

struct Candidate {
  double score;
  std::uint32_t access, slot;
  bool operator<(const Candidate& other) const {
    return score != other.score ? score < other.score : access < other.access;
  }
};

class Selector {
 public:
  Selector(const Problem& problem, const Rules& rules, std::span<const Wish> wishes, std::uint32_t end_op)
      : in_(problem),
        program_(problem.program),
        rules_(rules),
        wishes_(wishes),
        end_(end_op),
        absent_(program_.slot_count(), 0),
        live_(program_.slot_count(), 0),
        host_valid_(program_.slot_count(), 0),
        complete_(program_.slot_count(), 0),
        current_(program_.slot_count(), kNoAccess),
        latest_swap_(program_.slot_count(), kNever) {}

  Selection run() {
    choose();
    settle();
    emit();
    return std::move(result_);
  }

 private:
  std::int64_t limit(std::uint32_t op) const { return in_.budget - rules_.slack - in_.gaps.surge[op]; }
  Wish wish(std::uint32_t access) const {
    return wishes_.empty() ? Wish::free : wishes_[in_.gaps.key[access]];
  }

  // ---- Which gaps: one pass in program order; where the memory runs short, the best-ranked go.

  void choose() {
    std::int64_t resident = 0;
    for (std::uint32_t s = 0; s < program_.slot_count(); ++s) {
      if (program_.initial[s] == 0) continue;
      live_[s] = 1;
      if (in_.placement.on_host[s] != 0) {
        absent_[s] = host_valid_[s] = 1;
        swaps_.push_back({s, kNoAccess, 0, in_.gaps.first_use[s], in_.gaps.first_use[s], 0, false});
        latest_swap_[s] = static_cast<std::uint32_t>(swaps_.size()) - 1;
      } else {
        resident += in_.sizes[s];
        host_valid_[s] = in_.placement.is_clean(s) ? 1 : 0;
        propose(0, in_.gaps.first_use[s], {0, kNoAccess, s}, false);
      }
    }
    for (std::uint32_t op = 0; op < end_; ++op) {
      for (const GapEvent& event : program_.gap(op)) {
        const std::uint32_t s = index(event.slot);
        if (event.is_free) {
          if (absent_[s] == 0)
            resident -= in_.sizes[s];
          else
            close_swap(s, op);
          live_[s] = 0;
        } else {
          live_[s] = 1;
          resident += in_.sizes[s];
        }
      }
      const auto accesses = program_.accesses_of(op);
      for (const Access& access : accesses) {
        const std::uint32_t s = index(access.slot);
        if (absent_[s] == 0) continue;
        absent_[s] = 0;
        resident += in_.sizes[s];
      }
      while (resident > limit(op)) {
        if (!evict_best(op, resident)) {
          ++result_.hopeless;
          break;
        }
      }
      for (std::uint32_t a = program_.access_begin[op]; a < program_.access_begin[op + 1]; ++a) {
        offer(op, a, resident);
      }
    }
  }

  // The storage's gap after access `a` begins: it becomes a candidate, or leaves at once.
  void offer(std::uint32_t op, std::uint32_t a, std::int64_t& resident) {
    const Access& access = program_.accesses[a];
    const std::uint32_t s = index(access.slot);
    if ((access.flags & kWrite) != 0) {
      host_valid_[s] = 0;
      complete_[s] = op + 1;
    }
    current_[s] = a;
    const std::uint32_t next = in_.gaps.next[a];
    if (next == op + 1) return;
    const Wish wanted = wish(a);
    if (wanted == Wish::swap && next < kNever) {
      leave(s, a, op + 1, next, resident);
    } else {
      propose(op, next, {0, a, s}, wanted == Wish::keep);
    }
  }
  void propose(std::uint32_t op, std::uint32_t next, Candidate candidate, bool last_resort) {
    candidate.score = score(candidate.slot, op, next);
    const bool small = in_.sizes[candidate.slot] < rules_.min_bytes;
    (last_resort || small ? reserve_ : heap_).push(candidate);
  }

  double score(std::uint32_t s, std::uint32_t op, std::uint32_t next) const {
    const std::int64_t end = in_.clock[program_.op_count()];
    const std::int64_t when = next == kNever ? 2 * end : in_.clock[next];
    std::int64_t score = rules_.by_length ? when - in_.clock[op] : when;
    if (rules_.cost_weight != 0) {
      std::int64_t copies = host_valid_[s] != 0 ? 0 : copy_time(s, Direction::device_to_host);
      if (next != kNever) copies += copy_time(s, Direction::host_to_device);
      score -= rules_.cost_weight * copies / 4;
    }
    if (rules_.size_power == 0) return static_cast<double>(score);
    double factor = 1;
    for (std::int64_t i = 0; i < rules_.size_power; ++i) factor *= in_.root_size[s];
    return static_cast<double>(score) * factor;
  }
  std::int64_t copy_time(std::uint32_t s, Direction direction) const {
    return in_.machine.link(direction).time(program_.bytes[s]).value;
  }

  std::uint32_t next_use(const Candidate& candidate) const {
    return candidate.access == kNoAccess ? in_.gaps.first_use[candidate.slot]
                                         : in_.gaps.next[candidate.access];
  }
  bool valid(const Candidate& candidate, std::uint32_t op) const {
    const std::uint32_t s = candidate.slot;
    return live_[s] != 0 && absent_[s] == 0 && current_[s] == candidate.access && next_use(candidate) > op;
  }

  bool evict_best(std::uint32_t op, std::int64_t& resident) {
    for (auto* heap : {&heap_, &reserve_}) {
      while (!heap->empty()) {
        const Candidate best = heap->top();
        heap->pop();
        if (!valid(best, op)) continue;
        const bool starts = best.access == kNoAccess;
        leave(best.slot, best.access, starts ? 0 : operator_after(best.access), next_use(best), resident);
        return true;
      }
    }
    return false;
  }

  std::uint32_t operator_after(std::uint32_t access) const {
    const auto& begins = program_.access_begin;
    return static_cast<std::uint32_t>(std::upper_bound(begins.begin(), begins.end(), access) -
                                      begins.begin());
  }

  void leave(std::uint32_t s, std::uint32_t access, std::uint32_t at, std::uint32_t next,
             std::int64_t& resident) {
    swaps_.push_back({s, access, at, next, next, complete_[s], access == kNoAccess});
    latest_swap_[s] = static_cast<std::uint32_t>(swaps_.size()) - 1;
    host_valid_[s] = 1;
    absent_[s] = 1;
    resident -= in_.sizes[s];
  }
  // Freed while away: its absence ends without a copy back.
  void close_swap(std::uint32_t s, std::uint32_t op) { swaps_[latest_swap_[s]].back = op; }

  // ---- When: give needless victims up, then bring each back as early as the room permits.

  std::uint32_t clipped(std::uint32_t op) const { return std::min(op, end_); }

  void settle() {
    std::vector<std::int64_t> room(end_);
    for (std::uint32_t op = 0; op < end_; ++op) room[op] = limit(op) - in_.gaps.live[op];
    Room free(room);
    for (const Swap& swap : swaps_) free.add(clipped(swap.leave), clipped(swap.back), in_.sizes[swap.slot]);
    if (rules_.trim) trim(free);

    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < swaps_.size(); ++i) {
      if (swaps_[i].back != swaps_[i].leave && swaps_[i].to < kNever) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return swaps_[a].to != swaps_[b].to ? swaps_[a].to < swaps_[b].to : swaps_[a].leave < swaps_[b].leave;
    });
    std::uint32_t previous = 0;
    for (const std::uint32_t i : order) {
      Swap& swap = swaps_[i];
      if (swap.to >= end_) continue;
      const std::int64_t bytes = in_.sizes[swap.slot];
      const std::uint32_t earliest =
          rules_.in_order ? std::max(swap.leave, std::min(previous, swap.to)) : swap.leave;
      const std::uint32_t back = free.after_last_below(earliest, swap.to, bytes);
      free.add(back, swap.to, -bytes);
      swap.back = back;
      previous = std::max(previous, back);
    }
  }

  void trim(Room& free) {
    std::vector<std::uint32_t> order(swaps_.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return in_.sizes[swaps_[a].slot] > in_.sizes[swaps_[b].slot];
    });
    for (const std::uint32_t i : order) {
      Swap& swap = swaps_[i];
      const std::int64_t bytes = in_.sizes[swap.slot];
      if (swap.access == kNoAccess || free.minimum(clipped(swap.leave), clipped(swap.back)) < bytes) continue;
      if (wish(swap.access) == Wish::swap) continue;
      free.add(clipped(swap.leave), clipped(swap.back), -bytes);
      swap.back = swap.leave;
    }
  }

  // ---- The steps. Copies out in the order in which storages leave, copies back by deadline.

  void emit() {
    struct Ordered {
      PlanStep step;
      std::uint32_t rank, due;
    };
    std::vector<Ordered> ordered;
    // Version (its first complete position) that the host holds, per slot.
    std::vector<std::uint32_t> on_host(program_.slot_count(), kNever);
    for (const Swap& swap : swaps_) {
      if (swap.access == kNoAccess && (!swap.starts || in_.placement.is_clean(swap.slot)))
        on_host[swap.slot] = 0;
      if (swap.back == swap.leave) continue;
      const Slot slot{swap.slot};
      if (swap.starts || swap.access != kNoAccess) {
        if (on_host[swap.slot] != swap.complete && rules_.early_copy_out && swap.complete < swap.leave) {
          ordered.push_back({{swap.complete, PlanAction::copy_out, slot}, 0, swap.leave});
        }
        on_host[swap.slot] = swap.complete;
        ordered.push_back({{swap.leave, PlanAction::evict, slot}, 0, swap.leave});
      }
      if (swap.to < end_) ordered.push_back({{swap.back, PlanAction::prefetch, slot}, 1, swap.to});
      if (swap.access != kNoAccess) result_.swapped_keys.push_back(in_.gaps.key[swap.access]);
    }
    std::stable_sort(ordered.begin(), ordered.end(), [](const Ordered& a, const Ordered& b) {
      return std::tie(a.step.position, a.rank, a.due) < std::tie(b.step.position, b.rank, b.due);
    });
    result_.plan.steps.reserve(ordered.size());
    for (const Ordered& entry : ordered) result_.plan.steps.push_back(entry.step);
    auto& keys = result_.swapped_keys;
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  }

  const Problem& in_;
  const Program& program_;
  const Rules& rules_;
  std::span<const Wish> wishes_;
  std::uint32_t end_;
  std::vector<std::uint8_t> absent_, live_, host_valid_;
  std::vector<std::uint32_t> complete_;            // per slot: position after its last write
  std::vector<std::uint32_t> current_;             // per slot: latest access
  std::vector<std::uint32_t> latest_swap_;         // per slot
  std::priority_queue<Candidate> heap_, reserve_;  // reserve: only when nothing else helps
  std::vector<Swap> swaps_;
  Selection result_;
};

}  // namespace

Selection select(const Problem& problem, const Rules& rules, std::span<const Wish> wishes,
                 std::uint32_t end_op) {
  return Selector(problem, rules, wishes, end_op).run();
}

}  // namespace swaplab::foresight
