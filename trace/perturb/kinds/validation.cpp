// A validation pass behind an iteration: its forward pass on new data, in evaluation mode.
#include "trace/perturb/dataflow.hpp"
#include "trace/perturb/perturbation.hpp"

namespace swaplab {
namespace {

struct ValidationParams {
  std::int64_t batches = 1;
};

// Rules of the evaluation pass, each as in PyTorch's eval mode under no_grad:
// - the data and forward operators of the first micro-batch, phase E behind the data;
// - detach views, which only autograd makes, and updates of buffers are left out;
// - dropout is left out where its input can stand for its output;
// - nothing is kept for a backward pass: every result is freed behind its last use;
// - the host reads the loss at the end, where the training iteration does.
class Validation final : public Perturbation {
 public:
  explicit Validation(ValidationParams params) : params_(params) {}
  void apply(EditableTrace& edit, std::size_t index, Random&) const override {
    const Dataflow flow(edit, index);
    const std::vector<std::uint32_t> forward = forward_nodes(edit, index, flow);
    if (forward.empty()) return;
    EditIteration validation;
    validation.number = edit.iterations[index].number;
    validation.kind = IterationKind::validation;
    validation.inserted = true;
    edit.insert_iteration_after(index, validation);
    const std::size_t at = index + 1;
    edit.open_change("validation", at);
    Items items;
    const auto mark = [&](MarkKind kind, const char* text, std::int64_t number) {
      items.push_back({ItemKind::mark, edit.add_mark({kind, text, number, Nanos{-1}})});
    };
    mark(MarkKind::iter_begin, "val", 0);
    for (std::int64_t batch = 0; batch < params_.batches; ++batch) {
      mark(MarkKind::micro_begin, "", batch);
      mark(MarkKind::phase, "D", -1);
      one_batch(edit, flow, forward, items, [&] { mark(MarkKind::phase, "E", -1); });
      mark(MarkKind::micro_end, "", batch);
    }
    mark(MarkKind::iter_end, "", 0);
    edit.iterations[at].items = std::move(items);
    edit.close_change();
  }

 private:
  static std::vector<std::uint32_t> forward_nodes(const EditableTrace& edit, std::size_t index,
                                                  const Dataflow& flow) {
    std::vector<std::uint32_t> nodes;
    const std::vector<MicroBatch> batches = micro_batches(edit, index);
    if (batches.empty()) return nodes;
    for (std::uint32_t node = 0; node < flow.nodes.size(); ++node) {
      const Dataflow::Node& n = flow.nodes[node];
      const Phase phase = edit.op(n.op).phase;
      const bool inside = n.item >= batches[0].first_item && n.item < batches[0].end_item;
      if (inside && (phase == Phase::data || phase == Phase::forward)) nodes.push_back(node);
    }
    return nodes;
  }

  template <class EnterEvaluation>
  void one_batch(EditableTrace& edit, const Dataflow& flow, const std::vector<std::uint32_t>& forward,
                 Items& items, EnterEvaluation enter) const {
    EditableTrace::StorageMap map;
    const auto from_before = [&](StorageId s) {
      // Neither made here nor part of the model, and gone by now: it is there anew.
      if (map.count(index_of(s)) != 0 || flow.uses(s).made_by != kFromBefore || edit.is_model_state(s))
        return;
      if (!flow.uses(s).freed) return;
      const StorageId copy = edit.add_storage(s, edit.bytes(s), true);
      edit.make_external(copy);
      map.emplace(index_of(s), copy);
    };
    bool evaluation = false;
    for (const std::uint32_t node : forward) {
      const std::uint32_t row = flow.nodes[node].op;
      for (const StorageId s : edit.op(row).in) from_before(s);
      if (edit.op(row).phase == Phase::forward) {
        if (!evaluation) enter();
        evaluation = true;
        if (left_out(edit, flow, row, node, map)) continue;
      }
      const Items one = {{ItemKind::op, row}};
      edit.copy_range(one, 0, 1, map, items);
      if (evaluation) edit.op(items.back().arg).phase = Phase::evaluation;
    }
    read_loss(edit, flow, map, items);
  }

  static bool left_out(const EditableTrace& edit, const Dataflow& flow, std::uint32_t row, std::uint32_t node,
                       EditableTrace::StorageMap& map) {
    const EditOp& op = edit.op(row);
    const std::string_view name = base_name(edit.op_name(row));
    if (name == "detach") return true;
    for (const StorageId s : op.written) {
      if (edit.storage_class(s) == StorageClass::buffer) return true;
    }
    if (!name.ends_with("dropout") || op.in.size() != 1) return false;
    const std::vector<StorageId> made = flow.made(edit, node);
    if (made.empty() || edit.bytes(made[0]) != edit.bytes(op.in[0])) return false;
    for (std::size_t i = 1; i < made.size(); ++i) {  // the mask is for the backward pass
      for (const std::uint32_t user : flow.uses(made[i]).by) {
        if (edit.op(flow.nodes[user].op).phase == Phase::forward) return false;
      }
    }
    const auto mapped = map.find(index_of(op.in[0]));
    map.insert_or_assign(index_of(made[0]), mapped == map.end() ? op.in[0] : mapped->second);
    return true;
  }

  // The last host read of something that the forward pass made.
  static void read_loss(EditableTrace& edit, const Dataflow& flow, EditableTrace::StorageMap& map,
                        Items& items) {
    for (std::uint32_t node = static_cast<std::uint32_t>(flow.nodes.size()); node-- > 0;) {
      const EditOp& op = edit.op(flow.nodes[node].op);
      if (op.sync == SyncKind::none || op.in.size() != 1 || map.count(index_of(op.in[0])) == 0) continue;
      if (op.phase == Phase::data || op.phase == Phase::forward) return;  // copied already
      const Items one = {{ItemKind::op, flow.nodes[node].op}};
      edit.copy_range(one, 0, 1, map, items);
      edit.op(items.back().arg).phase = Phase::evaluation;
      return;
    }
  }

  static std::uint32_t index_of(StorageId s) { return swaplab::index(s); }

  ValidationParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(
    Validation, ValidationParams,
    {"validation", "a validation iteration follows: the forward pass in evaluation mode"},
    {count_field("batches", &ValidationParams::batches, 1, 1000, "validation batches")});

}  // namespace
}  // namespace swaplab
