#include "trace/synth/operators.hpp"

#include <algorithm>

namespace swaplab::synth {
namespace {

constexpr OperatorInfo kOperators[] = {
#define SWAPLAB_SYNTH_ROW(id, name, rule, factor) {name, WorkRule::rule, factor},
    SWAPLAB_SYNTH_OPERATORS(SWAPLAB_SYNTH_ROW)
#undef SWAPLAB_SYNTH_ROW
};

using Tensors = std::span<const Tensor* const>;

Bytes total(Tensors tensors) {
  Bytes sum;
  for (const Tensor* t : tensors) sum += t->bytes();
  return sum;
}

std::int64_t elements(Tensors tensors) {
  std::int64_t sum = 0;
  for (const Tensor* t : tensors) sum += t->numel();
  return sum;
}

// 2 x positions x (weight elements per position); weight is [C_out, C_in/groups, k...].
std::int64_t convolution_flop(const Shape& out, const Shape& weight) {
  return 2 * out.numel() * (weight.numel() / weight[0]);
}

// `products` matrix products of [T,D] x [D,S] per head; a causal mask needs half of each.
std::int64_t attention_flop(const Shape& q, const Shape& k, bool causal, std::int64_t products) {
  const std::int64_t heads = q.numel() / q[q.rank() - 1] / q[q.rank() - 2];
  const std::int64_t flop = 2 * products * heads * q[q.rank() - 2] * k[k.rank() - 2] * q.back();
  return causal ? flop / 2 : flop;
}

std::int64_t backward_products(std::span<const Attr> attrs) {  // output mask is the last three attributes
  return attrs[attrs.size() - 3].value + attrs[attrs.size() - 2].value;
}

}  // namespace

const OperatorInfo& operator_info(Aten op) {
  return kOperators[static_cast<std::size_t>(op)];
}

Work operator_work(Aten op, Tensors in, Tensors out, Tensors written, std::span<const Attr> attrs) {
  const OperatorInfo& info = operator_info(op);
  if (info.rule == WorkRule::none) return {};
  Work work;
  work.read = total(in);
  work.written = total(written.empty() ? out : written);
  if (op == Aten::native_batch_norm) work.written += total(out);  // running statistics and results
  switch (info.rule) {
    case WorkRule::none:
    case WorkRule::copy:
    case WorkRule::collective:
      break;
    case WorkRule::fill:
      work.read = {};
      break;
    case WorkRule::copy_into:
      work.read = total(in.subspan(in.size() / 2));
      break;
    case WorkRule::lookup:
      work.read = work.written + total(in.subspan(1));
      break;
    case WorkRule::mm:
      work.flop = 2 * in[0]->size(0) * in[0]->size(1) * in[1]->size(1);
      break;
    case WorkRule::addmm:
      work.flop = 2 * in[1]->size(0) * in[1]->size(1) * in[2]->size(1);
      break;
    case WorkRule::bmm:
      work.flop = 2 * in[0]->numel() * in[1]->size(2);
      break;
    case WorkRule::convolution:
      work.flop = convolution_flop(out[0]->shape(), in[1]->shape());
      break;
    case WorkRule::convolution_backward:
      work.flop = convolution_flop(in[0]->shape(), in[2]->shape()) * backward_products(attrs) +
                  (attrs.back().value != 0 ? in[0]->numel() : 0);
      break;
    case WorkRule::attention:
      work.flop = attention_flop(in[0]->shape(), in[1]->shape(), attrs[0].value != 0, 2);
      break;
    case WorkRule::attention_backward:
      work.flop = attention_flop(in[1]->shape(), in[2]->shape(), attrs[0].value != 0, 5);
      break;
    case WorkRule::per_result:
      work.flop = info.factor * elements(written.empty() ? out : written);
      break;
    case WorkRule::fused_optimizer:
      work.flop = info.factor * elements(in.first(in.size() / 5));
      break;
    case WorkRule::per_element: {
      std::int64_t most = 0;
      for (const Tensor* t : in) most = std::max(most, t->numel());
      for (const Tensor* t : out) most = std::max(most, t->numel());
      work.flop = info.factor * most;
      break;
    }
  }
  return work;
}

}  // namespace swaplab::synth
