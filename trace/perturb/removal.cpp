#include "trace/perturb/removal.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "trace/error.hpp"
#include "trace/perturb/shapes.hpp"

namespace swaplab {
namespace {

bool is_list_operator(std::string_view name) {
  const std::string_view base = base_name(name);
  return base.starts_with("_foreach_") || base.starts_with("_fused_");
}

// Adds its arguments: with one of them gone, the result is the other.
bool is_sum(std::string_view base) {
  return base == "add" || base == "index_add" || base == "scatter_add";
}

bool contains(const std::vector<StorageId>& list, StorageId s) {
  return std::find(list.begin(), list.end(), s) != list.end();
}

}  // namespace

Removal::Removal(EditableTrace& edit, std::size_t iteration)
    : edit_(edit), iteration_(iteration), flow_(edit, iteration), killed_(flow_.nodes.size(), 0) {}

StorageId Removal::resolve(StorageId s) const {
  for (auto found = substitutes_.find(index(s)); found != substitutes_.end();
       found = substitutes_.find(index(s))) {
    s = found->second;
  }
  return s;
}

std::uint32_t Removal::run() {
  find_frozen_gradients();
  forward_pass();
  cleanup();
  take_views();
  release_activations();
  return apply();
}

// The gradient of a frozen parameter: of the parameter's size, made in the backward pass, and read by an
// optimizer operator beside the parameter or its state (in a list operator: at the same place of a list).
void Removal::find_frozen_gradients() {
  if (frozen_.empty()) return;
  orphans_ = frozen_;
  for (std::uint32_t node = 0; node < flow_.nodes.size(); ++node) {
    const EditOp& o = op(node);
    if (o.phase != Phase::optimizer) continue;
    const std::size_t length = std::max(o.out.size(), o.written.size());
    const bool lists = is_list_operator(edit_.op_name(flow_.nodes[node].op)) && length > 0;
    for (std::size_t i = 0; i < o.in.size(); ++i) {
      if (!on_orphan(o.in[i])) continue;
      const std::size_t step = lists ? length : 1;
      for (std::size_t j = lists ? i % length : 0; j < o.in.size(); j += step) {
        const StorageId s = o.in[j];
        const Dataflow::Uses& uses = flow_.uses(s);
        if (uses.made_by == kFromBefore || edit_.is_model_state(s) || edit_.bytes(s) != edit_.bytes(o.in[i]))
          continue;
        const Phase made_in = op(uses.made_by).phase;
        if (made_in == Phase::backward || made_in == Phase::recompute) dropped_.insert(index(s));
      }
    }
  }
}

void Removal::forward_pass() {
  bool optimizer = false;
  std::uint32_t micro_batch = 0;  // its first node
  Phase before = Phase::unknown;
  for (std::uint32_t node = 0; node < flow_.nodes.size(); ++node) {
    const Phase phase = std::exchange(before, op(node).phase);
    if (op(node).phase == Phase::backward && phase != Phase::backward && phase != Phase::recompute)
      passed_over_ = unread_parameters(micro_batch, node);
    if (op(node).phase == Phase::forward && phase != Phase::forward && phase != Phase::data)
      micro_batch = node;
    if (op(node).phase == Phase::data && phase != Phase::data) micro_batch = node;
    if (op(node).phase == Phase::optimizer && !optimizer) {
      optimizer = true;
      for (const std::uint32_t p : unread_parameters(0, node)) orphans_.insert(p);
    }
    visit(node);
  }
}

void Removal::visit(std::uint32_t node) {
  const EditOp& o = op(node);
  if (seeds_.count(node) != 0) return kill(node);
  if (o.phase == Phase::backward && !is_view(node) &&
      std::any_of(o.in.begin(), o.in.end(), [&](StorageId s) { return passed_over_.count(index(s)) != 0; })) {
    return kill(node);
  }
  if (o.phase == Phase::optimizer && !orphans_.empty() &&
      !is_list_operator(edit_.op_name(flow_.nodes[node].op)) &&
      std::any_of(o.in.begin(), o.in.end(), [&](StorageId s) { return on_orphan(s); })) {
    const auto made = flow_.made(edit_, node);
    const bool keeps =
        std::any_of(made.begin(), made.end(), [&](StorageId s) { return edit_.used_after(s, iteration_); });
    if (!keeps) return kill(node);
  }
  std::vector<bool> lost_in(o.in.size(), false), lost_out(o.out.size(), false);
  bool any = false;
  for (std::size_t i = 0; i < o.in.size(); ++i) {
    const StorageId s = resolve(o.in[i]);
    const bool unreadable = unreadable_.count(index(o.in[i])) != 0 && !is_view(node);
    const bool orphan = o.phase == Phase::optimizer && on_orphan(o.in[i]);
    lost_in[i] =
        is_dead(s) || unreadable || (orphan && is_list_operator(edit_.op_name(flow_.nodes[node].op)));
    any |= lost_in[i];
  }
  if (any && is_list_operator(edit_.op_name(flow_.nodes[node].op))) {
    // Lists of equal length, one behind the other: an entry goes from all of them.
    const std::size_t length = std::max(o.out.size(), o.written.size());
    if (length > 0 && o.in.size() % length == 0) {
      for (std::size_t i = 0; i < length; ++i) {
        bool entry = false;
        for (std::size_t j = i; j < o.in.size(); j += length) entry |= lost_in[j];
        for (std::size_t j = i; j < o.in.size(); j += length) lost_in[j] = entry;
        if (i < o.out.size()) lost_out[i] = entry;
      }
    }
    if (std::find(lost_in.begin(), lost_in.end(), false) == lost_in.end()) return kill(node);
    return shorten(node, lost_in, lost_out);
  }
  if (any) {
    if (!survives_as_sum(node) && !makes_state_nonetheless(node, lost_in)) kill(node);
    return;
  }
  // Some results are not wanted.
  const auto made = flow_.made(edit_, node);
  std::size_t dropped = 0;
  for (const StorageId s : made) dropped += dropped_.count(index(s));
  if (dropped == 0) return;
  if (dropped == made.size() && o.written.empty()) return kill(node);
  for (std::size_t i = 0; i < o.out.size(); ++i) lost_out[i] = dropped_.count(index(o.out[i])) != 0;
  shorten(node, lost_in, lost_out);
}

bool Removal::survives_as_sum(std::uint32_t node) {
  const EditOp& o = op(node);
  const auto made = flow_.made(edit_, node);
  if (made.size() != 1 || !is_sum(base_name(edit_.op_name(flow_.nodes[node].op)))) return false;
  if (dropped_.count(index(made[0])) != 0) return false;
  for (const StorageId given : o.in) {
    const StorageId s = resolve(given);
    if (is_dead(s) || unreadable_.count(index(given)) != 0 || edit_.bytes(s) != edit_.bytes(made[0]))
      continue;
    kill(node);
    dead_.erase(index(made[0]));
    substitutes_[index(made[0])] = s;
    return true;
  }
  return false;
}

// State that later iterations use, made from a gradient that is gone (SGD's first step): made from the
// parameter itself instead, which has its size.
bool Removal::makes_state_nonetheless(std::uint32_t node, const std::vector<bool>& lost_in) {
  const auto made = flow_.made(edit_, node);
  if (made.size() != 1 || !edit_.used_after(made[0], iteration_)) return false;
  for (const std::uint32_t p : orphans_) {
    const StorageId parameter{p};
    if (edit_.bytes(parameter) != edit_.bytes(made[0]) || !is_state_of(made[0], parameter)) continue;
    EditOp changed = op(node);
    for (std::size_t i = 0; i < changed.in.size(); ++i) {
      if (!lost_in[i]) continue;
      lost_uses_[index(changed.in[i])].push_back(node);
      changed.in[i] = parameter;
    }
    changed_.insert_or_assign(node, std::move(changed));
    return true;
  }
  return false;
}

void Removal::kill(std::uint32_t node) {
  if (killed_[node] != 0) return;
  killed_[node] = 1;
  changed_.erase(node);
  for (const StorageId s : flow_.made(edit_, node)) {
    if (substitutes_.count(index(s)) != 0) continue;
    if (edit_.used_after(s, iteration_)) {
      throw Error(ErrorKind::usage, "operator " + std::to_string(node) + " (" +
                                        std::string(edit_.op_name(flow_.nodes[node].op)) + ") of iteration " +
                                        std::to_string(edit_.iterations[iteration_].number) +
                                        " cannot be left out: a later iteration uses what it makes");
    }
    dead_.insert(index(s));
  }
  if (is_view(node)) return;
  for (const StorageId s : op(node).in) lost_uses_[index(resolve(s))].push_back(node);
}

// Parameters that nodes of the range read, but none that is left.
std::unordered_set<std::uint32_t> Removal::unread_parameters(std::uint32_t first, std::uint32_t end) const {
  std::unordered_set<std::uint32_t> unread;
  for (const auto& [id, uses] : flow_.storages) {
    if (edit_.storage_class(StorageId{id}) != StorageClass::parameter) continue;
    bool lost = false, read = false;
    for (const std::uint32_t node : uses.by) {
      if (node < first || node >= end || is_view(node)) continue;
      (killed_[node] != 0 ? lost : read) = true;
    }
    if (lost && !read) unread.insert(id);
  }
  return unread;
}

// The parameter itself, or optimizer state named after it ("<parameter>.exp_avg").
bool Removal::on_orphan(StorageId s) const {
  if (orphans_.empty()) return false;
  if (orphans_.count(index(s)) != 0) return true;
  if (edit_.storage_class(s) != StorageClass::optimizer_state) return false;
  return std::any_of(orphans_.begin(), orphans_.end(),
                     [&](std::uint32_t p) { return is_state_of(s, StorageId{p}); });
}

bool Removal::is_state_of(StorageId state, StorageId parameter) const {
  const std::string_view name = edit_.storage_name(state), of = edit_.storage_name(parameter);
  return !of.empty() && name.size() > of.size() && name.starts_with(of) && name[of.size()] == '.' &&
         name.find('.', of.size() + 1) == std::string_view::npos;
}

void Removal::cleanup() {
  for (std::uint32_t node = static_cast<std::uint32_t>(flow_.nodes.size()); node-- > 0;) {
    const EditOp& o = op(node);
    if (killed_[node] != 0 || is_view(node) || o.sync != SyncKind::none) continue;
    if (cleanup_phase_ != Phase::unknown && o.phase != cleanup_phase_) continue;
    const auto made = flow_.made(edit_, node);
    std::vector<bool> lost_out(o.out.size(), false);
    std::size_t useless = 0;
    for (const StorageId s : made) {
      const auto lost = lost_uses_.find(index(s));
      if (is_dead(s) || lost == lost_uses_.end() || edit_.used_after(s, iteration_)) continue;
      const Dataflow::Uses& uses = flow_.uses(s);
      const bool used = std::any_of(uses.by.begin(), uses.by.end(), [&](std::uint32_t user) {
        return killed_[user] == 0 && !is_view(user) &&
               std::find(lost->second.begin(), lost->second.end(), user) == lost->second.end();
      });
      // What stands for a lost sum is used by the readers of the sum.
      const bool stands_in = std::any_of(substitutes_.begin(), substitutes_.end(),
                                         [&](const auto& entry) { return resolve(entry.second) == s; });
      if (used || stands_in) continue;
      ++useless;
      for (std::size_t i = 0; i < o.out.size(); ++i) lost_out[i] = lost_out[i] || o.out[i] == s;
    }
    if (useless == 0) continue;
    const bool writes = std::any_of(o.written.begin(), o.written.end(), [&](StorageId s) {
      return std::find(made.begin(), made.end(), s) == made.end();
    });
    if (useless == made.size() && !writes) {
      kill(node);
    } else {
      shorten(node, std::vector<bool>(o.in.size(), false), lost_out);
    }
  }
}

void Removal::shorten(std::uint32_t node, const std::vector<bool>& lost_in,
                      const std::vector<bool>& lost_out) {
  const auto [found, first] = changed_.try_emplace(node, op(node));
  if (!first) return;  // one loss per operator is enough: later ones meet the same lists
  EditOp& o = found->second;
  EditSignature signature = edit_.signature(o.signature);
  SignatureShapes shapes = parse_shapes(signature.detail);
  const bool with_shapes =
      shapes.known && shapes.in.size() == o.in.size() && shapes.out.size() == o.out.size();
  std::int64_t bytes_in = 0, bytes_out = 0;
  for (std::size_t i = o.in.size(); i-- > 0;) {
    if (!lost_in[i]) continue;
    bytes_in += edit_.bytes(o.in[i]).value;
    lost_uses_[index(o.in[i])].push_back(node);
    const StorageId s = o.in[i];
    o.in.erase(o.in.begin() + static_cast<std::ptrdiff_t>(i));
    if (!contains(o.in, s))
      o.written.erase(std::remove(o.written.begin(), o.written.end(), s), o.written.end());
    if (with_shapes) shapes.in.erase(shapes.in.begin() + static_cast<std::ptrdiff_t>(i));
  }
  const auto made = flow_.made(edit_, node);
  for (std::size_t i = o.out.size(); i-- > 0;) {
    if (!lost_out[i]) continue;
    bytes_out += edit_.bytes(o.out[i]).value;
    if (contains(made, o.out[i])) dead_.insert(index(o.out[i]));
    o.out.erase(o.out.begin() + static_cast<std::ptrdiff_t>(i));
    if (with_shapes) shapes.out.erase(shapes.out.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (with_shapes) signature.detail = replace_shapes(signature.detail, shapes);
  if (signature.read.value >= 0) signature.read = std::max(signature.read - Bytes{bytes_in}, Bytes{0});
  if (signature.written.value >= 0)
    signature.written = std::max(signature.written - Bytes{bytes_out}, Bytes{0});
  o.signature = edit_.add_signature(signature);
}

void Removal::take_views() {
  for (std::uint32_t node = 0; node < flow_.nodes.size(); ++node) {
    if (killed_[node] != 0) {
      if (is_view(node)) continue;
      for (std::uint32_t v = node; v-- > 0 && is_view(v) && op(v).phase == op(node).phase;) {
        const bool own = std::all_of(op(v).in.begin(), op(v).in.end(),
                                     [&](StorageId s) { return contains(op(node).in, s); });
        if (own && !op(v).in.empty()) kill(v);
      }
    } else if (is_view(node) && std::any_of(op(node).in.begin(), op(node).in.end(),
                                            [&](StorageId s) { return is_dead(resolve(s)); })) {
      kill(node);
    }
  }
}

void Removal::release_activations() {
  for (const auto& [id, lost] : lost_uses_) {
    const StorageId s{id};
    const Dataflow::Uses& uses = flow_.uses(s);
    // One that is freed in another iteration is held by something else, as a gradient is.
    if (uses.made_by == kFromBefore || is_dead(s) || !uses.freed || edit_.used_after(s, iteration_)) continue;
    std::uint32_t last = uses.made_by;
    for (const std::uint32_t user : uses.by) last = is_view(user) ? last : user;
    if (std::find(lost.begin(), lost.end(), last) != lost.end()) edit_.release(s);
  }
}

std::uint32_t Removal::apply() {
  std::uint32_t count = 0;
  Items& items = edit_.iterations[iteration_].items;
  for (std::uint32_t node = 0; node < flow_.nodes.size(); ++node) {
    const std::uint32_t row = flow_.nodes[node].op;
    if (killed_[node] != 0) {
      edit_.remove(items[flow_.nodes[node].item]);
      ++count;
      continue;
    }
    if (const auto found = changed_.find(node); found != changed_.end()) {
      edit_.op(row) = found->second;
      edit_.touch(row);
    }
    for (auto* ids : {&edit_.op(row).in, &edit_.op(row).out, &edit_.op(row).written}) {
      for (StorageId& s : *ids) s = resolve(s);
    }
  }
  return count;
}

}  // namespace swaplab
