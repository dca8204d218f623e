// Differentiable operators: what PyTorch dispatches for each, and what its autograd node saves.
//
// Every function records its operators in PyTorch's order (as seen below its composite functions) and, where
// an input requires a gradient, a node whose backward does the same. Shapes are checked where the operator
// itself would refuse them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/synth/eager.hpp"

namespace swaplab::synth {

// Views.
Tensor view(Eager& rt, const Tensor& x, const Shape& shape);  // one size may be -1
Tensor reshape(Eager& rt, const Tensor& x, const Shape& shape);
Tensor t(Eager& rt, const Tensor& x);
Tensor transpose(Eager& rt, const Tensor& x, std::int64_t dim0, std::int64_t dim1);
Tensor permute(Eager& rt, const Tensor& x, std::initializer_list<std::int64_t> dims);
Tensor expand(Eager& rt, const Tensor& x, const Shape& shape);
Tensor unsqueeze(Eager& rt, const Tensor& x, std::int64_t dim);
Tensor slice(Eager& rt, const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end);
std::vector<Tensor> split(Eager& rt, const Tensor& x, std::int64_t size, std::int64_t dim);
std::vector<Tensor> split_with_sizes(Eager& rt, const Tensor& x, std::span<const std::int64_t> sizes,
                                     std::int64_t dim);
// Without history; the public call dispatches twice, a saved result once.
Tensor detach(Eager& rt, const Tensor& x);
Tensor detach_saved(Eager& rt, const Tensor& x);

// Copies and fills.
Tensor clone(Eager& rt, const Tensor& x);
Tensor to(Eager& rt, const Tensor& x, DType dtype);  // x itself when it has that format
Tensor cat(Eager& rt, std::span<const Tensor> parts, std::int64_t dim);
Tensor zeros_like(Eager& rt, const Tensor& x);
Tensor zeros(Eager& rt, const Shape& shape, DType dtype);
void copy_(Eager& rt, const Tensor& target, const Tensor& source);

// Elementwise.
Tensor add(Eager& rt, const Tensor& a, const Tensor& b);
void add_(Eager& rt, const Tensor& a, const Tensor& b);    // in place, without history
Tensor add_inplace(Eager& rt, Tensor a, const Tensor& b);  // in place, with history
Tensor mul(Eager& rt, const Tensor& a, const Tensor& b);
Tensor div(Eager& rt, const Tensor& a, const Tensor& b);
Tensor add_scalar(Eager& rt, const Tensor& x);
Tensor mul_scalar(Eager& rt, const Tensor& x);
Tensor div_scalar(Eager& rt, const Tensor& x, std::int64_t divisor);
Tensor neg(Eager& rt, const Tensor& x);
Tensor gelu(Eager& rt, const Tensor& x);
Tensor silu(Eager& rt, const Tensor& x);
Tensor relu_(Eager& rt, Tensor x);
Tensor tanh(Eager& rt, const Tensor& x);
Tensor masked_fill(Eager& rt, const Tensor& x, const Tensor& mask);

enum class DropoutKernel : std::uint8_t {
  native,     // one kernel, boolean mask (GPU)
  composite,  // empty_like, bernoulli_, div_, mul: a mask of the full format (CPU)
};
Tensor dropout(Eager& rt, const Tensor& x, DropoutKernel kernel);

// Reductions.
Tensor softmax(Eager& rt, const Tensor& x);
// Megatron's kernel: scale, causal mask and softmax at once, in the input's format.
Tensor scaled_masked_softmax(Eager& rt, const Tensor& x);
Tensor sum_to(Eager& rt, const Tensor& x, const Shape& shape);
Tensor mean(Eager& rt, const Tensor& x, std::initializer_list<std::int64_t> dims, bool keep);
Tensor sum_last(Eager& rt, const Tensor& x);  // keeps the dimension
Tensor sum(Eager& rt, const Tensor& x);       // of all elements
// logits [N,V], targets [N]; the log-softmax is in float32 when `upcast`.
Tensor cross_entropy(Eager& rt, const Tensor& logits, const Tensor& targets, bool upcast);
Tensor mse_loss(Eager& rt, const Tensor& x, const Tensor& target);

// Products.
Tensor mm(Eager& rt, const Tensor& a, const Tensor& b);
Tensor addmm(Eager& rt, const Tensor& bias, const Tensor& a, const Tensor& b);
Tensor bmm(Eager& rt, const Tensor& a, const Tensor& b);
Tensor matmul(Eager& rt, const Tensor& a, const Tensor& b);  // 4-D batches, or N-D by 2-D
// weight [out,in]; `bias` may be undefined. Casts under autocast.
Tensor linear(Eager& rt, const Tensor& x, const Tensor& weight, const Tensor& bias);
// q, k, v [batch, heads, tokens, head size]; keeps q, k, v, the output and one float32 per row.
Tensor flash_attention(Eager& rt, const Tensor& q, const Tensor& k, const Tensor& v, bool causal);

// Normalisation.
Tensor layer_norm(Eager& rt, const Tensor& x, const Tensor& weight, const Tensor& bias);
Tensor rms_norm(Eager& rt, const Tensor& x, const Tensor& weight);  // composite, in float32
Tensor group_norm(Eager& rt, const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t groups);
struct BatchNormState {
  Tensor running_mean, running_var, batches;
};
Tensor batch_norm(Eager& rt, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const BatchNormState& state);

// Lookups.
Tensor embedding(Eager& rt, const Tensor& weight, const Tensor& indices);
Tensor index_rows(Eager& rt, const Tensor& x, const Tensor& indices);  // x[indices] of a matrix
Tensor index_add(Eager& rt, const Tensor& x, const Tensor& indices, const Tensor& source);

// Images [N,C,H,W].
Tensor conv2d(Eager& rt, const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t stride,
              std::int64_t padding);
Tensor max_pool2d(Eager& rt, const Tensor& x, std::int64_t kernel, std::int64_t stride, std::int64_t padding);
Tensor upsample_nearest2d(Eager& rt, const Tensor& x, std::int64_t factor);

// Reads a scalar: the host waits.
void item(Eager& rt, const Tensor& x);

// Reentrant activation checkpointing: runs `function` without history, keeps only its inputs, and runs it
// again in phase R when the gradient arrives. One result.
using Segment = std::function<Tensor(const std::vector<Tensor>&)>;
Tensor checkpoint(Eager& rt, Segment function, const std::vector<Tensor>& inputs);

}  // namespace swaplab::synth
