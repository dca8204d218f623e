#include "trace/synth/vocabulary.hpp"

namespace swaplab::synth {
namespace {

// Logits [N, V/t] of one rank: maximum, sum of exponentials and the target's score meet across ranks
// (Megatron's vocab_parallel_cross_entropy, which keeps the softmax in float32).
Tensor divided_cross_entropy(Context& c, const Tensor& logits, const Tensor& targets) {
  Eager& rt = c.rt;
  const std::int64_t ranks = c.config.parallel.tensor;
  const std::int64_t rows = logits.size(0);
  const Tensor scores = to(rt, logits, DType::float32);
  Tensor loss, kept, place;
  {
    const Eager::GradMode no_grad(rt, false);
    const auto per_row = [&](Aten op, const Tensor& x) {
      Tensor out = rt.make({rows}, DType::float32);
      rt.emit(op, {&x}, {&out}, {-1});
      return out;
    };
    const Tensor highest = per_row(Aten::amax, scores);
    all_reduce_(rt, highest, ranks, Group::tensor);
    const Tensor column = unsqueeze(rt, highest, 1);
    const Tensor shifted = rt.make(scores.shape(), DType::float32);
    rt.emit(Aten::sub, {&scores, &column}, {&shifted});
    const Tensor foreign = rt.make({rows}, DType::boolean);
    rt.emit(Aten::lt_scalar, {&targets}, {&foreign});
    place = clone(rt, targets);
    rt.emit(Aten::masked_fill_, {&place, &foreign}, {&place}, {0}, {&place});
    const Tensor predicted = rt.make({rows}, DType::float32);
    rt.emit(Aten::index, {&shifted, &place}, {&predicted});
    rt.emit(Aten::masked_fill_, {&predicted, &foreign}, {&predicted}, {0}, {&predicted});
    all_reduce_(rt, predicted, ranks, Group::tensor);
    kept = rt.make(scores.shape(), DType::float32);
    rt.emit(Aten::exp, {&shifted}, {&kept});
    const Tensor sum = per_row(Aten::sum_dim, kept);
    all_reduce_(rt, sum, ranks, Group::tensor);
    const Tensor logarithm = rt.make({rows}, DType::float32);
    rt.emit(Aten::log, {&sum}, {&logarithm});
    loss = rt.make({rows}, DType::float32);
    rt.emit(Aten::sub, {&logarithm, &predicted}, {&loss});
    const Tensor sum_column = unsqueeze(rt, sum, 1);
    rt.emit(Aten::div_, {&kept, &sum_column}, {&kept}, {}, {&kept});
  }
  if (rt.records({&scores})) {
    record(rt, {&loss}, {&scores}, {kept, place}, [](Backward& b) {
      b.out[0] = b.saved(0);  // Megatron writes the gradient over the softmax
      b.rt.emit(Aten::index_put_, {&b.out[0], &b.saved(1), &b.grad[0]}, {&b.out[0]}, {true}, {&b.out[0]});
      const Tensor column = unsqueeze(b.rt, b.grad[0], 1);
      b.rt.emit(Aten::mul_, {&b.out[0], &column}, {&b.out[0]}, {}, {&b.out[0]});
    });
  }
  return mean(rt, loss, {0}, false);
}

Tensor whole_loss(Context& c, const Tensor& x, const Tensor& weight, const Tensor& targets) {
  Eager& rt = c.rt;
  const bool divided = c.config.parallel.tensor > 1;
  Tensor logits;
  if (divided && c.config.parallel.sequence) {
    logits = gathered_linear(rt, x, weight, {}, c.config.parallel.tensor);
  } else {
    const Tensor entered = divided ? copy_to_ranks(rt, x, c.config.parallel.tensor) : x;
    logits = linear(rt, entered, weight, {});
  }
  const Tensor rows = view(rt, logits, {-1, logits.size(-1)});
  const Tensor flat = view(rt, targets, {-1});
  if (divided) return divided_cross_entropy(c, rows, flat);
  return cross_entropy(rt, rows, flat, c.config.model.upcast_logits && rows.dtype() != DType::float32);
}

}  // namespace

Batch language_batch(Context& c, std::int64_t length, std::int64_t vocab) {
  Eager& rt = c.rt;
  const std::int64_t batch = c.config.training.batch;
  if (c.config.training.data == DataStyle::separate) {
    Tensor tokens = rt.make({batch, length}, DType::int64);
    rt.emit(Aten::randint_low, {}, {&tokens}, {0, vocab, batch, length, false});
    Tensor targets = rt.make({batch, length}, DType::int64);
    rt.emit(Aten::randint_low, {}, {&targets}, {0, vocab, batch, length, false});
    return {{tokens, targets}};
  }
  const Tensor both = rt.make({batch, length + 1}, DType::int64);
  rt.emit(Aten::randint, {}, {&both}, {vocab, batch, length + 1, false});
  const auto part = [&](std::int64_t start, std::int64_t end) {
    const Tensor rows = slice(rt, both, 0, 0, INT64_MAX);
    const Tensor columns = slice(rt, rows, 1, start, end);
    return clone(rt, columns);
  };
  Tensor tokens = part(0, -1);
  Tensor targets = part(1, INT64_MAX);
  return {{tokens, targets}};
}

Batch image_batch(Context& c, std::int64_t classes) {
  Eager& rt = c.rt;
  const ModelConfig& m = c.config.model;
  const std::int64_t batch = c.config.training.batch;
  Tensor images = rt.make({batch, m.in_channels, m.image_size, m.image_size}, c.parameter_format());
  rt.emit(Aten::randn, {}, {&images}, {batch, m.in_channels, m.image_size, m.image_size, false});
  Tensor labels = rt.make({batch}, DType::int64);
  rt.emit(Aten::randint, {}, {&labels}, {classes, batch, false});
  return {{images, labels}};
}

Tensor vocabulary_embedding(Context& c, const Tensor& weight, const Tensor& tokens) {
  Eager& rt = c.rt;
  const Tensor below = rt.make(tokens.shape(), DType::boolean);
  rt.emit(Aten::lt_scalar, {&tokens}, {&below});
  const Tensor above = rt.make(tokens.shape(), DType::boolean);
  rt.emit(Aten::ge_scalar, {&tokens}, {&above});
  const Tensor foreign = rt.make(tokens.shape(), DType::boolean);
  rt.emit(Aten::bitwise_or, {&below, &above}, {&foreign});
  const Tensor local = clone(rt, tokens);
  rt.emit(Aten::masked_fill_, {&local, &foreign}, {&local}, {0}, {&local});
  Tensor part = embedding(rt, weight, local);
  rt.emit(Aten::masked_fill_, {&part, &foreign}, {&part}, {0}, {&part});
  return sum_over_ranks(rt, part, c.config.parallel.tensor);
}

Tensor head_loss(Context& c, Tensor given, const Tensor& weight, const Tensor& targets) {
  Eager& rt = c.rt;
  const Tensor x = std::move(given);
  const std::int64_t chunks = c.config.model.loss_chunks;
  if (chunks == 1) return whole_loss(c, x, weight, targets);
  // Each chunk's logits are made again in the backward pass, so that only one chunk's exist at a time.
  const std::int64_t length = (targets.size(1) + chunks - 1) / chunks;
  Tensor total;
  for (std::int64_t start = 0; start < targets.size(1); start += length) {
    const Tensor part = slice(rt, x, 1, start, start + length);
    const Tensor wanted = slice(rt, targets, 1, start, start + length);
    const Tensor rows = clone(rt, wanted);
    const Tensor chunk = checkpoint(
        rt, [&c, rows](const std::vector<Tensor>& in) { return whole_loss(c, in[0], in[1], rows); },
        {part, weight});
    total = total.defined() ? add(rt, total, chunk) : chunk;
  }
  return div_scalar(rt, total, chunks);
}

}  // namespace swaplab::synth
