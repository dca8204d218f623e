// Lookups, images and checkpointing.
#include "trace/synth/ops.hpp"

namespace swaplab::synth {

Tensor embedding(Eager& rt, const Tensor& weight, const Tensor& indices) {
  Shape shape = indices.shape();
  shape.push_back(weight.size(1));
  Tensor out = rt.make(shape, weight.dtype());
  rt.emit(Aten::embedding, {&weight, &indices}, {&out});
  if (rt.records({&weight})) {
    record(rt, {&out}, {&weight}, {indices}, [rows = weight.size(0), width = weight.size(1)](Backward& b) {
      b.out[0] = b.rt.make({rows, width}, b.grad[0].dtype());
      b.rt.emit(Aten::embedding_dense_backward, {&b.grad[0], &b.saved(0)}, {&b.out[0]}, {rows, -1, false});
    });
  }
  return out;
}

Tensor index_rows(Eager& rt, const Tensor& x, const Tensor& indices) {
  Shape shape = x.shape();
  shape[0] = indices.size(0);
  Tensor out = rt.make(shape, x.dtype());
  rt.emit(Aten::index, {&x, &indices}, {&out});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {indices}, [shape_of = x.shape()](Backward& b) {
      std::vector<Attr> attrs;
      for (const std::int64_t size : shape_of) attrs.emplace_back(size);
      const Tensor zero = b.rt.make(shape_of, b.grad[0].dtype());
      const Tensor* in[] = {&b.grad[0]};
      const Tensor* results[] = {&zero};
      b.rt.emit_list(Aten::new_zeros, in, results, attrs, {}, SyncKind::none);
      b.out[0] = b.rt.make(shape_of, b.grad[0].dtype());
      b.rt.emit(Aten::index_put, {&zero, &b.saved(0), &b.grad[0]}, {&b.out[0]}, {true});
    });
  }
  return out;
}

Tensor index_add(Eager& rt, const Tensor& x, const Tensor& indices, const Tensor& source) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(Aten::index_add, {&x, &indices, &source}, {&out}, {0});
  if (rt.records({&x, &source})) {
    record(rt, {&out}, {&x, &source}, {indices}, [rows = source.shape()](Backward& b) {
      if (b.needs(1)) {
        const Tensor chosen = b.rt.make(rows, b.grad[0].dtype());
        b.rt.emit(Aten::index_select, {&b.grad[0], &b.saved(0)}, {&chosen}, {0});
        b.out[1] = expand(b.rt, chosen, rows);
      }
      if (b.needs(0)) b.out[0] = b.grad[0];
    });
  }
  return out;
}

Tensor conv2d(Eager& rt, const Tensor& given, const Tensor& given_weight, const Tensor& given_bias,
              std::int64_t stride, std::int64_t padding) {
  const Tensor bias = given_bias.defined() ? rt.autocast_copy(given_bias) : Tensor();
  const Tensor weight = rt.autocast_copy(given_weight);
  const Tensor x = rt.autocast_copy(given);
  const auto side = [&](std::int64_t dim) {
    return (x.size(dim) + 2 * padding - weight.size(dim)) / stride + 1;
  };
  Tensor out = rt.make({x.size(0), weight.size(0), side(2), side(3)}, x.dtype());
  rt.emit(Aten::convolution, {&x, &weight, &bias}, {&out},
          {stride, stride, padding, padding, 1, 1, false, 0, 0, 1});
  if (!rt.records({&x, &weight})) return out;
  const bool with_bias = bias.defined();
  const auto backward = [stride, padding, with_bias](Backward& b) {
    const std::int64_t channels = b.saved(1).size(0);
    const bool input = b.needs(0);
    if (input) b.out[0] = b.rt.make(b.saved(0).shape(), b.saved(0).dtype());
    b.out[1] = b.rt.make(b.saved(1).shape(), b.saved(1).dtype());
    const Tensor bias_grad = with_bias ? b.rt.make({channels}, b.saved(1).dtype()) : Tensor();
    if (with_bias) b.out[2] = bias_grad;
    b.rt.emit(Aten::convolution_backward, {&b.grad[0], &b.saved(0), &b.saved(1)},
              {&b.out[0], &b.out[1], &bias_grad},
              {with_bias ? channels : 0, stride, stride, padding, padding, 1, 1, false, 0, 0, 1, input, true,
               with_bias});
  };
  if (with_bias)
    record(rt, {&out}, {&x, &weight, &bias}, {x, weight}, backward);
  else
    record(rt, {&out}, {&x, &weight}, {x, weight}, backward);
  return out;
}

Tensor max_pool2d(Eager& rt, const Tensor& x, std::int64_t kernel, std::int64_t stride,
                  std::int64_t padding) {
  const auto side = [&](std::int64_t dim) { return (x.size(dim) + 2 * padding - kernel) / stride + 1; };
  const Shape shape{x.size(0), x.size(1), side(2), side(3)};
  Tensor out = rt.make(shape, x.dtype());
  const Tensor indices = rt.make(shape, DType::int64);
  rt.emit(Aten::max_pool2d, {&x}, {&out, &indices}, {kernel, kernel, stride, stride, padding, padding});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {x, indices}, [kernel, stride, padding](Backward& b) {
      b.out[0] = b.rt.make(b.saved(0).shape(), b.saved(0).dtype());
      b.rt.emit(Aten::max_pool2d_backward, {&b.grad[0], &b.saved(0), &b.saved(1)}, {&b.out[0]},
                {kernel, kernel, stride, stride, padding, padding, 1, 1, false});
    });
  }
  return out;
}

Tensor upsample_nearest2d(Eager& rt, const Tensor& x, std::int64_t factor) {
  const Shape shape{x.size(0), x.size(1), x.size(2) * factor, x.size(3) * factor};
  Tensor out = rt.make(shape, x.dtype());
  rt.emit(Aten::upsample_nearest2d, {&x}, {&out}, {shape[2], shape[3]});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {}, [before = x.shape(), shape](Backward& b) {
      b.out[0] = b.rt.make(before, b.grad[0].dtype());
      b.rt.emit(Aten::upsample_nearest2d_backward, {&b.grad[0]}, {&b.out[0]},
                {shape[2], shape[3], before[0], before[1], before[2], before[3]});
    });
  }
  return out;
}

Tensor checkpoint(Eager& rt, Segment function, const std::vector<Tensor>& inputs) {
  Tensor out;
  bool wanted = false;
  for (const Tensor& x : inputs) wanted = wanted || x.requires_grad();
  const bool recorded = rt.grad_enabled() && wanted;
  {
    const Eager::GradMode no_grad(rt, false);
    out = function(inputs);
  }
  if (!recorded) return out;
  const std::optional<DType> autocast = rt.autocast();
  record(rt, {&out}, {}, std::vector<Tensor>(inputs),
         [function = std::move(function), autocast](Backward& b) {
           std::vector<Tensor> again;
           for (std::size_t i = 0; i < b.node.saved.size(); ++i) {
             again.push_back(detach(b.rt, b.saved(i)));
             again.back().set_requires_grad(b.node.next[i].node.get() != nullptr);
           }
           Tensor result;
           {
             const Eager::GradMode grad(b.rt, true);
             const Eager::PhaseScope phase(b.rt, Phase::recompute);
             const std::optional<DType> outside = b.rt.autocast();
             if (autocast && !outside) b.rt.begin_autocast(*autocast);
             result = function(again);
             if (autocast && !outside) b.rt.end_autocast();
           }
           {
             const Eager::PhaseScope phase(b.rt, Phase::backward);
             b.rt.backward(result, std::move(b.grad[0]));
           }
           for (std::size_t i = 0; i < again.size(); ++i) b.out[i] = again[i].impl()->grad;
         });
  for (const Tensor& x : inputs) out.impl()->grad_fn->next.push_back(gradient_edge(rt, x));
  return out;
}

}  // namespace swaplab::synth
