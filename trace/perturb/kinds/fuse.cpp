// Pointwise operators run as one kernel: a result that only the next one reads is never stored.
#include <algorithm>

#include "trace/perturb/dataflow.hpp"
#include "trace/perturb/perturbation.hpp"
#include "trace/perturb/shapes.hpp"

namespace swaplab {
namespace {

struct FuseParams {
  std::int64_t rate = 1'000'000;  // ppm
};

bool is_pointwise(std::string_view name) {
  static constexpr std::string_view names[] = {
      "add",     "sub",   "mul",   "div",         "neg",           "pow",
      "sqrt",    "rsqrt", "exp",   "gelu",        "silu",          "relu",
      "sigmoid", "tanh",  "where", "masked_fill", "gelu_backward", "threshold_backward",
      "eq",      "ne",    "clamp", "abs",         "bernoulli"};
  const std::string_view base = base_name(name);
  return name.starts_with("fused.") || std::find(std::begin(names), std::end(names), base) != std::end(names);
}

class Fuse final : public Perturbation {
 public:
  explicit Fuse(FuseParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random& random) const override {
    const Dataflow flow(edit, index);
    std::vector<std::uint8_t> gone(flow.nodes.size(), 0);
    // In order, so that a chain grows by its consumer.
    for (std::uint32_t node = 0; node < flow.nodes.size(); ++node) {
      const std::uint32_t row = flow.nodes[node].op;
      if (!is_pointwise(edit.op_name(row)) || !is_pure(edit, flow, node)) continue;
      const std::vector<StorageId> made = flow.made(edit, node);
      if (made.size() != 1 || edit.op(row).out.size() != 1 || !random.chance(params_.rate)) continue;
      const Dataflow::Uses& uses = flow.uses(made[0]);
      if (uses.by.size() != 1 || !uses.freed || edit.used_after(made[0], index)) continue;
      const std::uint32_t next = uses.by[0];
      if (!fits(edit, flow, node, next, made[0])) continue;
      edit.open_change("fuse", index);
      edit.remove(edit.iterations[index].items[flow.nodes[node].item]);
      merge(edit, row, flow.nodes[next].op, made[0]);
      edit.close_change();
      gone[node] = 1;
    }
  }

 private:
  // The consumer is pointwise too, of the same stream and phase, and nothing between writes what the first
  // reads.
  static bool fits(const EditableTrace& edit, const Dataflow& flow, std::uint32_t node, std::uint32_t next,
                   StorageId value) {
    const EditOp& a = edit.op(flow.nodes[node].op);
    const EditOp& b = edit.op(flow.nodes[next].op);
    if (!is_pointwise(edit.op_name(flow.nodes[next].op)) || !is_pure(edit, flow, next)) return false;
    if (a.stream != b.stream || a.phase != b.phase) return false;
    if (std::count(b.in.begin(), b.in.end(), value) != 1) return false;
    for (std::uint32_t between = node + 1; between < next; ++between) {
      for (const StorageId s : edit.op(flow.nodes[between].op).written) {
        if (std::find(a.in.begin(), a.in.end(), s) != a.in.end()) return false;
      }
    }
    return true;
  }

  static void merge(EditableTrace& edit, std::uint32_t first, std::uint32_t second, StorageId value) {
    const EditOp& a = edit.op(first);
    EditOp& b = edit.op(second);
    const EditSignature sa = edit.signature(a.signature), sb = edit.signature(b.signature);
    EditSignature fused;
    const auto stem = [](const EditSignature& s) { return std::string(base_name(s.name)); };
    fused.name = "fused." + stem(sa) + "_" + stem(sb) + ".default";
    SignatureShapes shapes_a = parse_shapes(sa.detail), shapes_b = parse_shapes(sb.detail);
    const auto at = static_cast<std::size_t>(std::find(b.in.begin(), b.in.end(), value) - b.in.begin());
    if (shapes_a.known && shapes_b.known && shapes_a.in.size() == a.in.size() &&
        shapes_b.in.size() == b.in.size()) {
      SignatureShapes shapes;
      shapes.in = shapes_b.in;
      shapes.in.erase(shapes.in.begin() + static_cast<std::ptrdiff_t>(at));
      shapes.in.insert(shapes.in.begin() + static_cast<std::ptrdiff_t>(at), shapes_a.in.begin(),
                       shapes_a.in.end());
      shapes.out = shapes_b.out;
      fused.detail = replace_shapes(R"({"in":[],"out":[],"attr":[]})", shapes);
    }
    if (sa.flop >= 0 && sb.flop >= 0) fused.flop = sa.flop + sb.flop;
    const std::int64_t kept = edit.bytes(value).value;  // neither written nor read again
    if (sa.read.value >= 0 && sb.read.value >= 0)
      fused.read = std::max(sa.read + sb.read - Bytes{kept}, Bytes{0});
    fused.written = sb.written;
    const Nanos time_a = a.device_time, time_b = b.device_time;
    if (time_a.value >= 0 && time_b.value >= 0) {
      // Pointwise kernels take the time of their bytes.
      const std::int64_t before = (sa.read + sa.written + sb.read + sb.written).value;
      const std::int64_t after = (fused.read + fused.written).value;
      const std::int64_t sum = (time_a + time_b).value;
      b.device_time = Nanos{before > 0 && after >= 0 && after < before
                                ? sum / before * after + sum % before * after / before
                                : sum};
    }
    b.in.erase(b.in.begin() + static_cast<std::ptrdiff_t>(at));
    b.in.insert(b.in.begin() + static_cast<std::ptrdiff_t>(at), a.in.begin(), a.in.end());
    b.signature = edit.add_signature(fused);
    edit.touch(second);
  }

  FuseParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(
    Fuse, FuseParams, {"fuse", "pointwise operators run as one; the value between them is not stored"},
    {share_field("rate", &FuseParams::rate, 0, 1'000'000, "share of the pairs that can be fused")});

}  // namespace
}  // namespace swaplab
