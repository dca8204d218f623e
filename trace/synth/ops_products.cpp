// Matrix products and attention.
#include "trace/error.hpp"
#include "trace/synth/ops.hpp"

namespace swaplab::synth {
namespace {

// Column-major: the operand is a transposed view of a contiguous matrix.
bool column_major(const Tensor& x) {
  return x.strides()[0] == 1 && x.strides()[1] == x.shape()[0];
}

Tensor raw_mm(Eager& rt, const Tensor& a, const Tensor& b) {
  if (a.size(1) != b.size(0))
    throw Error(ErrorKind::invariant, "synthetic matrix product of unlike inner sizes");
  Tensor out = rt.make({a.size(0), b.size(1)}, a.dtype());
  rt.emit(Aten::mm, {&a, &b}, {&out});
  return out;
}

Tensor raw_bmm(Eager& rt, const Tensor& a, const Tensor& b) {
  if (a.size(2) != b.size(1))
    throw Error(ErrorKind::invariant, "synthetic batch product of unlike inner sizes");
  Tensor out = rt.make({a.size(0), a.size(1), b.size(2)}, a.dtype());
  rt.emit(Aten::bmm, {&a, &b}, {&out});
  return out;
}

// Gradients of a x b keep the operand's own layout.
Tensor gradient_of_first(Eager& rt, const Tensor& grad, const Tensor& a_like, const Tensor& b) {
  if (a_like.defined() && column_major(a_like) && !a_like.is_contiguous()) {
    const Tensor grad_t = t(rt, grad);
    return t(rt, raw_mm(rt, b, grad_t));
  }
  const Tensor b_t = t(rt, b);
  return raw_mm(rt, grad, b_t);
}

Tensor gradient_of_second(Eager& rt, const Tensor& grad, const Tensor& a, bool b_column_major) {
  if (b_column_major) {
    const Tensor grad_t = t(rt, grad);
    const Tensor product = raw_mm(rt, grad_t, a);
    return t(rt, product);
  }
  const Tensor a_t = t(rt, a);
  return raw_mm(rt, a_t, grad);
}

}  // namespace

Tensor mm(Eager& rt, const Tensor& a, const Tensor& b) {
  Tensor out = raw_mm(rt, a, b);
  if (!rt.records({&a, &b})) return out;
  record(rt, {&out}, {&a, &b}, {b.requires_grad() ? a : Tensor(), a.requires_grad() ? b : Tensor()},
         [columns = column_major(b)](Backward& bw) {
           if (bw.needs(1)) bw.out[1] = gradient_of_second(bw.rt, bw.grad[0], bw.saved(0), columns);
           if (bw.needs(0)) bw.out[0] = gradient_of_first(bw.rt, bw.grad[0], bw.saved(0), bw.saved(1));
         });
  return out;
}

Tensor addmm(Eager& rt, const Tensor& bias, const Tensor& a, const Tensor& b) {
  if (a.size(1) != b.size(0))
    throw Error(ErrorKind::invariant, "synthetic matrix product of unlike inner sizes");
  Tensor out = rt.make({a.size(0), b.size(1)}, a.dtype());
  rt.emit(Aten::addmm, {&bias, &a, &b}, {&out});
  if (!rt.records({&bias, &a, &b})) return out;
  record(rt, {&out}, {&bias, &a, &b}, {b.requires_grad() ? a : Tensor(), a.requires_grad() ? b : Tensor()},
         [columns = column_major(b)](Backward& bw) {
           if (bw.needs(1)) bw.out[1] = gradient_of_first(bw.rt, bw.grad[0], bw.saved(0), bw.saved(1));
           if (bw.needs(2)) bw.out[2] = gradient_of_second(bw.rt, bw.grad[0], bw.saved(0), columns);
           bw.out[0] = bw.grad[0];  // the engine sums it to the bias
         });
  return out;
}

Tensor bmm(Eager& rt, const Tensor& a, const Tensor& b) {
  Tensor out = raw_bmm(rt, a, b);
  if (!rt.records({&a, &b})) return out;
  record(rt, {&out}, {&a, &b}, {b.requires_grad() ? a : Tensor(), a.requires_grad() ? b : Tensor()},
         [](Backward& bw) {
           if (bw.needs(1)) {
             const Tensor a_t = transpose(bw.rt, bw.saved(0), 1, 2);
             bw.out[1] = raw_bmm(bw.rt, a_t, bw.grad[0]);
           }
           if (bw.needs(0)) {
             const Tensor b_t = transpose(bw.rt, bw.saved(1), 1, 2);
             bw.out[0] = raw_bmm(bw.rt, bw.grad[0], b_t);
           }
         });
  return out;
}

Tensor matmul(Eager& rt, const Tensor& given_a, const Tensor& given_b) {
  const Tensor b = rt.autocast_copy(given_b), a = rt.autocast_copy(given_a);
  if (a.shape().rank() == 2 && b.shape().rank() == 2) return mm(rt, a, b);
  if (b.shape().rank() == 2) {  // fold the leading dimensions
    Shape result = a.shape();
    result[result.rank() - 1] = b.size(1);
    const Tensor flat = reshape(rt, a, {-1, a.size(-1)});
    Tensor product = mm(rt, flat, b);
    Tensor out = rt.alias(product, result, contiguous_strides(result));
    std::vector<Attr> attrs;
    for (const std::int64_t size : result) attrs.emplace_back(size);
    const Tensor* in[] = {&product};
    const Tensor* results[] = {&out};
    rt.emit_list(Aten::unsafe_view, in, results, attrs, {}, SyncKind::none);
    if (rt.records({&product})) {
      record(rt, {&out}, {&product}, {},
             [shape = product.shape()](Backward& bw) { bw.out[0] = reshape(bw.rt, bw.grad[0], shape); });
    }
    return out;
  }
  const std::int64_t batch = a.size(0), heads = a.size(1);
  const auto as_batch = [&](const Tensor& x) {
    const Tensor wide = expand(rt, x, {batch, heads, x.size(2), x.size(3)});
    return reshape(rt, wide, {batch * heads, x.size(2), x.size(3)});
  };
  const Tensor left = as_batch(a), right = as_batch(b);
  Tensor product = bmm(rt, left, right);
  const Shape result{batch, heads, a.size(2), b.size(3)};
  Tensor out = rt.alias(product, result, contiguous_strides(result));
  rt.emit(Aten::unsafe_view, {&product}, {&out}, {result[0], result[1], result[2], result[3]});
  if (rt.records({&product})) {
    record(rt, {&out}, {&product}, {},
           [shape = product.shape()](Backward& bw) { bw.out[0] = reshape(bw.rt, bw.grad[0], shape); });
  }
  return out;
}

Tensor linear(Eager& rt, const Tensor& given, const Tensor& given_weight, const Tensor& given_bias) {
  // Arguments are converted from the last to the first, as the compiled call evaluates them.
  const Tensor bias = given_bias.defined() ? rt.autocast_copy(given_bias) : Tensor();
  const Tensor weight = rt.autocast_copy(given_weight);
  const Tensor x = rt.autocast_copy(given);
  const Tensor weight_t = t(rt, weight);
  if (!bias.defined()) return matmul(rt, x, weight_t);
  if (x.shape().rank() == 2) return addmm(rt, bias, x, weight_t);
  if (x.shape().rank() == 3 && x.is_contiguous()) {
    const Tensor flat = view(rt, x, {x.size(0) * x.size(1), x.size(2)});
    const Tensor product = addmm(rt, bias, flat, weight_t);
    return view(rt, product, {x.size(0), x.size(1), weight.size(0)});
  }
  const Tensor product = matmul(rt, x, weight_t);
  return add_inplace(rt, product, bias);
}

Tensor flash_attention(Eager& rt, const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  // As torch's flash kernels on a GPU: the output has the memory layout [batch, tokens, heads, head size].
  const Shape shape = q.shape();
  const std::int64_t width = shape[1] * shape[3];
  const Shape strides{shape[2] * width, shape[3], width, 1};
  const Tensor memory = rt.make({shape[0], shape[2], shape[1], shape[3]}, q.dtype());
  Tensor out = rt.alias(memory, shape, strides);
  const Tensor lse = rt.make({shape[0], shape[1], shape[2]}, DType::float32);
  rt.emit(Aten::flash_fwd, {&q, &k, &v}, {&out, &lse}, {causal});
  if (!rt.records({&q, &k, &v})) return out;
  const Tensor kept = detach_saved(rt, out);
  record(rt, {&out}, {&q, &k, &v}, {q, k, v, kept, lse}, [causal](Backward& b) {
    const Tensor result = detach_saved(b.rt, b.saved(3));
    for (std::size_t i = 0; i < 3; ++i) {
      const Shape& s = b.saved(i).shape();
      const Tensor memory_of = b.rt.make({s[0], s[2], s[1], s[3]}, b.saved(i).dtype());
      b.out[i] = b.rt.alias(memory_of, s, {s[2] * s[1] * s[3], s[3], s[1] * s[3], 1});
    }
    b.rt.emit(Aten::flash_bwd, {&b.grad[0], &b.saved(0), &b.saved(1), &b.saved(2), &result, &b.saved(4)},
              {&b.out[0], &b.out[1], &b.out[2]}, {causal});
  });
  return out;
}

}  // namespace swaplab::synth
