#include "trace/synth/module.hpp"

namespace swaplab::synth {

Tensor Context::parameter(const std::string& name, const Shape& shape) {
  if (plan != nullptr && plan->flatten_values) {
    const std::size_t unit = plan->unit_of[parameters.size()];
    flats.resize(plan->unit_numel.size());
    Tensor& flat = flats[unit];
    if (!flat.defined()) {
      flat =
          rt.external({plan->unit_numel[unit]}, parameter_format(), false, plan->whole_storage_is_temporary);
      rt.tag(flat, StorageClass::parameter, "unit." + std::to_string(unit));
    }
    Tensor value = rt.alias(flat, shape, contiguous_strides(shape));
    value.set_requires_grad(true);
    parameters.push_back({name, value});
    return value;
  }
  Tensor value = rt.external(shape, parameter_format());
  value.set_requires_grad(true);
  rt.tag(value, StorageClass::parameter, name);
  parameters.push_back({name, value});
  return value;
}

Tensor Context::buffer(const std::string& name, const Shape& shape, DType dtype) {
  Tensor value = rt.external(shape, dtype);
  rt.tag(value, StorageClass::buffer, name);
  buffers.push_back({name, value});
  return value;
}

Linear::Linear(Context& c, const std::string& name, std::int64_t in, std::int64_t out, bool bias,
               Partition partition)
    : partition_(c.config.parallel.tensor > 1 ? partition : Partition::none) {
  const std::int64_t ranks = c.config.parallel.tensor;
  if (partition_ == Partition::column) out /= ranks;
  if (partition_ == Partition::row) in /= ranks;
  weight_ = c.parameter(name + ".weight", {out, in});
  if (bias) bias_ = c.parameter(name + ".bias", {out});
}

Tensor Linear::forward(Context& c, const Tensor& x) const {
  const std::int64_t ranks = c.config.parallel.tensor;
  if (partition_ == Partition::none) return linear(c.rt, x, weight_, bias_);
  if (partition_ == Partition::column) {
    if (c.config.parallel.sequence) return gathered_linear(c.rt, x, weight_, bias_, ranks);
    const Tensor whole = copy_to_ranks(c.rt, x, ranks);
    return linear(c.rt, whole, weight_, bias_);
  }
  const Tensor part = linear(c.rt, x, weight_, {});
  const Tensor sum = c.config.parallel.sequence ? scatter_sum_sequence(c.rt, part, ranks)
                                                : sum_over_ranks(c.rt, part, ranks);
  if (!bias_.defined()) return sum;
  const Tensor bias = c.rt.autocast_copy(bias_);
  return add(c.rt, sum, bias);
}

Normalization::Normalization(Context& c, const std::string& name, std::int64_t width)
    : kind_(c.config.model.norm) {
  weight_ = c.parameter(name + ".weight", {width});
  if (kind_ == Norm::layer) bias_ = c.parameter(name + ".bias", {width});
}

Tensor Normalization::forward(Context& c, const Tensor& x) const {
  return kind_ == Norm::layer ? layer_norm(c.rt, x, weight_, bias_) : rms_norm(c.rt, x, weight_);
}

Tensor dropout(Context& c, const Tensor& x) {
  if (!c.config.model.dropout || !c.training) return x;
  return dropout(c.rt, x,
                 c.config.model.dropout_kernel == DropoutStyle::native ? DropoutKernel::native
                                                                       : DropoutKernel::composite);
}

Attention::Attention(Context& c, const std::string& name, bool causal) : causal_(causal) {
  const ModelConfig& m = c.config.model;
  const std::int64_t ranks = c.config.parallel.tensor;
  const std::int64_t kv = m.kv_heads == 0 ? m.heads : m.kv_heads;
  head_size_ = m.hidden / m.heads;
  heads_ = m.heads / ranks;
  kv_heads_ = kv / ranks;
  // Llama's code has three layers; a tensor-parallel one is Megatron's single layer.
  fused_projection_ = (kv == m.heads && m.positions != Positions::rotary) || ranks > 1;
  const std::int64_t kv_width = kv * head_size_;
  if (fused_projection_) {
    qkv_ = Linear(c, name + ".qkv", m.hidden, m.hidden + 2 * kv_width, m.bias, Partition::column);
  } else {
    q_ = Linear(c, name + ".q", m.hidden, m.hidden, m.bias);
    k_ = Linear(c, name + ".k", m.hidden, kv_width, m.bias);
    v_ = Linear(c, name + ".v", m.hidden, kv_width, m.bias);
  }
  proj_ = Linear(c, name + ".proj", m.hidden, m.hidden, m.bias, Partition::row);
  if (causal_ && m.mask == MaskSource::buffer && m.attention == AttentionKernel::explicit_scores)
    mask_ = c.buffer(name + ".mask", {1, 1, m.max_positions, m.max_positions}, DType::float32);
}

Tensor Attention::scores(Context& c, const Tensor& q, const Tensor& k, const Tensor& v) const {
  Eager& rt = c.rt;
  Tensor s;
  {
    const Tensor k_t = transpose(rt, k, -2, -1);
    const Tensor product = matmul(rt, q, k_t);
    if (c.config.model.attention == AttentionKernel::fused_softmax) {
      Tensor weights = scaled_masked_softmax(rt, product);
      weights = dropout(c, weights);
      return matmul(rt, weights, v);
    }
    s = mul_scalar(rt, product);
  }
  const std::int64_t tokens = q.size(2);
  Tensor hidden;
  Tensor masked;
  if (!causal_) {
    masked = s;
  } else if (mask_.defined()) {
    Tensor part = slice(rt, mask_, 0, 0, INT64_MAX);
    part = slice(rt, part, 1, 0, INT64_MAX);
    if (tokens < mask_.size(2)) {  // shorter sequences cut the mask, full ones elide that
      part = slice(rt, part, 2, 0, tokens);
      part = slice(rt, part, 3, 0, tokens);
    }
    const Tensor zero = rt.make(part.shape(), DType::boolean);
    rt.emit(Aten::eq_scalar, {&part}, {&zero}, {0});
    masked = masked_fill(rt, s, zero);
    s.reset();
  } else {
    const Tensor ones = rt.make({tokens, tokens}, DType::boolean);
    rt.emit(Aten::ones, {}, {&ones}, {tokens, tokens, false});
    hidden = rt.make({tokens, tokens}, DType::boolean);
    rt.emit(Aten::triu, {&ones}, {&hidden}, {1});
    masked = masked_fill(rt, s, hidden);
  }
  Tensor a = softmax(rt, masked);
  masked.reset();
  a = dropout(c, a);
  a = to(rt, a, v.dtype());
  return matmul(rt, a, v);
}

Tensor Attention::core(Context& c, const Tensor& q, const Tensor& k, const Tensor& v) const {
  if (c.config.model.attention == AttentionKernel::fused) return flash_attention(c.rt, q, k, v, causal_);
  if (kv_heads_ == heads_) return scores(c, q, k, v);
  const auto repeat = [&](const Tensor& x) {  // one copy per group of query heads
    const Tensor wide = unsqueeze(c.rt, x, 2);
    const Tensor many = expand(c.rt, wide, {x.size(0), kv_heads_, heads_ / kv_heads_, x.size(2), x.size(3)});
    return reshape(c.rt, many, {x.size(0), heads_, x.size(2), x.size(3)});
  };
  const Tensor k_all = repeat(k), v_all = repeat(v);
  return scores(c, q, k_all, v_all);
}

// Rotary positions as Llama's published code applies them: x * cos + rotate_half(x) * sin.
Tensor Attention::rotate(Context& c, const Tensor& x) const {
  Eager& rt = c.rt;
  const Tensor first = mul(rt, x, c.cosine);
  Tensor turned;
  {
    const std::int64_t half = head_size_ / 2;
    const Tensor low = slice(rt, x, -1, 0, half);
    const Tensor high = slice(rt, x, -1, half, INT64_MAX);
    const Tensor minus = neg(rt, high);
    const Tensor parts[] = {minus, low};
    turned = cat(rt, parts, -1);
  }
  const Tensor second = mul(rt, turned, c.sine);
  return add(rt, first, second);
}

Tensor Attention::forward(Context& c, Tensor given) const {
  Eager& rt = c.rt;
  const Tensor x = std::move(given);
  const auto heads_of = [&](const Tensor& y, std::int64_t heads) {
    const Tensor parts = view(rt, y, {y.size(0), y.size(1), heads, head_size_});
    return transpose(rt, parts, 1, 2);
  };
  Tensor q, k, v;
  if (fused_projection_) {
    const Tensor flat = qkv_.forward(c, x);
    const std::int64_t sizes[] = {heads_ * head_size_, kv_heads_ * head_size_, kv_heads_ * head_size_};
    const std::vector<Tensor> parts = split_with_sizes(rt, flat, sizes, 2);
    q = heads_of(parts[0], heads_);
    k = heads_of(parts[1], kv_heads_);
    v = heads_of(parts[2], kv_heads_);
  } else {
    const Tensor q_flat = q_.forward(c, x), k_flat = k_.forward(c, x), v_flat = v_.forward(c, x);
    q = heads_of(q_flat, heads_);
    k = heads_of(k_flat, kv_heads_);
    v = heads_of(v_flat, kv_heads_);
  }
  if (c.config.model.positions == Positions::rotary) {
    q = rotate(c, q);
    k = rotate(c, k);
  }
  Tensor y;
  if (c.config.training.recompute == Recompute::selective && c.training) {
    y = checkpoint(rt, [this, &c](const std::vector<Tensor>& in) { return core(c, in[0], in[1], in[2]); },
                   {q, k, v});
  } else {
    y = core(c, q, k, v);
  }
  const Tensor merged = transpose(rt, y, 1, 2);
  const Tensor flat = reshape(rt, merged, {x.size(0), q.size(2), heads_ * head_size_});
  return proj_.forward(c, flat);
}

Mlp::Mlp(Context& c, const std::string& name, std::int64_t width, std::int64_t hidden, Partition up,
         Partition down)
    : activation_(c.config.model.activation) {
  const bool bias = c.config.model.bias, gated = activation_ == Activation::swiglu;
  fused_gate_ = gated && up == Partition::column && c.config.parallel.tensor > 1;
  up_ = Linear(c, name + ".up", width, fused_gate_ ? 2 * hidden : hidden, bias, up);
  if (gated && !fused_gate_) gate_ = Linear(c, name + ".gate", width, hidden, bias, up);
  down_ = Linear(c, name + ".down", hidden, width, bias, down);
}

Tensor Mlp::forward(Context& c, Tensor given) const {
  const Tensor x = std::move(given);
  Tensor y;
  if (activation_ == Activation::gelu) {
    y = up_.forward(c, x);
    y = gelu(c.rt, y);
  } else if (fused_gate_) {
    y = up_.forward(c, x);
    const std::vector<Tensor> halves = split(c.rt, y, y.size(-1) / 2, -1);
    y = silu(c.rt, halves[0]);
    y = mul(c.rt, y, halves[1]);
  } else {
    Tensor gate = gate_.forward(c, x);
    gate = silu(c.rt, gate);
    y = up_.forward(c, x);
    y = mul(c.rt, gate, y);
  }
  return down_.forward(c, y);
}

}  // namespace swaplab::synth
