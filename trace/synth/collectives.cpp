#include "trace/synth/collectives.hpp"

#include <algorithm>

namespace swaplab::synth {
namespace {

void collective(Eager& rt, Aten op, const Tensor& in, const Tensor& out, std::int64_t ranks, Group group) {
  const Eager::StreamScope stream(rt, kCommunicationStream);
  const std::int64_t bytes = std::max(in.bytes(), out.bytes()).value;
  const Attr attrs[] = {bytes, ranks, static_cast<std::int64_t>(group)};
  const Tensor* both[] = {&out, &in};
  const Tensor* results[] = {&out};
  rt.emit_list(op, both, results, attrs, results, SyncKind::none);
}

Shape scaled(const Shape& shape, std::int64_t dim, std::int64_t times, std::int64_t divisor) {
  Shape result = shape;
  result[static_cast<std::size_t>(dim)] = shape[static_cast<std::size_t>(dim)] * times / divisor;
  return result;
}

Tensor empty(Eager& rt, const Shape& shape, DType dtype) {
  Tensor out = rt.make(shape, dtype);
  std::vector<Attr> attrs;
  for (const std::int64_t size : shape) attrs.emplace_back(size);
  const Tensor* results[] = {&out};
  rt.emit_list(Aten::empty, {}, results, attrs, {}, SyncKind::none);
  return out;
}

Tensor contiguous(Eager& rt, const Tensor& x) {
  return x.is_contiguous() ? x : clone(rt, x);
}

}  // namespace

void all_reduce_(Eager& rt, const Tensor& x, std::int64_t ranks, Group group) {
  const Eager::StreamScope stream(rt, kCommunicationStream);
  rt.emit(Aten::all_reduce, {&x}, {&x}, {x.bytes().value, ranks, static_cast<std::int64_t>(group)}, {&x});
}

void all_gather_into(Eager& rt, const Tensor& whole, const Tensor& part, std::int64_t ranks, Group group) {
  collective(rt, Aten::all_gather, part, whole, ranks, group);
}

void reduce_scatter_into(Eager& rt, const Tensor& part, const Tensor& whole, std::int64_t ranks,
                         Group group) {
  collective(rt, Aten::reduce_scatter, whole, part, ranks, group);
}

Tensor all_gather(Eager& rt, const Tensor& given, std::int64_t ranks, std::int64_t dim, Group group) {
  const Tensor part = contiguous(rt, given);
  Tensor whole = empty(rt, scaled(part.shape(), dim, ranks, 1), part.dtype());
  all_gather_into(rt, whole, part, ranks, group);
  return whole;
}

Tensor reduce_scatter(Eager& rt, const Tensor& given, std::int64_t ranks, std::int64_t dim, Group group) {
  const Tensor whole = contiguous(rt, given);
  Tensor part = empty(rt, scaled(whole.shape(), dim, 1, ranks), whole.dtype());
  reduce_scatter_into(rt, part, whole, ranks, group);
  return part;
}

Tensor all_to_all(Eager& rt, const Tensor& given, std::int64_t rows, std::int64_t ranks, Group group) {
  const Tensor x = contiguous(rt, given);
  Shape shape = x.shape();
  shape[0] = rows;
  Tensor out = empty(rt, shape, x.dtype());
  collective(rt, Aten::all_to_all, x, out, ranks, group);
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {}, [back = x.size(0), ranks, group](Backward& b) {
      b.out[0] = all_to_all(b.rt, b.grad[0], back, ranks, group);
    });
  }
  return out;
}

void send(Eager& rt, const Tensor& x, std::int64_t ranks) {
  const Eager::StreamScope stream(rt, kCommunicationStream);
  rt.emit(Aten::send, {&x}, {}, {x.bytes().value, ranks, static_cast<std::int64_t>(Group::pipeline)});
}

Tensor receive(Eager& rt, const Shape& shape, DType dtype, std::int64_t ranks) {
  Tensor out = empty(rt, shape, dtype);
  const Eager::StreamScope stream(rt, kCommunicationStream);
  rt.emit(Aten::recv, {&out}, {&out}, {out.bytes().value, ranks, static_cast<std::int64_t>(Group::pipeline)},
          {&out});
  return out;
}

Tensor copy_to_ranks(Eager& rt, const Tensor& x, std::int64_t ranks) {
  if (!rt.records({&x})) return x;
  Tensor out = rt.alias(x, x.shape(), x.strides());
  record(rt, {&out}, {&x}, {}, [ranks](Backward& b) {
    b.out[0] = contiguous(b.rt, b.grad[0]);
    all_reduce_(b.rt, b.out[0], ranks, Group::tensor);
  });
  return out;
}

Tensor sum_over_ranks(Eager& rt, const Tensor& x, std::int64_t ranks) {
  all_reduce_(rt, x, ranks, Group::tensor);
  if (!rt.records({&x})) return x;
  Tensor out = rt.alias(x, x.shape(), x.strides());
  record(rt, {&out}, {&x}, {}, [](Backward& b) { b.out[0] = b.grad[0]; });
  return out;
}

Tensor gather_sequence(Eager& rt, const Tensor& x, std::int64_t ranks) {
  Tensor out = all_gather(rt, x, ranks, 1, Group::tensor);
  if (rt.records({&x}))
    record(rt, {&out}, {&x}, {},
           [ranks](Backward& b) { b.out[0] = reduce_scatter(b.rt, b.grad[0], ranks, 1, Group::tensor); });
  return out;
}

Tensor scatter_sum_sequence(Eager& rt, const Tensor& x, std::int64_t ranks) {
  Tensor out = reduce_scatter(rt, x, ranks, 1, Group::tensor);
  if (rt.records({&x}))
    record(rt, {&out}, {&x}, {},
           [ranks](Backward& b) { b.out[0] = all_gather(b.rt, b.grad[0], ranks, 1, Group::tensor); });
  return out;
}

Tensor gathered_linear(Eager& rt, const Tensor& given, const Tensor& given_weight, const Tensor& given_bias,
                       std::int64_t ranks) {
  const Tensor bias = given_bias.defined() ? rt.autocast_copy(given_bias) : Tensor();
  const Tensor weight = rt.autocast_copy(given_weight);
  const Tensor shard = rt.autocast_copy(given);
  Tensor out;
  {
    const Eager::GradMode no_grad(rt, false);
    const Tensor whole = all_gather(rt, shard, ranks, 1, Group::tensor);
    out = linear(rt, whole, weight, bias);
  }
  // The product is a view of the operator's result; the node belongs to the result as the caller sees it.
  if (!rt.records({&shard, &weight})) return out;
  const auto backward = [ranks](Backward& b) {
    const Tensor& x = b.saved(0);
    const Tensor& w = b.saved(1);
    const Tensor whole = all_gather(b.rt, x, ranks, 1, Group::tensor);
    const Tensor grad = reshape(b.rt, b.grad[0], {-1, w.size(0)});
    const Tensor flat = reshape(b.rt, whole, {-1, w.size(1)});
    if (b.needs(0)) {
      const Tensor product = mm(b.rt, grad, w);
      const Tensor shaped = reshape(b.rt, product, whole.shape());
      b.out[0] = reduce_scatter(b.rt, shaped, ranks, 1, Group::tensor);
    }
    const Tensor grad_t = t(b.rt, grad);
    b.out[1] = mm(b.rt, grad_t, flat);
    if (b.node.next.size() > 2) b.out[2] = grad;
  };
  if (bias.defined())
    record(rt, {&out}, {&shard, &weight, &bias}, {shard, weight}, backward);
  else
    record(rt, {&out}, {&shard, &weight}, {shard, weight}, backward);
  return out;
}

}  // namespace swaplab::synth
