#include "trace/synth/autograd.hpp"

#include <algorithm>
#include <limits>
#include <queue>

#include "trace/synth/eager.hpp"
#include "trace/synth/ops.hpp"

namespace swaplab::synth {
namespace {

struct Later {
  bool operator()(const Ref<Node>& a, const Ref<Node>& b) const { return a->sequence < b->sequence; }
};

// Fits a gradient to what the destination's forward result was: sums broadcast dimensions, converts.
Tensor fit(Eager& rt, Tensor gradient, const Node::Output& wanted) {
  if (!(gradient.shape() == wanted.shape)) gradient = sum_to(rt, gradient, wanted.shape);
  if (gradient.dtype() != wanted.dtype) gradient = to(rt, gradient, wanted.dtype);
  return gradient;
}

struct Suspended {
  Ref<Node> node;
  std::uint64_t run;
  std::uint32_t waiting;
  std::vector<Tensor> buffer;
};

// Counts how many gradients each reachable node waits for.
void enter(Node* root, std::uint64_t run, std::vector<Suspended>& suspended) {
  const auto claim = [&](Node* node) {
    if (node->run != 0)
      suspended.push_back({Ref<Node>(node), node->run, node->waiting, std::move(node->buffer)});
    node->run = run;
    node->waiting = 0;
    node->buffer.clear();
    node->buffer.resize(node->outputs.size());
  };
  std::vector<Node*> todo{root};
  claim(root);
  while (!todo.empty()) {
    Node* node = todo.back();
    todo.pop_back();
    for (const Edge& edge : node->next) {
      if (!edge.node) continue;
      if (edge.node->run != run) {
        claim(edge.node.get());
        todo.push_back(edge.node.get());
      }
      ++edge.node->waiting;
    }
  }
}

}  // namespace

void Node::release() {
  owner.bury(this);
}

AccumulateGrad::AccumulateGrad(Eager& program, TensorImpl& leaf)
    : Node(program, std::numeric_limits<std::uint64_t>::max()), leaf_(&leaf) {
  outputs.push_back({leaf.shape, leaf.dtype});
}

void AccumulateGrad::apply(Backward& b) {
  Tensor gradient = std::move(b.grad[0]);
  if (!gradient.defined()) return;
  Tensor& total = leaf_->grad;
  if (total.defined()) {
    add_(b.rt, total, gradient);
  } else if (gradient.use_count() == 1 && gradient.strides() == leaf_->strides) {
    total = detach(b.rt, gradient);
  } else {
    total = clone(b.rt, gradient);
  }
  gradient.reset();
  if (after) after(b.rt);
}

AccumulateGrad& accumulator_of(Eager& rt, const Tensor& leaf) {
  TensorImpl& impl = *leaf.impl();
  if (!impl.accumulator) impl.accumulator = Ref<Node>(new AccumulateGrad(rt, impl));
  return static_cast<AccumulateGrad&>(*impl.accumulator);
}

Edge gradient_edge(Eager& rt, const Tensor& tensor) {
  if (!tensor.requires_grad()) return {};
  if (tensor.impl()->grad_fn) return {tensor.impl()->grad_fn, tensor.impl()->output_nr};
  accumulator_of(rt, tensor);
  return {tensor.impl()->accumulator, 0};
}

std::uint64_t take_sequence(Eager& rt) {
  return rt.next_sequence();
}

void connect(Eager& rt, Node& node, std::initializer_list<const Tensor*> inputs,
             std::span<Tensor* const> outputs) {
  node.next.reserve(inputs.size());
  for (const Tensor* input : inputs) node.next.push_back(gradient_edge(rt, *input));
  node.outputs.reserve(outputs.size());
  std::uint32_t number = 0;
  for (Tensor* output : outputs) {
    node.outputs.push_back({output->shape(), output->dtype()});
    output->impl()->grad_fn = Ref<Node>(&node);
    output->impl()->output_nr = number++;
    output->impl()->requires_grad = true;
  }
}

void run_backward(Eager& rt, std::uint64_t run, Edge root, Tensor gradient) {
  std::vector<Suspended> suspended;
  enter(root.node.get(), run, suspended);
  root.node->buffer[root.input] = std::move(gradient);
  std::priority_queue<Ref<Node>, std::vector<Ref<Node>>, Later> ready;
  ready.push(std::move(root.node));
  while (!ready.empty()) {
    const Ref<Node> node = ready.top();
    ready.pop();
    Backward b{rt, *node, std::move(node->buffer), {}};
    b.out.resize(node->next.size());
    node->run = 0;
    node->buffer.clear();
    // A node that no gradient reached passes none on.
    if (std::any_of(b.grad.begin(), b.grad.end(), [](const Tensor& g) { return g.defined(); }))
      node->apply(b);
    b.grad.clear();
    for (std::size_t i = 0; i < node->next.size(); ++i) {
      const Edge& edge = node->next[i];
      if (edge.node && b.out[i].defined())
        b.out[i] = fit(rt, std::move(b.out[i]), edge.node->outputs[edge.input]);
    }
    node->saved.clear();
    for (std::size_t i = 0; i < node->next.size(); ++i) {
      const Edge& edge = node->next[i];
      if (!edge.node) continue;
      Tensor& slot = edge.node->buffer[edge.input];
      if (b.out[i].defined()) {
        if (slot.defined()) {
          Tensor sum = add(rt, slot, b.out[i]);
          slot = std::move(sum);
          b.out[i].reset();
        } else {
          slot = std::move(b.out[i]);
        }
      }
      if (--edge.node->waiting == 0) ready.push(edge.node);
    }
  }
  for (Suspended& s : suspended) {
    s.node->run = s.run;
    s.node->waiting = s.waiting;
    s.node->buffer = std::move(s.buffer);
  }
}

}  // namespace swaplab::synth
