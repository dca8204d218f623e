// Another number of micro-batches per optimizer step.
#include <algorithm>
#include <string>

#include "trace/error.hpp"
#include "trace/perturb/dataflow.hpp"
#include "trace/perturb/perturbation.hpp"
#include "trace/perturb/shapes.hpp"

namespace swaplab {
namespace {

struct AccumulationParams {
  std::int64_t count = 2;
};

// More: the last micro-batch is repeated. Where it is the only one, its gradients are new storages, and the
// repetition adds its own to them (add_ in the place of autograd's two detach views), as AccumulateGrad does.
// Fewer: the last ones are left out; what reads a value of theirs, a loss, reads that of the last one left.
class Accumulation final : public Perturbation {
 public:
  explicit Accumulation(AccumulationParams params) : params_(params) {}
  void apply(EditableTrace& edit, std::size_t index, Random&) const override {
    const std::vector<MicroBatch> batches = micro_batches(edit, index);
    const auto wanted = static_cast<std::size_t>(params_.count);
    if (batches.empty() || batches.size() == wanted) return;
    edit.open_change("accumulation", index);
    if (wanted > batches.size()) {
      repeat(edit, index, batches, wanted - batches.size());
    } else {
      leave_out(edit, index, batches, wanted);
    }
    edit.close_change();
  }

 private:
  // A micro-batch with the marks directly around it.
  static MicroBatch with_marks(const EditableTrace& edit, const Items& items, MicroBatch batch) {
    while (batch.first_item > 0 && items[batch.first_item - 1].kind != ItemKind::op) {
      const Item& item = items[--batch.first_item];
      if (item.kind == ItemKind::mark && edit.mark(item.arg).kind == MarkKind::micro_begin) return batch;
      if (item.kind == ItemKind::mark && edit.mark(item.arg).kind == MarkKind::iter_begin) break;
    }
    while (items[batch.first_item].kind != ItemKind::op) ++batch.first_item;
    return batch;
  }

  static void repeat(EditableTrace& edit, std::size_t index, const std::vector<MicroBatch>& batches,
                     std::size_t times) {
    const Dataflow flow(edit, index);
    const Items items = edit.iterations[index].items;
    const MicroBatch last = with_marks(edit, items, batches.back());
    const bool marked = items[last.first_item].kind == ItemKind::mark;
    std::uint32_t end = batches.back().end_item;  // behind the last operator
    while (marked && end < items.size() && items[end].kind != ItemKind::op) {
      if (items[end].kind == ItemKind::mark && edit.mark(items[end].arg).kind == MarkKind::micro_end) break;
      ++end;
    }
    const std::uint32_t insert_at = marked ? end + 1 : batches.back().end_item;
    Items result(items.begin(), items.begin() + insert_at);
    for (std::size_t t = 0; t < times; ++t) {
      EditableTrace::StorageMap map;
      const std::size_t begin = result.size();
      edit.copy_range(items, last.first_item, batches.back().end_item, map, result);
      if (marked) result.push_back({ItemKind::mark, edit.add_mark({MarkKind::micro_end, "", 0, Nanos{-1}})});
      for (std::size_t i = begin; i < result.size(); ++i) {
        if (result[i].kind != ItemKind::mark) continue;
        EditMark& mark = edit.mark(result[i].arg);
        if (mark.kind != MarkKind::micro_begin && mark.kind != MarkKind::micro_end) continue;
        mark.number = static_cast<std::int64_t>(batches.size() + t);
        mark.time = Nanos{-1};
      }
      accumulate(edit, flow, items, batches.back(), map, begin, result);
    }
    result.insert(result.end(), items.begin() + insert_at, items.end());
    edit.iterations[index].items = std::move(result);
  }

  // Gradients: made in this micro-batch's backward pass, and alive behind it.
  static void accumulate(EditableTrace& edit, const Dataflow& flow, const Items& items,
                         const MicroBatch& batch, const EditableTrace::StorageMap& map, std::size_t begin,
                         Items& result) {
    std::unordered_map<std::uint32_t, StorageId> gradient_of;  // copy -> gradient
    for (const auto& [original, copy] : map) {
      const Dataflow::Uses& uses = flow.uses(StorageId{original});
      if (uses.made_by == kFromBefore) continue;
      const Dataflow::Node& maker = flow.nodes[uses.made_by];
      const bool inside = maker.item >= batch.first_item && maker.item < batch.end_item;
      if (!inside || edit.op(maker.op).phase != Phase::backward) continue;
      const bool freed_inside =
          std::any_of(items.begin() + maker.item, items.begin() + batch.end_item,
                      [&, id = original](const Item& i) { return i.kind == ItemKind::free && i.arg == id; });
      const bool used_behind = !uses.by.empty() && flow.nodes[uses.by.back()].item >= batch.end_item;
      // Freed by the next iteration, or read by the optimizer.
      if (!freed_inside && (used_behind || !uses.freed))
        gradient_of.emplace(swaplab::index(copy), StorageId{original});
    }
    if (gradient_of.empty()) return;
    // Where each copy is touched last: there it is added and freed.
    std::unordered_map<std::uint32_t, std::size_t> last;
    for (std::size_t i = begin; i < result.size(); ++i) {
      if (result[i].kind != ItemKind::op) continue;
      for (const auto* ids : {&edit.op(result[i].arg).in, &edit.op(result[i].arg).out}) {
        for (const StorageId s : *ids) {
          if (gradient_of.count(swaplab::index(s)) != 0) last[swaplab::index(s)] = i;
        }
      }
    }
    Items copy(result.begin() + static_cast<std::ptrdiff_t>(begin), result.end());
    result.resize(begin);
    for (std::size_t i = 0; i < copy.size(); ++i) {
      std::vector<StorageId> here;
      if (copy[i].kind == ItemKind::op) {
        for (const StorageId s : edit.op(copy[i].arg).out) {
          const auto found = last.find(swaplab::index(s));
          if (found != last.end() && found->second == begin + i &&
              std::find(here.begin(), here.end(), s) == here.end())
            here.push_back(s);
        }
        const bool detach = base_name(edit.op_name(copy[i].arg)) == "detach" &&
                            !edit.op(copy[i].arg).in.empty() &&
                            gradient_of.count(swaplab::index(edit.op(copy[i].arg).in[0])) != 0;
        if (!detach) result.push_back(copy[i]);
      } else {
        result.push_back(copy[i]);
      }
      for (const StorageId s : here)
        result.push_back({ItemKind::op, add_to(edit, gradient_of.at(swaplab::index(s)), s, copy[i].arg)});
    }
  }

  static std::uint32_t add_to(EditableTrace& edit, StorageId gradient, StorageId addend,
                              std::uint32_t maker) {
    const EditSignature made = edit.signature(edit.op(maker).signature);
    const SignatureShapes shapes = parse_shapes(made.detail);
    EditSignature signature;
    signature.name = "aten.add_.Tensor";
    const std::int64_t bytes = edit.bytes(addend).value;
    signature.flop = -1;
    if (shapes.known) {
      for (std::size_t i = 0; i < shapes.out.size() && i < edit.op(maker).out.size(); ++i) {
        if (edit.op(maker).out[i] != addend) continue;
        SignatureShapes sum;
        sum.in = {shapes.out[i], shapes.out[i]};
        sum.out = {shapes.out[i]};
        signature.detail = replace_shapes(R"({"in":[],"out":[],"attr":[]})", sum);
        signature.flop = shapes.out[i].elements();
      }
    }
    signature.read = Bytes{2 * bytes};
    signature.written = Bytes{bytes};
    EditOp op;
    op.signature = edit.add_signature(signature);
    op.phase = Phase::backward;
    op.stream = edit.op(maker).stream;
    op.device_time = edit.op(maker).device_time;
    op.host_time = edit.op(maker).host_time;
    op.host_gap = edit.op(maker).host_gap;
    op.in = {gradient, addend};
    op.out = {gradient};
    op.written = {gradient};
    edit.release(addend);
    return edit.add_op(std::move(op));
  }

  static void leave_out(EditableTrace& edit, std::size_t index, const std::vector<MicroBatch>& batches,
                        std::size_t wanted) {
    const Dataflow flow(edit, index);
    Items& items = edit.iterations[index].items;
    const MicroBatch& kept = batches[wanted - 1];
    const std::uint32_t from = with_marks(edit, items, batches[wanted]).first_item;
    const std::uint32_t until = batches.back().end_item;
    // Values of the lost micro-batches that are read behind them.
    for (const auto& [id, uses] : flow.storages) {
      const StorageId s{id};
      if (uses.made_by == kFromBefore || uses.by.empty()) continue;
      const std::uint32_t made_at = flow.nodes[uses.made_by].item;
      if (made_at < from || made_at >= until || flow.nodes[uses.by.back()].item < until) continue;
      StorageId stand_in = without_lost_addends(edit, flow, from, s);
      if (stand_in == s) stand_in = counterpart(edit, flow, kept, batches, uses.made_by, s);
      for (const std::uint32_t node : uses.by) {
        if (flow.nodes[node].item < until) continue;
        EditOp& op = edit.op(flow.nodes[node].op);
        for (auto* ids : {&op.in, &op.out, &op.written}) std::replace(ids->begin(), ids->end(), s, stand_in);
      }
    }
    bool in_marks = items[from].kind == ItemKind::mark;
    for (std::uint32_t i = from; i < items.size(); ++i) {
      if (i >= until && items[i].kind == ItemKind::op) break;
      if (items[i].kind == ItemKind::op) edit.remove(items[i]);
      const bool micro_mark =
          items[i].kind == ItemKind::mark && (edit.mark(items[i].arg).kind == MarkKind::micro_begin ||
                                              edit.mark(items[i].arg).kind == MarkKind::micro_end);
      const bool phase_mark =
          items[i].kind == ItemKind::mark && edit.mark(items[i].arg).kind == MarkKind::phase;
      if ((micro_mark && in_marks) || ((phase_mark || items[i].kind == ItemKind::saved) && i < until))
        items[i].kind = ItemKind::memory, items[i].arg = kNever;
    }
    items.erase(std::remove_if(items.begin(), items.end(),
                               [](const Item& i) { return i.kind == ItemKind::memory && i.arg == kNever; }),
                items.end());
  }

  // A running sum, of losses say, over the micro-batches before `from`; else the storage itself.
  static StorageId without_lost_addends(const EditableTrace& edit, const Dataflow& flow, std::uint32_t from,
                                        StorageId s) {
    StorageId sum = s;
    for (;;) {
      const std::uint32_t maker = flow.uses(sum).made_by;
      if (maker == kFromBefore || flow.nodes[maker].item < from) return sum;
      const EditOp& op = edit.op(flow.nodes[maker].op);
      if (base_name(edit.op_name(flow.nodes[maker].op)) != "add" || op.in.size() != 2) return s;
      const auto older = std::find_if(op.in.begin(), op.in.end(), [&](StorageId i) {
        const std::uint32_t made_by = flow.uses(i).made_by;
        const bool kept = made_by == kFromBefore || flow.nodes[made_by].item < from;
        return edit.bytes(i) == edit.bytes(s) &&
               (kept || base_name(edit.op_name(flow.nodes[made_by].op)) == "add");
      });
      if (older == op.in.end()) return s;
      sum = *older;
    }
  }

  // The same result of the same operator, counted from the end of the micro-batch.
  static StorageId counterpart(const EditableTrace& edit, const Dataflow& flow, const MicroBatch& kept,
                               const std::vector<MicroBatch>& batches, std::uint32_t maker, StorageId s) {
    const std::string_view name = edit.op_name(flow.nodes[maker].op);
    const std::vector<StorageId> made = flow.made(edit, maker);
    const auto which = static_cast<std::size_t>(std::find(made.begin(), made.end(), s) - made.begin());
    const auto own = std::find_if(batches.begin(), batches.end(), [&](const MicroBatch& b) {
      return flow.nodes[maker].item >= b.first_item && flow.nodes[maker].item < b.end_item;
    });
    std::size_t from_end = 0;
    for (std::uint32_t node = maker; own != batches.end() && node < flow.nodes.size(); ++node) {
      if (flow.nodes[node].item < own->end_item && edit.op_name(flow.nodes[node].op) == name) ++from_end;
    }
    for (std::uint32_t node = static_cast<std::uint32_t>(flow.nodes.size()); node-- > 0;) {
      const Dataflow::Node& n = flow.nodes[node];
      if (n.item < kept.first_item || n.item >= kept.end_item || edit.op_name(n.op) != name) continue;
      if (--from_end > 0) continue;
      const std::vector<StorageId> candidates = flow.made(edit, node);
      if (which < candidates.size() && edit.bytes(candidates[which]) == edit.bytes(s))
        return candidates[which];
    }
    throw Error(ErrorKind::usage,
                "accumulation: the value of " + std::string(name) +
                    " that is read behind the micro-batches has no counterpart in the last one left");
  }

  AccumulationParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(Accumulation, AccumulationParams,
                              {"accumulation", "another number of micro-batches per optimizer step"},
                              {count_field("count", &AccumulationParams::count, 1, 1024,
                                           "micro-batches of the iteration")});

}  // namespace
}  // namespace swaplab
