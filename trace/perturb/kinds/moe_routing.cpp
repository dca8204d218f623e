// The router sends tokens to other experts: loads move between the experts of a layer, experts may go idle.
#include <algorithm>
#include <map>

#include "trace/perturb/perturbation.hpp"
#include "trace/perturb/removal.hpp"
#include "trace/perturb/rescale.hpp"
#include "trace/perturb/shapes.hpp"

namespace swaplab {
namespace {

struct RoutingParams {
  std::int64_t shift = 300'000;  // ppm
  std::int64_t idle = 0;
};

// Experts are the host-read shape operators of the forward pass whose masks come from one routing result. The
// tokens of a layer keep their number. An idle expert runs nothing, as where the model tests for an empty
// list, and its parameters get no gradient and no step.
class MoeRouting final : public Perturbation {
 public:
  explicit MoeRouting(RoutingParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random& random) const override {
    const Dataflow flow(edit, index);
    Rescale request;
    std::vector<StorageId> emptied;
    for (const auto& [source, experts] : layers(edit, flow)) {
      std::vector<std::int64_t> loads;
      for (const std::uint32_t node : experts) loads.push_back(load(edit, flow, node));
      const std::vector<std::int64_t> before = loads;
      make_idle(loads, random, params_.idle);
      shift(loads, random);
      for (std::size_t e = 0; e < experts.size(); ++e) {
        if (loads[e] == before[e]) continue;
        request.routed[experts[e]] = loads[e];
        if (loads[e] == 0) emptied.push_back(edit.op(flow.nodes[experts[e]].op).out[0]);
      }
    }
    if (request.routed.empty()) return;
    edit.open_change("moe_routing", index);
    rescale_iteration(edit, index, request);
    if (!emptied.empty()) {
      Removal removal(edit, index);
      for (const StorageId s : emptied) removal.drop_readers(s);
      removal.run();
    }
    edit.close_change();
  }

 private:
  static std::int64_t load(const EditableTrace& edit, const Dataflow& flow, std::uint32_t node) {
    return parse_shapes(edit.signature(edit.op(flow.nodes[node].op).signature).detail).out[0].dims[0];
  }

  // Routing nodes by what their masks were computed from, in program order.
  static std::map<std::uint32_t, std::vector<std::uint32_t>> layers(const EditableTrace& edit,
                                                                    const Dataflow& flow) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> result;
    for (std::uint32_t node = 0; node < flow.nodes.size(); ++node) {
      const EditOp& op = edit.op(flow.nodes[node].op);
      const bool forward = op.phase == Phase::forward || op.phase == Phase::evaluation;
      if (!forward || !is_routing(edit, flow, node) || op.in.empty()) continue;
      const std::uint32_t maker = flow.uses(op.in[0]).made_by;
      if (maker == kFromBefore || edit.op(flow.nodes[maker].op).in.empty()) continue;
      result[swaplab::index(edit.op(flow.nodes[maker].op).in[0])].push_back(node);
    }
    return result;
  }

  static void make_idle(std::vector<std::int64_t>& loads, Random& random, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::vector<std::size_t> busy;
      for (std::size_t e = 0; e < loads.size(); ++e) {
        if (loads[e] > 0) busy.push_back(e);
      }
      if (busy.size() < 2) return;
      const auto chosen = random.below(static_cast<std::uint32_t>(busy.size()));
      const std::size_t from = busy[chosen];
      busy.erase(busy.begin() + chosen);
      loads[busy[random.below(static_cast<std::uint32_t>(busy.size()))]] += std::exchange(loads[from], 0);
    }
  }

  void shift(std::vector<std::int64_t>& loads, Random& random) const {
    std::vector<std::size_t> busy;
    for (std::size_t e = 0; e < loads.size(); ++e) {
      if (loads[e] > 0) busy.push_back(e);
    }
    if (busy.size() < 2) return;
    const std::vector<std::int64_t> before = loads;
    for (const std::size_t from : busy) {
      // Up to this share of what the expert had, all to one other; one token stays.
      const std::int64_t most =
          before[from] / 1000 * params_.shift / 1000 + before[from] % 1000 * params_.shift / 1'000'000;
      const std::int64_t moved = std::min(
          static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(most + 1))), loads[from] - 1);
      const std::size_t to = busy[random.below(static_cast<std::uint32_t>(busy.size()))];
      loads[from] -= moved;
      loads[to] += moved;
    }
  }

  RoutingParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(MoeRouting, RoutingParams,
                              {"moe_routing", "tokens go to other experts of their layer"},
                              {share_field("shift", &RoutingParams::shift, 0, 1'000'000,
                                           "largest share of an expert's tokens that moves"),
                               count_field("idle", &RoutingParams::idle, 0, 100'000,
                                           "experts per layer that get no token")});

}  // namespace
}  // namespace swaplab
