#include "trace/perturb/dataflow.hpp"

#include <algorithm>

namespace swaplab {
namespace {

bool contains(const std::vector<StorageId>& list, StorageId s) {
  return std::find(list.begin(), list.end(), s) != list.end();
}

}  // namespace

std::string_view base_name(std::string_view name) {
  const auto dot = name.find('.');
  if (dot != std::string_view::npos) name.remove_prefix(dot + 1);
  return name.substr(0, name.find('.'));
}

Dataflow::Dataflow(const EditableTrace& edit, std::size_t iteration) {
  const Items& items = edit.iterations[iteration].items;
  const auto note = [&](StorageId s, std::uint32_t node, bool makes) {
    const auto [found, first] = storages.try_emplace(index(s));
    Uses& uses = found->second;
    if (first && makes) {
      uses.made_by = node;
    } else if (uses.made_by != node && (uses.by.empty() || uses.by.back() != node)) {
      uses.by.push_back(node);
    }
  };
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    if (items[i].kind == ItemKind::free) storages[items[i].arg].freed = true;
    if (items[i].kind != ItemKind::op) continue;
    const auto node = static_cast<std::uint32_t>(nodes.size());
    nodes.push_back({i, items[i].arg});
    const EditOp& op = edit.op(items[i].arg);
    for (const StorageId s : op.in) note(s, node, false);
    for (const StorageId s : op.out) note(s, node, !edit.is_external(s));
  }
}

const Dataflow::Uses& Dataflow::uses(StorageId s) const {
  static const Uses none;
  const auto found = storages.find(index(s));
  return found == storages.end() ? none : found->second;
}

std::vector<StorageId> Dataflow::made(const EditableTrace& edit, std::uint32_t node) const {
  std::vector<StorageId> list;
  for (const StorageId s : edit.op(nodes[node].op).out) {
    if (uses(s).made_by == node && !contains(list, s)) list.push_back(s);
  }
  return list;
}

bool is_pure(const EditableTrace& edit, const Dataflow& flow, std::uint32_t node) {
  const EditOp& op = edit.op(flow.nodes[node].op);
  return op.written.empty() && op.sync == SyncKind::none && !edit.is_view(op.signature) && !op.out.empty() &&
         flow.made(edit, node).size() > 0;
}

bool is_removable(const EditableTrace& edit, const Dataflow& flow, std::size_t iteration, std::uint32_t node,
                  std::vector<std::pair<StorageId, StorageId>>& replaced) {
  replaced.clear();
  const EditOp& op = edit.op(flow.nodes[node].op);
  if (op.sync != SyncKind::none || !op.written.empty()) return false;
  for (const StorageId s : flow.made(edit, node)) {
    if (edit.used_after(s, iteration)) return false;
    const Dataflow::Uses& uses = flow.uses(s);
    if (!uses.freed) return false;  // it outlives the iteration: a gradient, say
    if (uses.by.empty()) continue;
    // In-place writes to the result would become writes to the input.
    for (const std::uint32_t user : uses.by) {
      if (contains(edit.op(flow.nodes[user].op).written, s)) return false;
    }
    const auto same = std::find_if(op.in.begin(), op.in.end(), [&](StorageId i) {
      return edit.bytes(i) == edit.bytes(s) && !edit.is_model_state(i);
    });
    if (same == op.in.end()) return false;
    replaced.emplace_back(s, *same);
  }
  return true;
}

void replace_uses(EditableTrace& edit, Dataflow& flow, StorageId from, StorageId to) {
  const std::vector<std::uint32_t> moved = std::move(flow.storages[index(from)].by);
  flow.storages[index(from)].by.clear();
  for (const std::uint32_t node : moved) {
    EditOp& op = edit.op(flow.nodes[node].op);
    for (auto* ids : {&op.in, &op.out, &op.written}) std::replace(ids->begin(), ids->end(), from, to);
  }
  std::vector<std::uint32_t>& by = flow.storages[index(to)].by;
  by.insert(by.end(), moved.begin(), moved.end());
  std::sort(by.begin(), by.end());
  by.erase(std::unique(by.begin(), by.end()), by.end());
}

std::vector<MicroBatch> micro_batches(const EditableTrace& edit, std::size_t iteration) {
  const Items& items = edit.iterations[iteration].items;
  std::vector<MicroBatch> list;
  bool open = false, backward = false;
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    if (items[i].kind != ItemKind::op) continue;
    const Phase phase = edit.op(items[i].arg).phase;
    const bool starts = phase == Phase::data || phase == Phase::forward;
    const bool continues = phase == Phase::backward || phase == Phase::recompute;
    if (starts && (!open || backward)) {
      list.push_back({i, i + 1});
      open = true;
      backward = false;
    }
    if (open && (starts || continues)) list.back().end_item = i + 1;
    if (open && continues) backward = true;
    if (!starts && !continues) open = false;
  }
  return list;
}

}  // namespace swaplab
