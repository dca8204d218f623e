// Takes operators out of an iteration together with all that depends on them, forward and backward.
//
// 1. An operator that reads a value which is gone goes too. Exceptions: a sum of a lost and a living value
//    is the living one; a list operator (foreach, fused) loses the arguments.
// 2. A backward operator on a parameter that the forward pass of its micro-batch has passed over goes.
//    In the optimizer, operators on a parameter that no operator reads any more go, as PyTorch passes over
//    parameters without gradient. What makes state that a later iteration uses stays.
// 3. An operator whose results all lost their last use goes; a result of several is dropped singly.
// 4. Views directly before an operator that goes, on its arguments only, go with it.
// Activations that lost their last use are freed behind the last one that remains.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trace/perturb/dataflow.hpp"

namespace swaplab {

class Removal {
 public:
  Removal(EditableTrace& edit, std::size_t iteration);

  const Dataflow& flow() const { return flow_; }

  // ---- what to take out; any number, then run() once
  void remove(std::uint32_t node) { seeds_.insert(node); }
  // The value is not made any more; where its maker has other results, only this one is dropped.
  void drop_value(StorageId s) { dropped_.insert(index(s)); }
  // Whatever reads the storage goes, its maker and views of it stay.
  void drop_readers(StorageId s) { unreadable_.insert(index(s)); }
  // Optimizer operators on this parameter and its state go, and its gradient with them.
  void freeze(StorageId parameter) { frozen_.insert(index(parameter)); }
  // Operators that remain use `to` in the place of `from`, which is not made any more.
  void substitute(StorageId from, StorageId to) { substitutes_[index(from)] = to; }
  // Rule 3 only for operators of this phase.
  void restrict_cleanup(Phase phase) { cleanup_phase_ = phase; }

  // Logs into the open change. Returns the number of operators taken out.
  // Throws Error(usage) when a later iteration needs what would be gone.
  std::uint32_t run();

 private:
  struct ListLoss {  // arguments that a list operator loses
    std::vector<bool> in, out;
  };

  const EditOp& op(std::uint32_t node) const { return edit_.op(flow_.nodes[node].op); }
  bool is_view(std::uint32_t node) const { return edit_.is_view(op(node).signature); }
  bool is_dead(StorageId s) const { return dead_.count(index(s)) != 0; }
  StorageId resolve(StorageId s) const;
  void find_frozen_gradients();
  void forward_pass();
  void visit(std::uint32_t node);
  bool survives_as_sum(std::uint32_t node);
  bool makes_state_nonetheless(std::uint32_t node, const std::vector<bool>& lost_in);
  void kill(std::uint32_t node);
  std::unordered_set<std::uint32_t> unread_parameters(std::uint32_t first, std::uint32_t end) const;
  bool on_orphan(StorageId s) const;
  bool is_state_of(StorageId state, StorageId parameter) const;
  void cleanup();
  void shorten(std::uint32_t node, const std::vector<bool>& lost_in, const std::vector<bool>& lost_out);
  void take_views();
  void release_activations();
  std::uint32_t apply();

  EditableTrace& edit_;
  const std::size_t iteration_;
  const Dataflow flow_;
  std::unordered_set<std::uint32_t> seeds_, dropped_, unreadable_, frozen_, orphans_;
  std::unordered_set<std::uint32_t> passed_over_;  // parameters of this micro-batch's backward pass
  std::unordered_map<std::uint32_t, StorageId> substitutes_;
  Phase cleanup_phase_ = Phase::unknown;               // all
  std::unordered_set<std::uint32_t> dead_;             // storages that are not made any more
  std::vector<std::uint8_t> killed_;                   // nodes
  std::unordered_map<std::uint32_t, EditOp> changed_;  // nodes with fewer arguments
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> lost_uses_;  // storage -> nodes
};

}  // namespace swaplab
