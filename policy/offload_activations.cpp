// Activation offloading: what the forward pass leaves for the backward pass goes to the host after its
// last forward use and comes back ahead of its first backward use.
//
// Presets follow the scheduling rules of two published offloaders:
// - torchtune (training/_activation_offloading.py): everything from 1 KiB on, back on demand, no lookahead.
// - megatron (fine-grained activation offloading): from 1 M elements of two bytes on, the last storages
//   of a forward pass stay, reloading runs ahead of the backward pass.
#include <algorithm>

#include "policy/policy.hpp"

namespace swaplab {
namespace {

struct OffloadParams {
  std::string preset = "custom";
  std::string fallback = "none";
  Bytes min_bytes{std::int64_t{1} << 20};
  std::int64_t ahead = 20;
  std::int64_t keep_last = 0;
};

class OffloadActivations final : public Policy {
 public:
  explicit OffloadActivations(OffloadParams params) : params_(std::move(params)) {
    if (params_.preset == "torchtune") {
      params_.min_bytes = Bytes{1024};
      params_.ahead = 0;
      params_.keep_last = 0;
    } else if (params_.preset == "megatron") {
      params_.min_bytes = Bytes{std::int64_t{2} << 20};
      params_.ahead = 40;
      params_.keep_last = 8;
    }
  }

  Plan start(const View& view, Actions&) override {
    const Program& program = view.program();
    const AccessIndex& accesses = view.accesses();
    // Each forward pass is one group: keep_last counts from its end.
    std::vector<Candidate> candidates;
    for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
      if (program.initial[s] != 0 || program.bytes[s] < params_.min_bytes) continue;
      if (program.cls[s] != StorageClass::unknown && program.cls[s] != StorageClass::data) continue;
      const std::uint32_t first = accesses.begin[s], last = accesses.begin[s + 1];
      for (std::uint32_t row = first; row + 1 < last; ++row) {
        const std::uint32_t op = accesses.ops[row], next = accesses.ops[row + 1];
        if (is_forward(program.phase[op]) && is_backward(program.phase[next]))
          candidates.push_back({op, next, Slot{s}});
      }
    }
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.out != b.out ? a.out < b.out : index(a.slot) < index(b.slot);
    });
    drop_last_of_each_pass(program, candidates);
    Plan plan;
    for (const Candidate& c : candidates) {
      // In front of the operator after the last forward use.
      plan.steps.push_back({c.out + 1, PlanAction::evict, c.slot});
      ++offloaded_;
      if (params_.ahead > 0) {
        const auto ahead = static_cast<std::uint32_t>(params_.ahead);
        const std::uint32_t back = std::max(c.out + 2, c.in > ahead ? c.in - ahead : 0);
        if (back < c.in) plan.steps.push_back({back, PlanAction::prefetch, c.slot});
      }
    }
    std::stable_sort(plan.steps.begin(), plan.steps.end(),
                     [](const PlanStep& a, const PlanStep& b) { return a.position < b.position; });
    return plan;
  }

  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    if (params_.fallback == "lru") evict_oldest(shortfall, view, actions, Bytes{0});
  }

  std::vector<PolicyMetric> metrics() const override {
    return {{"offloaded_storages", "count", "storages planned to leave between forward and backward",
             offloaded_}};
  }

 private:
  struct Candidate {
    std::uint32_t out, in;  // last forward use, first backward use
    Slot slot;
  };
  static bool is_forward(Phase phase) { return phase == Phase::forward || phase == Phase::data; }
  static bool is_backward(Phase phase) { return phase == Phase::backward || phase == Phase::recompute; }

  void drop_last_of_each_pass(const Program& program, std::vector<Candidate>& candidates) const {
    if (params_.keep_last == 0) return;
    std::vector<Candidate> kept;
    std::size_t first = 0;
    while (first < candidates.size()) {
      // A pass ends where the backward pass of its earliest candidate begins.
      std::size_t end = first;
      std::uint32_t backward = candidates[first].out;
      while (backward < program.op_count() && !is_backward(program.phase[backward])) ++backward;
      while (end < candidates.size() && candidates[end].out < backward) ++end;
      const std::size_t count = end - first;
      const std::size_t stay = std::min<std::size_t>(count, static_cast<std::size_t>(params_.keep_last));
      kept.insert(kept.end(), candidates.begin() + static_cast<std::ptrdiff_t>(first),
                  candidates.begin() + static_cast<std::ptrdiff_t>(end - stay));
      first = std::max(end, first + 1);
    }
    candidates = std::move(kept);
  }

  OffloadParams params_;
  std::int64_t offloaded_ = 0;
};

SWAPLAB_REGISTER_POLICY(
    OffloadActivations, OffloadParams,
    {"offload-activations",
     "Activations leave after their last forward use and return ahead of the backward pass",
     "torchtune activation offloading; Megatron-LM fine-grained activation offloading", Needs::future},
    {choice_parameter(
         "preset", &OffloadParams::preset, {"custom", "torchtune", "megatron"},
         "torchtune: 1 KiB and up, no lookahead; megatron: 2 MiB and up, 40 operators ahead, last 8 stay; "
         "both override min_bytes, ahead and keep_last"),
     bytes_parameter("min_bytes", &OffloadParams::min_bytes, "smaller storages stay"),
     integer_parameter(
         "ahead", &OffloadParams::ahead, 0, 1'000'000,
         "operators ahead of the first backward use at which the copy back is issued; 0: on demand"),
     integer_parameter("keep_last", &OffloadParams::keep_last, 0, 1'000'000,
                       "the last N candidates of each forward pass stay on the device"),
     choice_parameter("fallback", &OffloadParams::fallback, {"none", "lru"},
                      "when room is short all the same: fail, or evict least recently used")});

}  // namespace
}  // namespace swaplab
