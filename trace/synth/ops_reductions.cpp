// Reductions, losses and normalisations.
#include "trace/synth/ops.hpp"

namespace swaplab::synth {
namespace {

Shape last_to_one(const Shape& shape) {
  Shape result = shape;
  result[result.rank() - 1] = 1;
  return result;
}

// Softmax and log-softmax keep their result, detached.
Tensor keeps_result(Eager& rt, const Tensor& x, Aten forward, Aten backward, std::int64_t forward_dim,
                    std::int64_t backward_dim) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(forward, {&x}, {&out}, {forward_dim, false});
  if (!rt.records({&x})) return out;
  const Tensor result = detach_saved(rt, out);
  record(rt, {&out}, {&x}, {result}, [backward, backward_dim](Backward& b) {
    const Tensor kept = detach_saved(b.rt, b.saved(0));
    b.out[0] = b.rt.make(kept.shape(), kept.dtype());
    b.rt.emit(backward, {&b.grad[0], &kept}, {&b.out[0]}, {backward_dim});
  });
  return out;
}

}  // namespace

Tensor softmax(Eager& rt, const Tensor& x) {
  const Tensor wide = rt.autocast() ? to(rt, x, DType::float32) : x;
  return keeps_result(rt, wide, Aten::softmax, Aten::softmax_backward, -1, -1);
}

Tensor scaled_masked_softmax(Eager& rt, const Tensor& x) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(Aten::scaled_masked_softmax, {&x}, {&out});
  if (!rt.records({&x})) return out;
  const Tensor result = detach_saved(rt, out);
  record(rt, {&out}, {&x}, {result}, [](Backward& b) {
    b.out[0] = b.rt.make(b.saved(0).shape(), b.saved(0).dtype());
    b.rt.emit(Aten::scaled_masked_softmax_backward, {&b.grad[0], &b.saved(0)}, {&b.out[0]});
  });
  return out;
}

Tensor sum_to(Eager& rt, const Tensor& x, const Shape& shape) {
  const std::size_t leading = x.shape().rank() - shape.rank();
  Shape reduced = x.shape();
  std::vector<Attr> attrs;
  for (std::size_t i = 0; i < x.shape().rank(); ++i) {
    if (i < leading || (shape[i - leading] == 1 && x.shape()[i] != 1)) {
      reduced[i] = 1;
      attrs.emplace_back(static_cast<std::int64_t>(i));
    }
  }
  Tensor out = x;
  if (!attrs.empty()) {
    attrs.emplace_back(true);
    out = rt.make(reduced, x.dtype());
    const Tensor* in[] = {&x};
    const Tensor* results[] = {&out};
    rt.emit_list(Aten::sum_dim, in, results, attrs, {}, SyncKind::none);
  }
  return leading > 0 ? view(rt, out, shape) : out;
}

Tensor mean(Eager& rt, const Tensor& x, std::initializer_list<std::int64_t> dims, bool keep) {
  Shape kept = x.shape(), dropped;
  std::vector<Attr> attrs;
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) {
    const auto at = static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(kept.rank()) : dim);
    count *= kept[at];
    kept[at] = 1;
    attrs.emplace_back(dim);
  }
  if (keep) attrs.emplace_back(true);
  for (std::size_t i = 0; i < kept.rank(); ++i) {
    bool gone = false;
    for (const std::int64_t dim : dims)
      gone =
          gone || i == static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(kept.rank()) : dim);
    if (!gone) dropped.push_back(kept[i]);
  }
  Tensor out = rt.make(keep ? kept : dropped, x.dtype());
  const Tensor* in[] = {&x};
  const Tensor* results[] = {&out};
  rt.emit_list(Aten::mean_dim, in, results, attrs, {}, SyncKind::none);
  if (!rt.records({&x})) return out;
  std::vector<std::int64_t> axes(dims);
  record(rt, {&out}, {&x}, {}, [shape = x.shape(), count, axes, keep](Backward& b) {
    Tensor grad = b.grad[0];
    if (!keep)
      for (const std::int64_t axis : axes) grad = unsqueeze(b.rt, grad, axis);
    const Tensor wide = expand(b.rt, grad, shape);
    b.out[0] = b.rt.make(shape, grad.dtype());
    b.rt.emit(Aten::div_scalar, {&wide}, {&b.out[0]}, {count});
  });
  return out;
}

Tensor sum_last(Eager& rt, const Tensor& x) {
  Tensor out = rt.make(last_to_one(x.shape()), x.dtype());
  rt.emit(Aten::sum_dim, {&x}, {&out}, {-1, true});
  if (rt.records({&x}))
    record(rt, {&out}, {&x}, {},
           [shape = x.shape()](Backward& b) { b.out[0] = expand(b.rt, b.grad[0], shape); });
  return out;
}

Tensor sum(Eager& rt, const Tensor& x) {
  Tensor out = rt.make({}, x.dtype());
  rt.emit(Aten::sum, {&x}, {&out});
  if (rt.records({&x}))
    record(rt, {&out}, {&x}, {},
           [shape = x.shape()](Backward& b) { b.out[0] = expand(b.rt, b.grad[0], shape); });
  return out;
}

Tensor cross_entropy(Eager& rt, const Tensor& logits, const Tensor& targets, bool upcast) {
  const Tensor wide = upcast || rt.autocast() ? to(rt, logits, DType::float32) : logits;
  const Tensor scores = keeps_result(rt, wide, Aten::log_softmax, Aten::log_softmax_backward, 1, 1);
  Tensor out = rt.make({}, scores.dtype());
  const Tensor weight = rt.make({}, scores.dtype());
  rt.emit(Aten::nll_loss_forward, {&scores, &targets}, {&out, &weight}, {1, -100});
  if (rt.records({&scores})) {
    record(rt, {&out}, {&scores}, {scores, targets, weight}, [](Backward& b) {
      b.out[0] = b.rt.make(b.saved(0).shape(), b.saved(0).dtype());
      b.rt.emit(Aten::nll_loss_backward, {&b.grad[0], &b.saved(0), &b.saved(1), &b.saved(2)}, {&b.out[0]},
                {1, -100});
    });
  }
  return out;
}

Tensor mse_loss(Eager& rt, const Tensor& given, const Tensor& target) {
  const Tensor x = rt.autocast() ? to(rt, given, DType::float32) : given;
  Tensor out = rt.make({}, x.dtype());
  rt.emit(Aten::mse_loss, {&x, &target}, {&out}, {1});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {x, target}, [](Backward& b) {
      b.out[0] = b.rt.make(b.saved(0).shape(), b.saved(0).dtype());
      b.rt.emit(Aten::mse_loss_backward, {&b.grad[0], &b.saved(0), &b.saved(1)}, {&b.out[0]}, {1});
    });
  }
  return out;
}

Tensor layer_norm(Eager& rt, const Tensor& given, const Tensor& weight, const Tensor& bias) {
  const Tensor x = rt.autocast() ? to(rt, given, DType::float32) : given;
  Tensor out = rt.make(x.shape(), x.dtype());
  const Tensor center = rt.make(last_to_one(x.shape()), DType::float32);
  const Tensor rstd = rt.make(last_to_one(x.shape()), DType::float32);
  rt.emit(Aten::native_layer_norm, {&x, &weight, &bias}, {&out, &center, &rstd}, {x.size(-1)});
  if (!rt.records({&x, &weight, &bias})) return out;
  record(rt, {&out}, {&x, &weight, &bias}, {x, center, rstd, weight, bias}, [](Backward& b) {
    b.out[0] = b.rt.make(b.saved(0).shape(), b.saved(0).dtype());
    b.out[1] = b.rt.make(b.saved(3).shape(), b.saved(3).dtype());
    if (b.saved(4).defined()) b.out[2] = b.rt.make(b.saved(4).shape(), b.saved(4).dtype());
    b.rt.emit(Aten::native_layer_norm_backward,
              {&b.grad[0], &b.saved(0), &b.saved(1), &b.saved(2), &b.saved(3), &b.saved(4)},
              {&b.out[0], &b.out[1], &b.out[2]}, {b.saved(0).size(-1), true, true, true});
  });
  return out;
}

Tensor rms_norm(Eager& rt, const Tensor& given, const Tensor& weight) {
  const Tensor x = to(rt, given, DType::float32);
  Tensor square = rt.make(x.shape(), x.dtype());
  rt.emit(Aten::pow, {&x}, {&square}, {2});
  if (rt.records({&x})) {
    record(rt, {&square}, {&x}, {x}, [](Backward& b) {  // grad * (2 * x)
      const Tensor twice = mul_scalar(b.rt, b.saved(0));
      b.out[0] = mul(b.rt, b.grad[0], twice);
    });
  }
  const Tensor variance = mean(rt, square, {-1}, true);
  square.reset();
  const Tensor shifted = add_scalar(rt, variance);
  Tensor inverse = rt.make(shifted.shape(), shifted.dtype());
  rt.emit(Aten::rsqrt, {&shifted}, {&inverse});
  if (rt.records({&shifted})) {
    const Tensor result = detach_saved(rt, inverse);
    record(rt, {&inverse}, {&shifted}, {result}, [](Backward& b) {  // -0.5 * grad * result^3
      const Tensor kept = detach_saved(b.rt, b.saved(0));
      const Tensor half = mul_scalar(b.rt, b.grad[0]);
      const Tensor cube = b.rt.make(kept.shape(), kept.dtype());
      b.rt.emit(Aten::pow, {&kept}, {&cube}, {3});
      b.out[0] = mul(b.rt, half, cube);
    });
  }
  const Tensor normal = mul(rt, x, inverse);
  const Tensor narrow = to(rt, normal, given.dtype());
  return mul(rt, weight, narrow);
}

Tensor group_norm(Eager& rt, const Tensor& given, const Tensor& weight, const Tensor& bias,
                  std::int64_t groups) {
  const Tensor x = rt.autocast() ? to(rt, given, DType::float32) : given;
  const std::int64_t n = x.size(0), c = x.size(1), hw = x.numel() / (n * c);
  Tensor out = rt.make(x.shape(), x.dtype());
  const Tensor center = rt.make({n, groups}, DType::float32), rstd = rt.make({n, groups}, DType::float32);
  rt.emit(Aten::native_group_norm, {&x, &weight, &bias}, {&out, &center, &rstd}, {n, c, hw, groups});
  if (!rt.records({&x, &weight, &bias})) return out;
  record(rt, {&out}, {&x, &weight, &bias}, {x, center, rstd, weight}, [n, c, hw, groups](Backward& b) {
    b.out[0] = b.rt.make(b.saved(0).shape(), b.saved(0).dtype());
    b.out[1] = b.rt.make({c}, b.saved(3).dtype());
    b.out[2] = b.rt.make({c}, b.saved(3).dtype());
    b.rt.emit(Aten::native_group_norm_backward,
              {&b.grad[0], &b.saved(0), &b.saved(1), &b.saved(2), &b.saved(3)},
              {&b.out[0], &b.out[1], &b.out[2]}, {n, c, hw, groups, true, true, true});
  });
  return out;
}

Tensor batch_norm(Eager& rt, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const BatchNormState& state) {
  rt.emit(Aten::add_, {&state.batches}, {&state.batches}, {1}, {&state.batches});
  Tensor reserve = rt.make({0}, DType::uint8);
  rt.emit(Aten::empty, {}, {&reserve}, {0});
  Tensor out = rt.make(x.shape(), x.dtype());
  const Tensor center = rt.make(weight.shape(), DType::float32),
               rstd = rt.make(weight.shape(), DType::float32);
  const Tensor* in[] = {&x, &weight, &bias, &state.running_mean, &state.running_var};
  const Tensor* results[] = {&out, &center, &rstd};
  const Tensor* written[] = {&state.running_mean, &state.running_var};
  const Attr attrs[] = {true};
  rt.emit_list(Aten::native_batch_norm, in, results, attrs, written, SyncKind::none);
  reserve.reset();
  if (!rt.records({&x, &weight, &bias})) return out;
  record(rt, {&out}, {&x, &weight, &bias}, {x, weight, state.running_mean, state.running_var, center, rstd},
         [](Backward& b) {
           b.out[0] = b.rt.make(b.saved(0).shape(), b.saved(0).dtype());
           b.out[1] = b.rt.make(b.saved(1).shape(), b.saved(1).dtype());
           b.out[2] = b.rt.make(b.saved(1).shape(), b.saved(1).dtype());
           b.rt.emit(
               Aten::native_batch_norm_backward,
               {&b.grad[0], &b.saved(0), &b.saved(1), &b.saved(2), &b.saved(3), &b.saved(4), &b.saved(5)},
               {&b.out[0], &b.out[1], &b.out[2]}, {true, true, true, true});
         });
  return out;
}

void item(Eager& rt, const Tensor& x) {
  const Tensor* in[] = {&x};
  rt.emit_list(Aten::item, in, {}, {}, {}, SyncKind::item);
}

}  // namespace swaplab::synth
