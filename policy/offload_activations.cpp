// Activation offloading: what a forward pass leaves for its backward pass goes to the host after its
// last forward use and comes back ahead of its first backward use. Recomputation counts as backward.
//
// The presets follow the scheduling rules of two published offloaders, on the storages of a trace:
// - torchtune (training/_activation_offloading.py): every saved storage from 1 KiB on is copied out; the
//   compute stream waits for a copy, and gives the bytes up, when five more have been submitted or
//   the first backward operator has run; back on demand, without lookahead. Its one communication
//   stream for both directions is two lanes here.
// - megatron (fine-grained activation offloading): from 1 Mi elements on (2 MiB in a 16-bit format);
//   bytes return by record_stream; the groups of the last layer stay (here: the last 8 storages); the
//   next group is reloaded while the backward of one runs (here: 20 operators ahead). With max_inflight it
//   waits for the oldest copy as torchtune does and does without record_stream.
#include <algorithm>
#include <limits>

#include "policy/policy.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

struct OffloadParams {
  std::string preset = "custom";
  std::string fallback = "none";
  std::string release = "wait";
  Bytes min_bytes{std::int64_t{1} << 20};
  Ppm fraction = kUnchanged;
  std::int64_t ahead = 20, keep_last = 0, max_inflight = 0;
};

OffloadParams torchtune() {
  OffloadParams params;
  params.min_bytes = Bytes{1024};
  params.ahead = 0;
  params.max_inflight = 5;
  return params;
}

OffloadParams megatron() {
  OffloadParams params;
  params.min_bytes = Bytes{std::int64_t{2} << 20};
  params.keep_last = 8;
  params.release = "record_stream";
  return params;
}

bool is_backward(Phase phase) {
  return phase == Phase::backward || phase == Phase::recompute;
}

class OffloadActivations final : public Policy {
 public:
  explicit OffloadActivations(OffloadParams params) : params_(std::move(params)) {}

  Plan start(const View& view, Actions&) override {
    std::vector<Candidate> saved = find_saved(view.program(), view.accesses());
    std::sort(saved.begin(), saved.end(), [](const Candidate& a, const Candidate& b) {
      return a.out != b.out ? a.out < b.out : index(a.slot) < index(b.slot);
    });
    std::vector<Step> steps;
    for (std::size_t first = 0; first < saved.size();) {
      std::size_t end = first;
      while (end < saved.size() && saved[end].backward == saved[first].backward) ++end;
      plan_pass(view, saved.data() + first, chosen(end - first), steps);
      first = end;
    }
    // Within a position: give bytes up, then copy out, then fetch, the earliest needed first.
    std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
      if (a.plan.position != b.plan.position) return a.plan.position < b.plan.position;
      return a.rank != b.rank ? a.rank < b.rank : a.deadline < b.deadline;
    });
    Plan plan;
    plan.steps.reserve(steps.size());
    for (const Step& step : steps) plan.steps.push_back(step.plan);
    return plan;
  }

  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    if (params_.fallback == "lru") evict_oldest(shortfall, view, actions, Bytes{0});
  }

  ReleaseRule release_rule() const override {
    const bool polled = params_.release == "record_stream" && params_.max_inflight == 0;
    return polled ? ReleaseRule::event_polled : ReleaseRule::stream_wait;
  }

  std::vector<PolicyMetric> metrics() const override {
    return {{"saved_storages", "count", "storages saved for a backward pass that qualify by class and size",
             saved_count_},
            {"offloaded_storages", "count", "of these, planned to leave the device", offloaded_},
            {"offloaded_bytes", "B", "bytes of these", offloaded_bytes_.value}};
  }

 private:
  struct Candidate {
    std::uint32_t out, in;   // last forward use, first backward use
    std::uint32_t backward;  // first backward operator after `out`: the same for a whole forward pass
    Slot slot;
  };
  struct Step {
    PlanStep plan;
    std::uint8_t rank;
    std::uint32_t deadline;
  };

  std::vector<Candidate> find_saved(const Program& program, const AccessIndex& accesses) {
    std::vector<std::uint32_t> backward_from(program.op_count(), kNever);  // training iterations only
    bool training = false, marked = false;
    for (const ProgramIteration& iteration : program.iterations) {
      if (iteration.kind != IterationKind::train) continue;
      training = true;
      std::uint32_t next = kNever;
      for (std::uint32_t op = iteration.end_op; op-- > iteration.first_op;) {
        if (is_backward(program.phase[op])) next = op;
        if (program.phase[op] == Phase::forward && next != kNever) marked = true;
        backward_from[op] = next;
      }
    }
    if (training && !marked) {
      throw Error(ErrorKind::policy,
                  "offload-activations: no training iteration of the trace has operators marked forward and "
                  "then backward");
    }
    std::vector<Candidate> saved;
    for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
      if (program.bytes[s] < params_.min_bytes || program.bytes[s] == Bytes{0}) continue;
      if (program.cls[s] != StorageClass::unknown && program.cls[s] != StorageClass::data) continue;
      for (std::uint32_t row = accesses.begin[s]; row + 1 < accesses.begin[s + 1]; ++row) {
        const std::uint32_t op = accesses.ops[row], next = accesses.ops[row + 1];
        if (program.phase[op] != Phase::forward || !is_backward(program.phase[next])) continue;
        // Not over the end of an iteration: what the next one fetches it saved itself.
        if (backward_from[op] == kNever || backward_from[next] == kNever || backward_from[op] > next)
          continue;
        if (crosses_iteration(program, op, next)) continue;
        saved.push_back({op, next, backward_from[op], Slot{s}});
      }
    }
    saved_count_ = static_cast<std::int64_t>(saved.size());
    return saved;
  }

  static bool crosses_iteration(const Program& program, std::uint32_t from, std::uint32_t to) {
    const auto after =
        std::upper_bound(program.iterations.begin(), program.iterations.end(), from,
                         [](std::uint32_t op, const ProgramIteration& i) { return op < i.end_op; });
    return after == program.iterations.end() || to >= after->end_op;
  }

  // How many of a pass's candidates leave: the first ones, whose bytes are needed back last.
  std::size_t chosen(std::size_t count) const {
    const auto keep = static_cast<std::size_t>(params_.keep_last);
    if (count <= keep) return 0;
    count -= keep;
    return count - static_cast<std::size_t>(static_cast<std::int64_t>(count) *
                                            (kUnchanged - params_.fraction) / kUnchanged);
  }

  void plan_pass(const View& view, const Candidate* pass, std::size_t count, std::vector<Step>& steps) {
    const auto inflight = static_cast<std::size_t>(params_.max_inflight);
    const auto ahead = static_cast<std::uint32_t>(
        std::min<std::int64_t>(params_.ahead, std::numeric_limits<std::int32_t>::max()));
    for (std::size_t i = 0; i < count; ++i) {
      const Candidate& c = pass[i];
      const std::uint32_t copied = c.out + 1;  // in front of the operator after the last forward use
      std::uint32_t given_up = copied;
      if (inflight > 0) given_up = i + inflight < count ? pass[i + inflight].out + 1 : c.backward + 1;
      // Reloading starts with the backward pass at the earliest.
      const std::uint32_t back = std::max(c.in > ahead ? c.in - ahead : 0, c.backward);
      const bool leaves = given_up < c.in && (ahead == 0 || given_up < back);
      if (inflight > 0) {
        // Submitted in any case: a tensor that is wanted before its bytes are given up is used as it is.
        if (copied < c.in) steps.push_back({{copied, PlanAction::copy_out, c.slot}, 1, c.in});
      }
      if (!leaves) continue;
      steps.push_back({{given_up, PlanAction::evict, c.slot}, 0, c.out});
      if (ahead > 0 && back < c.in) steps.push_back({{back, PlanAction::prefetch, c.slot}, 2, c.in});
      ++offloaded_;
      offloaded_bytes_ += view.size(c.slot);
    }
  }

  OffloadParams params_;
  std::int64_t saved_count_ = 0, offloaded_ = 0;
  Bytes offloaded_bytes_{0};
};

SWAPLAB_REGISTER_POLICY(
    OffloadActivations, OffloadParams,
    {"offload-activations",
     "Activations leave after their last forward use and return ahead of the backward pass",
     "torchtune activation offloading; Megatron-LM fine-grained activation offloading", Needs::future},
    {preset_parameter<OffloadParams>(
         "preset", &OffloadParams::preset,
         {{"custom", OffloadParams{}}, {"torchtune", torchtune()}, {"megatron", megatron()}},
         "defaults of the other parameters; torchtune: 1 KiB and up, five copies in flight, back on demand; "
         "megatron: 2 MiB and up, the last 8 stay, 20 operators ahead, record_stream"),
     bytes_parameter("min_bytes", &OffloadParams::min_bytes, "smaller storages stay"),
     integer_parameter("ahead", &OffloadParams::ahead, 0, 1'000'000,
                       "operators ahead of the first backward use at which the copy back is issued, not "
                       "before the backward pass begins; 0: on demand"),
     integer_parameter("keep_last", &OffloadParams::keep_last, 0, 1'000'000,
                       "the last N candidates of each forward pass stay on the device"),
     fraction_parameter("fraction", &OffloadParams::fraction, 0, kUnchanged,
                        "share of the remaining candidates of each pass that leaves, the first ones"),
     integer_parameter("max_inflight", &OffloadParams::max_inflight, 0, 1'000'000,
                       "copies out whose device bytes are still held; one more waits for the oldest; 0: no "
                       "limit, bytes are given up at once"),
     choice_parameter("release", &OffloadParams::release, {"wait", "record_stream"},
                      "how bytes return: their next user waits for the copy, or the host polls the copy's "
                      "event (only while max_inflight is 0)"),
     choice_parameter("fallback", &OffloadParams::fallback, {"none", "lru"},
                      "when room is short all the same: fail, or evict least recently used")});

}  // namespace
}  // namespace swaplab
