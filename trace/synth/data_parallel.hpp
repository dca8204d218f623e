// Where gradients go: left with the parameters, added into main gradients, reduced over data-parallel ranks,
// or sharded with optimizer state and parameters (ZeRO stages 0 to 3).
#pragma once

#include <memory>
#include <vector>

#include "trace/synth/model.hpp"
#include "trace/synth/optimizer.hpp"

namespace swaplab::synth {

// Flattens the parameters of `model` (built once without recording, for their shapes) into the units that one
// collective reduces or gathers: buckets from the last parameter back, or one per block at ZeRO stage 3.
// Empty where parameters stay apart.
ParameterPlan plan_parameters(const WorkloadConfig& config, const std::vector<Parameter>& parameters,
                              const std::vector<Model::Range>& blocks);

class DataParallel {
 public:
  // `c` was given the plan; installs itself in the model and on the parameters.
  DataParallel(Context& c, Model& model, const ParameterPlan& plan);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // What the optimizer steps: whole parameters, or this rank's shards.
  std::vector<Updated> updated();
  // Begin of an iteration: gradients are dropped, or main gradients set to zero.
  void zero_gradients();
  // Before a forward pass: parameters that belong to no block are gathered.
  void begin_forward();
  // The coming backward pass is the last of the iteration, after which gradients are reduced.
  void set_last_micro_batch(bool last) { last_micro_batch_ = last; }
  // After the step: parameters that live whole are gathered from the shards.
  void finish_step();
  // Tags the gradients that exist; done after each iteration, as a recorder does.
  void tag_gradients();

 private:
  struct Unit;
  void install_buffer(Unit& unit);
  void install_shards(Unit& unit);
  void gather(Unit& unit);
  void give_back(Unit& unit);
  void use_views(Unit& unit);
  void gradient_arrived(Unit& unit, std::size_t index);
  void flat_gradient_arrived(Unit& unit);
  void store_shard(Unit& unit, Tensor shard);

  Context& c_;
  const ParallelConfig& parallel_;
  bool last_micro_batch_ = true;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<Unit*> block_unit_;
  Unit* root_ = nullptr;
};

}  // namespace swaplab::synth
