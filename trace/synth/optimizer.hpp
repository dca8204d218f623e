// Optimizers as PyTorch's eager code runs them: one loop per parameter, list-wise kernels, or one fused
// kernel.
#pragma once

#include <string>
#include <vector>

#include "trace/synth/config.hpp"
#include "trace/synth/ops.hpp"

namespace swaplab::synth {

// What one optimizer updates: a parameter (or this rank's shard) and where its gradient is found.
struct Updated {
  std::string name;
  Tensor value;
  const Tensor* gradient = nullptr;  // undefined tensor: no gradient, left out this time
};

class Optimizer {
 public:
  Optimizer(const TrainingConfig& config, std::vector<Updated> updated)
      : config_(config), updated_(std::move(updated)), states_(updated_.size()) {}
  // One step in phase O; state is made at its first use.
  void step(Eager& rt);
  // Divides by the loss scale and looks for overflow; one kernel over all gradients.
  void unscale(Eager& rt, const Tensor& scale);
  // torch.nn.utils.clip_grad_norm_, list-wise.
  void clip(Eager& rt);

 private:
  struct State {
    Tensor step, first, second, master;
  };
  bool has_master() const { return config_.master_weights; }
  void prepare(Eager& rt, std::size_t i);
  void adamw_loop(Eager& rt, const std::vector<std::size_t>& live);
  void adamw_foreach(Eager& rt, const std::vector<std::size_t>& live);
  void adamw_fused(Eager& rt, const std::vector<std::size_t>& live);
  void sgd(Eager& rt, const std::vector<std::size_t>& live);
  std::vector<std::size_t> with_gradient() const;
  // The tensor that is stepped, and its gradient in the same format.
  const Tensor& stepped(std::size_t i) const { return has_master() ? states_[i].master : updated_[i].value; }
  Tensor gradient(Eager& rt, std::size_t i);

  const TrainingConfig& config_;
  std::vector<Updated> updated_;
  std::vector<State> states_;
  std::vector<Tensor> momentum_;
};

}  // namespace swaplab::synth
