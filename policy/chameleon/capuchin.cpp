// Baseline: Capuchin-style swapping (Peng et al., ASPLOS 2020), the swap half. One measured iteration under
// passive swapping records every tensor access; later iterations evict after the n-th access of the k-th
// tensor and swap in when another recorded access fires. Keys are counts, so a change of the sequence moves
// them all. Left out: recomputation, and the feedback that shifts in-triggers.
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "policy/policy.hpp"

namespace swaplab::chameleon {
namespace {

struct CapuchinParams {
  std::int64_t measure = 1;  // iteration
  Bytes min_bytes{std::int64_t{64} << 10};
};

class Capuchin final : public Policy {
 public:
  explicit Capuchin(CapuchinParams params) : params_(params) {}

  void before_op(std::uint32_t op, const View& view, Actions& actions) override {
    if (!in_iteration_) {
      in_iteration_ = true;
      first_op_ = op;
      begin_ = view.host_now();
      born_.clear();
      counts_.clear();
      slot_of_.clear();
    } else {
      fire(op - 1, view, actions);
    }
    if (measuring()) note_need(op, view);
  }

  void end_iteration(std::uint32_t, const View& view, Actions& actions) override {
    if (!in_iteration_) return;
    fire(view.position(), view, actions);
    in_iteration_ = false;
    if (measuring()) make_plan(view);
    ++iteration_;
  }

  // Passive mode: in the order of the last access, as Capuchin does.
  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    if (measuring()) {
      for (Slot s = view.oldest(); s != kNoSlot && shortfall > Bytes{0};) {
        const Slot next = view.newer(s);
        if (view.evictable(s) && view.size(s) >= Bytes{1024}) {
          shortfall -= view.size(s);
          actions.evict(s);
          evicted_.push_back(s);
        }
        s = next;
      }
      if (shortfall <= Bytes{0}) return;
    }
    evict_oldest(shortfall, view, actions, Bytes{1024});
    if (shortfall > Bytes{0}) evict_oldest(shortfall, view, actions, Bytes{1});
  }

  std::vector<PolicyMetric> metrics() const override {
    return {
        {"planned_evictions", "1", "tensor accesses after which a tensor leaves",
         static_cast<std::int64_t>(evict_after_.size())},
        {"bytes_to_save", "B", "most bytes that were out at once in the measured iteration", needed_.value}};
  }

 private:
  using Tensor = std::uint64_t;  // k-th tensor born in the iteration, or a persistent one by its birth rank
  struct AccessRecord {
    Tensor tensor;
    std::uint32_t count;
    Nanos time;  // since the iteration began, on the host
    Bytes bytes;
  };
  static constexpr Tensor kPersistent = Tensor{1} << 40;
  static std::uint64_t key(Tensor tensor, std::uint32_t count) { return tensor << 20 | (count & 0xFFFFF); }

  bool measuring() const { return iteration_ == params_.measure; }

  void fire(std::uint32_t op, const View& view, Actions& actions) {
    if (fired_ > op) return;
    fired_ = op + 1;
    for (const Access& access : view.operands(op)) {
      const Tensor tensor = identify(access, view);
      const std::uint32_t count = ++counts_[tensor];
      slot_of_[tensor] = access.slot;
      if (measuring()) records_.push_back({tensor, count, view.host_now() - begin_, view.size(access.slot)});
      if (evict_after_.empty()) continue;
      const std::uint64_t k = key(tensor, count);
      if (evict_after_.count(k) != 0 && view.evictable(access.slot)) actions.evict(access.slot);
      const auto trigger = swap_in_at_.find(k);
      if (trigger == swap_in_at_.end()) continue;
      for (const Tensor target : trigger->second) {
        const auto slot = slot_of_.find(target);
        if (slot == slot_of_.end()) continue;
        const Residency residency = view.residency(slot->second);
        if (residency == Residency::host || residency == Residency::outgoing) actions.prefetch(slot->second);
      }
    }
  }

  Tensor identify(const Access& access, const View& view) {
    if ((access.flags & kCreate) != 0) return born_.emplace(index(access.slot), born_.size()).first->second;
    const auto found = born_.find(index(access.slot));
    return found == born_.end() ? kPersistent + view.birth_rank(access.slot) : found->second;
  }

  void note_need(std::uint32_t op, const View& view) {
    std::erase_if(evicted_, [&](Slot s) {
      return view.residency(s) != Residency::host && view.residency(s) != Residency::outgoing;
    });
    Bytes out{0};
    for (const Slot s : evicted_) out += view.size(s);
    if (out > needed_) {
      needed_ = out;
      peak_time_ = view.host_now() - begin_;
    }
    (void)op;
  }

  // Gaps over the moment of the largest need, by free time (gap less both copies), until enough bytes leave.
  void make_plan(const View& view) {
    struct Gap {
      std::uint64_t from;  // key of the access after which it leaves
      Tensor tensor;
      Nanos free_time, back;
      Bytes bytes;
    };
    const Machine& machine = view.machine();
    std::unordered_map<Tensor, std::size_t> last;
    std::vector<Gap> gaps;
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const AccessRecord& r = records_[i];
      const auto before = last.find(r.tensor);
      if (before != last.end() && r.bytes >= params_.min_bytes) {
        const AccessRecord& b = records_[before->second];
        if (b.time <= peak_time_ && peak_time_ <= r.time) {
          const Nanos in = machine.link(Direction::host_to_device).time(r.bytes);
          const Nanos out = machine.link(Direction::device_to_host).time(r.bytes);
          gaps.push_back(
              {key(b.tensor, b.count), r.tensor, r.time - b.time - in - out, r.time - in, r.bytes});
        }
      }
      last[r.tensor] = i;
    }
    std::stable_sort(gaps.begin(), gaps.end(),
                     [](const Gap& a, const Gap& b) { return a.free_time > b.free_time; });
    Bytes saved{0};
    for (const Gap& gap : gaps) {
      if (saved >= needed_) break;
      saved += gap.bytes;
      evict_after_.emplace(gap.from, true);
      // In-trigger: the newest access that is recorded at or before the time at which the copy must start.
      const auto after = std::upper_bound(records_.begin(), records_.end(), gap.back,
                                          [](Nanos t, const AccessRecord& r) { return t < r.time; });
      if (after == records_.begin()) continue;
      const AccessRecord& at = *(after - 1);
      swap_in_at_[key(at.tensor, at.count)].push_back(gap.tensor);
    }
    records_.clear();
  }

  const CapuchinParams params_;
  std::int64_t iteration_ = 0;
  bool in_iteration_ = false;
  std::uint32_t first_op_ = 0, fired_ = 0;
  Nanos begin_{0}, peak_time_{0};
  Bytes needed_{0};
  std::vector<Slot> evicted_;
  std::vector<AccessRecord> records_;  // of the measured iteration, ascending time
  std::unordered_map<std::uint32_t, Tensor> born_;
  std::unordered_map<Tensor, std::uint32_t> counts_;
  std::unordered_map<Tensor, Slot> slot_of_;
  std::unordered_map<std::uint64_t, bool> evict_after_;
  std::unordered_map<std::uint64_t, std::vector<Tensor>> swap_in_at_;
};

SWAPLAB_REGISTER_POLICY(
    Capuchin, CapuchinParams,
    {.name = "capuchin-swap",
     .summary = "Capuchin-style: one measured iteration, moves keyed by tensor and access count",
     .citation = "doi:10.1145/3373376.3378505",
     .needs = Needs::op_events | Needs::op_stream | Needs::link_model},
    {integer_parameter("measure", &CapuchinParams::measure, 0, 1'000'000,
                       "iteration that is measured, from 0"),
     bytes_parameter("min_bytes", &CapuchinParams::min_bytes, "smaller tensors are not planned")});

}  // namespace
}  // namespace swaplab::chameleon
