// The autograd graph: nodes with saved tensors, edges to what needs a gradient, and the engine's order.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "trace/synth/tensor.hpp"

namespace swaplab::synth {

class Node;

struct Edge {
  Ref<Node> node;  // empty: nobody wants this gradient
  std::uint32_t input = 0;
};

// What one node's backward function sees.
struct Backward {
  Eager& rt;
  Node& node;
  std::vector<Tensor> grad;  // by output of the forward operator; undefined where nothing arrived
  std::vector<Tensor> out;   // by input of the forward operator, to be filled in

  bool needs(std::size_t input) const;
  const Tensor& saved(std::size_t i) const;
};

class Node : public RefCounted {
 public:
  Node(Eager& program, std::uint64_t sequence_number) : owner(program), sequence(sequence_number) {}
  ~Node() override = default;
  // Fills b.out; the engine fits each gradient to its destination (broadcast sums, number format).
  virtual void apply(Backward& b) = 0;

  struct Output {
    Shape shape;
    DType dtype;
  };
  Eager& owner;
  const std::uint64_t sequence;  // later nodes run first
  std::vector<Edge> next;
  std::vector<Tensor> saved;
  std::vector<Output> outputs;

  // The engine's notes; a nested pass (recomputation) saves and restores those of the outer one.
  std::uint64_t run = 0, visit = 0;
  std::uint32_t waiting = 0;
  std::vector<Tensor> buffer;

 private:
  void release() override;
};

inline bool Backward::needs(std::size_t input) const {
  return static_cast<bool>(node.next[input].node);
}
inline const Tensor& Backward::saved(std::size_t i) const {
  return node.saved[i];
}

// Adds a gradient into a leaf: the first one is taken over, later ones are added in place.
class AccumulateGrad final : public Node {
 public:
  AccumulateGrad(Eager& program, TensorImpl& leaf);
  void apply(Backward& b) override;
  // Called after each accumulation: gradient buckets, sharding, main gradients.
  std::function<void(Eager&)> after;

 private:
  TensorImpl* leaf_;
};

// The leaf's accumulation node, made at first use.
AccumulateGrad& accumulator_of(Eager& rt, const Tensor& leaf);

// Where the gradient of `tensor` goes.
Edge gradient_edge(Eager& rt, const Tensor& tensor);

template <class Function>
class FunctionNode final : public Node {
 public:
  FunctionNode(Eager& program, std::uint64_t sequence_number, Function function)
      : Node(program, sequence_number), function_(std::move(function)) {}
  void apply(Backward& b) override { function_(b); }

 private:
  Function function_;
};

void connect(Eager& rt, Node& node, std::initializer_list<const Tensor*> inputs,
             std::span<Tensor* const> outputs);
std::uint64_t take_sequence(Eager& rt);

// Makes `outputs` results of a differentiable function of `inputs` (only to be called where it records).
template <class Function>
void record(Eager& rt, std::span<Tensor* const> outputs, std::initializer_list<const Tensor*> inputs,
            std::vector<Tensor>&& saved, Function function) {
  auto* node = new FunctionNode<Function>(rt, take_sequence(rt), std::move(function));
  const Ref<Node> keep(node);
  node->saved = std::move(saved);
  connect(rt, *node, inputs, outputs);
}
template <class Function>
void record(Eager& rt, std::initializer_list<Tensor*> outputs, std::initializer_list<const Tensor*> inputs,
            std::vector<Tensor>&& saved, Function function) {
  record(rt, std::span<Tensor* const>(outputs.begin(), outputs.size()), inputs, std::move(saved),
         std::move(function));
}

// One pass of the engine. `run` must be unique.
void run_backward(Eager& rt, std::uint64_t run, Edge root, Tensor gradient);

}  // namespace swaplab::synth
