// Elementwise operators.
#include "trace/synth/ops.hpp"

namespace swaplab::synth {

Tensor add(Eager& rt, const Tensor& a, const Tensor& b) {
  Tensor out = rt.make(broadcast(a.shape(), b.shape()), promote(a.dtype(), b.dtype()));
  rt.emit(Aten::add, {&a, &b}, {&out});
  // The engine sums broadcast dimensions and converts, as it does for PyTorch's own node.
  if (rt.records({&a, &b}))
    record(rt, {&out}, {&a, &b}, {}, [](Backward& bw) { bw.out[0] = bw.out[1] = bw.grad[0]; });
  return out;
}

void add_(Eager& rt, const Tensor& a, const Tensor& b) {
  rt.emit(Aten::add_, {&a, &b}, {&a}, {}, {&a});
}

Tensor add_inplace(Eager& rt, Tensor a, const Tensor& b) {
  add_(rt, a, b);
  if (!rt.records({&a, &b})) return a;
  const Edge before = gradient_edge(rt, a);
  record(rt, {&a}, {&b}, {}, [](Backward& bw) { bw.out[0] = bw.out[1] = bw.grad[0]; });
  // The result is the tensor itself, so its own history was taken before it was replaced.
  auto& next = a.impl()->grad_fn->next;
  next.insert(next.begin(), before);
  return a;
}

Tensor mul(Eager& rt, const Tensor& a, const Tensor& b) {
  Tensor out = rt.make(broadcast(a.shape(), b.shape()), promote(a.dtype(), b.dtype()));
  rt.emit(Aten::mul, {&a, &b}, {&out});
  if (!rt.records({&a, &b})) return out;
  record(rt, {&out}, {&a, &b}, {b.requires_grad() ? a : Tensor(), a.requires_grad() ? b : Tensor()},
         [](Backward& bw) {
           if (bw.needs(1)) bw.out[1] = mul(bw.rt, bw.grad[0], bw.saved(0));
           if (bw.needs(0)) bw.out[0] = mul(bw.rt, bw.grad[0], bw.saved(1));
         });
  return out;
}

Tensor div(Eager& rt, const Tensor& a, const Tensor& b) {
  Tensor out = rt.make(broadcast(a.shape(), b.shape()), promote(a.dtype(), b.dtype()));
  rt.emit(Aten::div, {&a, &b}, {&out});
  if (!rt.records({&a, &b})) return out;
  record(rt, {&out}, {&a, &b}, {b.requires_grad() ? a : Tensor(), b}, [](Backward& bw) {
    const auto quotient = [&](const Tensor& x) {
      Tensor q = bw.rt.make(broadcast(x.shape(), bw.saved(1).shape()), x.dtype());
      bw.rt.emit(Aten::div, {&x, &bw.saved(1)}, {&q});
      return q;
    };
    if (bw.needs(1)) {  // -grad * ((self / other) / other)
      const Tensor minus = neg(bw.rt, bw.grad[0]);
      const Tensor once = quotient(bw.saved(0));
      const Tensor twice = quotient(once);
      bw.out[1] = mul(bw.rt, minus, twice);
    }
    if (bw.needs(0)) bw.out[0] = quotient(bw.grad[0]);
  });
  return out;
}

Tensor add_scalar(Eager& rt, const Tensor& x) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(Aten::add, {&x}, {&out});
  if (rt.records({&x})) record(rt, {&out}, {&x}, {}, [](Backward& b) { b.out[0] = b.grad[0]; });
  return out;
}

Tensor mul_scalar(Eager& rt, const Tensor& x) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(Aten::mul, {&x}, {&out});
  if (rt.records({&x}))
    record(rt, {&out}, {&x}, {}, [](Backward& b) { b.out[0] = mul_scalar(b.rt, b.grad[0]); });
  return out;
}

Tensor div_scalar(Eager& rt, const Tensor& x, std::int64_t divisor) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(Aten::div, {&x}, {&out}, {divisor});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {}, [divisor](Backward& b) { b.out[0] = div_scalar(b.rt, b.grad[0], divisor); });
  }
  return out;
}

Tensor neg(Eager& rt, const Tensor& x) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(Aten::neg, {&x}, {&out});
  if (rt.records({&x})) record(rt, {&out}, {&x}, {}, [](Backward& b) { b.out[0] = neg(b.rt, b.grad[0]); });
  return out;
}

namespace {

// One result from one input; the backward kernel reads the gradient and the input.
Tensor unary(Eager& rt, const Tensor& x, Aten forward, Aten backward) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(forward, {&x}, {&out});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {x}, [backward](Backward& b) {
      b.out[0] = b.rt.make(b.saved(0).shape(), b.saved(0).dtype());
      b.rt.emit(backward, {&b.grad[0], &b.saved(0)}, {&b.out[0]});
    });
  }
  return out;
}

}  // namespace

Tensor gelu(Eager& rt, const Tensor& x) {
  return unary(rt, x, Aten::gelu, Aten::gelu_backward);
}

Tensor silu(Eager& rt, const Tensor& x) {
  return unary(rt, x, Aten::silu, Aten::silu_backward);
}

Tensor relu_(Eager& rt, Tensor x) {
  rt.emit(Aten::relu_, {&x}, {&x}, {}, {&x});
  if (!rt.records({&x})) return x;
  const Edge before = gradient_edge(rt, x);
  const Tensor result = detach_saved(rt, x);
  record(rt, {&x}, {}, {result}, [](Backward& b) {
    const Tensor kept = detach_saved(b.rt, b.saved(0));
    b.out[0] = b.rt.make(kept.shape(), kept.dtype());
    b.rt.emit(Aten::threshold_backward, {&b.grad[0], &kept}, {&b.out[0]}, {0});
  });
  x.impl()->grad_fn->next.push_back(before);
  return x;
}

Tensor tanh(Eager& rt, const Tensor& x) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(Aten::tanh, {&x}, {&out});
  if (!rt.records({&x})) return out;
  const Tensor result = detach_saved(rt, out);
  record(rt, {&out}, {&x}, {result}, [](Backward& b) {
    const Tensor kept = detach_saved(b.rt, b.saved(0));
    b.out[0] = b.rt.make(kept.shape(), kept.dtype());
    b.rt.emit(Aten::tanh_backward, {&b.grad[0], &kept}, {&b.out[0]});
  });
  return out;
}

Tensor masked_fill(Eager& rt, const Tensor& x, const Tensor& mask) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(Aten::masked_fill, {&x, &mask}, {&out});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {mask}, [](Backward& b) {
      b.out[0] = b.rt.make(b.grad[0].shape(), b.grad[0].dtype());
      b.rt.emit(Aten::masked_fill, {&b.grad[0], &b.saved(0)}, {&b.out[0]}, {0});
    });
  }
  return out;
}

Tensor dropout(Eager& rt, const Tensor& x, DropoutKernel kernel) {
  if (kernel == DropoutKernel::composite) {
    const Tensor noise = rt.make(x.shape(), x.dtype());
    rt.emit(Aten::empty_like, {&x}, {&noise});
    rt.emit(Aten::bernoulli_, {&noise}, {&noise}, {}, {&noise});
    rt.emit(Aten::div_scalar_, {&noise}, {&noise}, {}, {&noise});
    return mul(rt, x, noise);
  }
  Tensor out = rt.make(x.shape(), x.dtype());
  const Tensor mask = rt.make(x.shape(), DType::boolean);
  rt.emit(Aten::native_dropout, {&x}, {&out, &mask}, {true});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {mask}, [](Backward& b) {
      b.out[0] = b.rt.make(b.grad[0].shape(), b.grad[0].dtype());
      b.rt.emit(Aten::native_dropout_backward, {&b.grad[0], &b.saved(0)}, {&b.out[0]});
    });
  }
  return out;
}

}  // namespace swaplab::synth
