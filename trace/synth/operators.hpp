// The ATen operators that synthetic programs dispatch: schema name and how their work is counted.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trace/synth/tensor.hpp"

namespace swaplab::synth {

// How FLOP and bytes follow from the shapes; the same conventions as scripts/recorder/cost.py.
enum class WorkRule : std::uint8_t {
  none,         // views and bare allocations
  per_element,  // factor x the largest operand
  copy,         // bytes only
  fill,         // writes only
  copy_into,    // reads all but the first operand
  lookup,       // reads the rows that it returns, and the index
  mm,           // first input [m,k], second [k,n]
  addmm,        // second input [m,k], third [k,n]
  bmm,          // first input [b,m,k], second [b,k,n]
  convolution,
  convolution_backward,
  attention,           // 2 products of query and key; attribute 0: causal
  attention_backward,  // 5 products
  per_result,          // list-wise: factor x the elements of the results
  fused_optimizer,     // factor x the elements of the first fifth of the inputs (the parameters)
  collective,          // moves its operands once, no FLOP
};

// X(enumerator, name, rule, factor)
#define SWAPLAB_SYNTH_OPERATORS(X)                                                              \
  X(randint, "aten.randint.default", per_element, 1)                                            \
  X(randint_low, "aten.randint.low", per_element, 1)                                            \
  X(randn, "aten.randn.default", per_element, 1)                                                \
  X(arange, "aten.arange.default", copy, 0)                                                     \
  X(empty, "aten.empty.memory_format", none, 0)                                                 \
  X(empty_like, "aten.empty_like.default", none, 0)                                             \
  X(zeros, "aten.zeros.default", copy, 0)                                                       \
  X(ones, "aten.ones.default", copy, 0)                                                         \
  X(zeros_like, "aten.zeros_like.default", copy, 0)                                             \
  X(ones_like, "aten.ones_like.default", copy, 0)                                               \
  X(lift_fresh, "aten.lift_fresh.default", none, 0)                                             \
  X(zero_, "aten.zero_.default", fill, 0)                                                       \
  X(view, "aten.view.default", none, 0)                                                         \
  X(unsafe_view, "aten._unsafe_view.default", none, 0)                                          \
  X(reshape_alias, "aten._reshape_alias.default", none, 0)                                      \
  X(t, "aten.t.default", none, 0)                                                               \
  X(transpose, "aten.transpose.int", none, 0)                                                   \
  X(permute, "aten.permute.default", none, 0)                                                   \
  X(expand, "aten.expand.default", none, 0)                                                     \
  X(split, "aten.split.Tensor", none, 0)                                                        \
  X(split_with_sizes, "aten.split_with_sizes.default", none, 0)                                 \
  X(unbind, "aten.unbind.int", none, 0)                                                         \
  X(slice, "aten.slice.Tensor", none, 0)                                                        \
  X(select, "aten.select.int", none, 0)                                                         \
  X(unsqueeze, "aten.unsqueeze.default", none, 0)                                               \
  X(squeeze, "aten.squeeze.dim", none, 0)                                                       \
  X(detach, "aten.detach.default", none, 0)                                                     \
  X(clone, "aten.clone.default", copy, 0)                                                       \
  X(to_copy, "aten._to_copy.default", copy, 0)                                                  \
  X(copy_, "aten.copy_.default", copy_into, 0)                                                  \
  X(cat, "aten.cat.default", copy, 0)                                                           \
  X(stack, "aten.stack.default", copy, 0)                                                       \
  X(embedding, "aten.embedding.default", lookup, 0)                                             \
  X(embedding_dense_backward, "aten.embedding_dense_backward.default", per_element, 1)          \
  X(index, "aten.index.Tensor", lookup, 0)                                                      \
  X(index_put, "aten.index_put.default", per_element, 1)                                        \
  X(index_put_, "aten.index_put_.default", per_element, 1)                                      \
  X(index_add, "aten.index_add.default", per_element, 1)                                        \
  X(index_select, "aten.index_select.default", lookup, 0)                                       \
  X(gather, "aten.gather.default", lookup, 0)                                                   \
  X(new_zeros, "aten.new_zeros.default", copy, 0)                                               \
  X(slice_backward, "aten.slice_backward.default", copy, 0)                                     \
  X(select_backward, "aten.select_backward.default", copy, 0)                                   \
  X(scatter, "aten.scatter.src", per_element, 1)                                                \
  X(scatter_value_, "aten.scatter_.value", per_element, 1)                                      \
  X(mm, "aten.mm.default", mm, 0)                                                               \
  X(addmm, "aten.addmm.default", addmm, 0)                                                      \
  X(bmm, "aten.bmm.default", bmm, 0)                                                            \
  X(flash_fwd, "sim.flash_fwd.default", attention, 0)                                           \
  X(flash_bwd, "sim.flash_bwd.default", attention_backward, 0)                                  \
  X(convolution, "aten.convolution.default", convolution, 0)                                    \
  X(convolution_backward, "aten.convolution_backward.default", convolution_backward, 0)         \
  X(add, "aten.add.Tensor", per_element, 1)                                                     \
  X(add_, "aten.add_.Tensor", per_element, 1)                                                   \
  X(sub, "aten.sub.Tensor", per_element, 1)                                                     \
  X(mul, "aten.mul.Tensor", per_element, 1)                                                     \
  X(mul_, "aten.mul_.Tensor", per_element, 1)                                                   \
  X(div, "aten.div.Tensor", per_element, 1)                                                     \
  X(div_, "aten.div_.Tensor", per_element, 1)                                                   \
  X(div_scalar, "aten.div.Scalar", per_element, 1)                                              \
  X(div_scalar_, "aten.div_.Scalar", per_element, 1)                                            \
  X(neg, "aten.neg.default", per_element, 1)                                                    \
  X(abs, "aten.abs.default", per_element, 1)                                                    \
  X(pow, "aten.pow.Tensor_Scalar", per_element, 1)                                              \
  X(sqrt, "aten.sqrt.default", per_element, 1)                                                  \
  X(rsqrt, "aten.rsqrt.default", per_element, 1)                                                \
  X(reciprocal, "aten.reciprocal.default", per_element, 1)                                      \
  X(exp, "aten.exp.default", per_element, 2)                                                    \
  X(log, "aten.log.default", per_element, 2)                                                    \
  X(clamp, "aten.clamp.default", per_element, 1)                                                \
  X(eq_scalar, "aten.eq.Scalar", per_element, 1)                                                \
  X(eq, "aten.eq.Tensor", per_element, 1)                                                       \
  X(ne_scalar, "aten.ne.Scalar", per_element, 1)                                                \
  X(ge_scalar, "aten.ge.Scalar", per_element, 1)                                                \
  X(lt_scalar, "aten.lt.Scalar", per_element, 1)                                                \
  X(bitwise_or, "aten.bitwise_or.Tensor", per_element, 1)                                       \
  X(where, "aten.where.self", per_element, 1)                                                   \
  X(triu, "aten.triu.default", copy, 0)                                                         \
  X(masked_fill, "aten.masked_fill.Scalar", per_element, 1)                                     \
  X(masked_fill_, "aten.masked_fill_.Scalar", per_element, 1)                                   \
  X(bernoulli_, "aten.bernoulli_.float", per_element, 1)                                        \
  X(native_dropout, "aten.native_dropout.default", per_element, 2)                              \
  X(native_dropout_backward, "aten.native_dropout_backward.default", per_element, 1)            \
  X(gelu, "aten.gelu.default", per_element, 8)                                                  \
  X(gelu_backward, "aten.gelu_backward.default", per_element, 12)                               \
  X(silu, "aten.silu.default", per_element, 1)                                                  \
  X(silu_backward, "aten.silu_backward.default", per_element, 1)                                \
  X(tanh, "aten.tanh.default", per_element, 4)                                                  \
  X(tanh_backward, "aten.tanh_backward.default", per_element, 1)                                \
  X(relu_, "aten.relu_.default", per_element, 1)                                                \
  X(threshold_backward, "aten.threshold_backward.default", per_element, 1)                      \
  X(softmax, "aten._softmax.default", per_element, 4)                                           \
  X(softmax_backward, "aten._softmax_backward_data.default", per_element, 4)                    \
  X(scaled_masked_softmax, "megatron._masked_softmax.scaled", per_element, 6)                   \
  X(scaled_masked_softmax_backward, "megatron._masked_softmax_backward.scaled", per_element, 6) \
  X(log_softmax, "aten._log_softmax.default", per_element, 4)                                   \
  X(log_softmax_backward, "aten._log_softmax_backward_data.default", per_element, 4)            \
  X(nll_loss_forward, "aten.nll_loss_forward.default", copy, 0)                                 \
  X(nll_loss_backward, "aten.nll_loss_backward.default", copy, 0)                               \
  X(mse_loss, "aten.mse_loss.default", per_element, 1)                                          \
  X(mse_loss_backward, "aten.mse_loss_backward.default", per_element, 1)                        \
  X(native_layer_norm, "aten.native_layer_norm.default", per_element, 6)                        \
  X(native_layer_norm_backward, "aten.native_layer_norm_backward.default", per_element, 10)     \
  X(native_group_norm, "aten.native_group_norm.default", per_element, 6)                        \
  X(native_group_norm_backward, "aten.native_group_norm_backward.default", per_element, 10)     \
  X(native_batch_norm, "aten.native_batch_norm.default", per_element, 6)                        \
  X(native_batch_norm_backward, "aten.native_batch_norm_backward.default", per_element, 9)      \
  X(sum, "aten.sum.default", per_element, 1)                                                    \
  X(sum_dim, "aten.sum.dim_IntList", per_element, 1)                                            \
  X(mean_dim, "aten.mean.dim", per_element, 1)                                                  \
  X(amax, "aten.amax.default", per_element, 1)                                                  \
  X(max, "aten.max.default", per_element, 1)                                                    \
  X(min, "aten.min.default", per_element, 1)                                                    \
  X(topk, "aten.topk.default", per_element, 1)                                                  \
  X(cumsum, "aten.cumsum.default", per_element, 1)                                              \
  X(nonzero, "aten.nonzero.default", per_element, 1)                                            \
  X(max_pool2d, "aten.max_pool2d_with_indices.default", per_element, 1)                         \
  X(max_pool2d_backward, "aten.max_pool2d_with_indices_backward.default", copy, 0)              \
  X(upsample_nearest2d, "aten.upsample_nearest2d.default", per_element, 1)                      \
  X(upsample_nearest2d_backward, "aten.upsample_nearest2d_backward.default", per_element, 1)    \
  X(sin, "aten.sin.default", per_element, 1)                                                    \
  X(cos, "aten.cos.default", per_element, 1)                                                    \
  X(item, "aten._local_scalar_dense.default", copy, 0)                                          \
  X(norm, "aten.norm.Scalar", per_element, 1)                                                   \
  X(addcmul_, "aten.addcmul_.default", per_element, 3)                                          \
  X(addcdiv_, "aten.addcdiv_.default", per_element, 3)                                          \
  X(foreach_add_scalar_, "aten._foreach_add_.Scalar", per_result, 1)                            \
  X(foreach_add_list_, "aten._foreach_add_.List", per_result, 1)                                \
  X(foreach_add_scalar, "aten._foreach_add.Scalar", per_result, 1)                              \
  X(foreach_add_list, "aten._foreach_add.List", per_result, 1)                                  \
  X(foreach_mul_scalar_, "aten._foreach_mul_.Scalar", per_result, 1)                            \
  X(foreach_mul_tensor_, "aten._foreach_mul_.Tensor", per_result, 1)                            \
  X(foreach_addcmul_, "aten._foreach_addcmul_.Scalar", per_result, 3)                           \
  X(foreach_addcdiv_, "aten._foreach_addcdiv_.ScalarList", per_result, 3)                       \
  X(foreach_sqrt, "aten._foreach_sqrt.default", per_result, 1)                                  \
  X(foreach_div_, "aten._foreach_div_.ScalarList", per_result, 1)                               \
  X(foreach_norm, "aten._foreach_norm.Scalar", per_element, 1)                                  \
  X(foreach_copy_, "aten._foreach_copy_.default", copy_into, 0)                                 \
  X(amp_unscale, "aten._amp_foreach_non_finite_check_and_unscale_.default", per_result, 1)      \
  X(amp_update_scale, "aten._amp_update_scale_.default", per_element, 1)                        \
  X(fused_adamw, "aten._fused_adamw_.default", fused_optimizer, 14)                             \
  X(all_reduce, "c10d.allreduce_.default", collective, 0)                                       \
  X(all_gather, "c10d._allgather_base_.default", collective, 0)                                 \
  X(reduce_scatter, "c10d._reduce_scatter_base_.default", collective, 0)                        \
  X(all_to_all, "c10d.alltoall_base_.default", collective, 0)                                   \
  X(send, "c10d.send.default", collective, 0)                                                   \
  X(recv, "c10d.recv_.default", collective, 0)

enum class Aten : std::uint16_t {
#define SWAPLAB_SYNTH_ENUMERATOR(id, name, rule, factor) id,
  SWAPLAB_SYNTH_OPERATORS(SWAPLAB_SYNTH_ENUMERATOR)
#undef SWAPLAB_SYNTH_ENUMERATOR
};

struct OperatorInfo {
  std::string_view name;
  WorkRule rule;
  std::int64_t factor;
};
const OperatorInfo& operator_info(Aten op);

// An integer or boolean argument; floats (learning rates, probabilities) stay out of signatures.
struct Attr {
  template <class Integer>
  Attr(Integer v) : value(static_cast<std::int64_t>(v)) {}  // NOLINT: arguments are written as they are
  Attr(bool v) : value(v ? 1 : 0), boolean(true) {}         // NOLINT
  std::int64_t value;
  bool boolean = false;
};

struct Work {
  std::int64_t flop = 0;
  Bytes read, written;
};

// Work of one call. `written` are those of `in` that it changes.
Work operator_work(Aten op, std::span<const Tensor* const> in, std::span<const Tensor* const> out,
                   std::span<const Tensor* const> written, std::span<const Attr> attrs);

}  // namespace swaplab::synth
