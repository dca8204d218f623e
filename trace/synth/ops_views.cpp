// Views, copies and fills.
#include <algorithm>
#include <string>

#include "trace/error.hpp"
#include "trace/synth/ops.hpp"

namespace swaplab::synth {
namespace {

std::size_t wrap(std::int64_t dim, const Tensor& x) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(x.shape().rank()) : dim);
}

// Sizes, or sizes and strides, as the attributes of a view operator.
class AttrList {
 public:
  AttrList& operator<<(const Shape& shape) {
    for (const std::int64_t size : shape) values_.emplace_back(size);
    return *this;
  }
  std::span<const Attr> span() const { return values_; }

 private:
  std::vector<Attr> values_;
};

void emit_view(Eager& rt, Aten op, const Tensor& x, const Tensor& out, std::span<const Attr> attrs) {
  const Tensor* in[] = {&x};
  const Tensor* results[] = {&out};
  rt.emit_list(op, in, results, attrs, {}, SyncKind::none);
}

Shape without_minus_one(const Tensor& x, const Shape& shape) {
  Shape full = shape;
  std::int64_t known = 1;
  std::size_t open = Shape::kMaxRank;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1)
      open = i;
    else
      known *= shape[i];
  }
  if (open != Shape::kMaxRank) full[open] = known == 0 ? 0 : x.numel() / known;
  if (full.numel() != x.numel())
    throw Error(ErrorKind::invariant, "synthetic view changes the number of elements");
  return full;
}

// Backward of every view that only regroups dimensions.
void record_regroup(Eager& rt, Tensor& out, const Tensor& x) {
  if (!rt.records({&x})) return;
  record(rt, {&out}, {&x}, {},
         [shape = x.shape()](Backward& b) { b.out[0] = reshape(b.rt, b.grad[0], shape); });
}

Tensor copy_contiguous(Eager& rt, const Tensor& x) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(Aten::clone, {&x}, {&out});
  return out;
}

}  // namespace

Tensor view(Eager& rt, const Tensor& x, const Shape& shape) {
  const Shape full = without_minus_one(x, shape);
  const auto strides = view_strides(x.shape(), x.strides(), full);
  if (!strides) throw Error(ErrorKind::invariant, "synthetic view of a tensor whose strides do not allow it");
  Tensor out = rt.alias(x, full, *strides);
  AttrList attrs;
  emit_view(rt, Aten::view, x, out, (attrs << shape).span());
  record_regroup(rt, out, x);
  return out;
}

Tensor reshape(Eager& rt, const Tensor& x, const Shape& shape) {
  const Shape full = without_minus_one(x, shape);
  AttrList attrs;
  if (const auto strides = view_strides(x.shape(), x.strides(), full)) {
    Tensor out = rt.alias(x, full, *strides);
    emit_view(rt, Aten::reshape_alias, x, out, (attrs << full << *strides).span());
    record_regroup(rt, out, x);
    return out;
  }
  const Tensor copy = clone(rt, x);
  Tensor out = rt.alias(copy, full, contiguous_strides(full));
  emit_view(rt, Aten::unsafe_view, copy, out, (attrs << full).span());
  record_regroup(rt, out, copy);
  return out;
}

Tensor t(Eager& rt, const Tensor& x) {
  Shape shape = x.shape(), strides = x.strides();
  if (shape.rank() == 2) {
    std::swap(shape[0], shape[1]);
    std::swap(strides[0], strides[1]);
  }
  Tensor out = rt.alias(x, shape, strides);
  rt.emit(Aten::t, {&x}, {&out});
  if (rt.records({&x})) record(rt, {&out}, {&x}, {}, [](Backward& b) { b.out[0] = t(b.rt, b.grad[0]); });
  return out;
}

Tensor transpose(Eager& rt, const Tensor& x, std::int64_t dim0, std::int64_t dim1) {
  Shape shape = x.shape(), strides = x.strides();
  std::swap(shape[wrap(dim0, x)], shape[wrap(dim1, x)]);
  std::swap(strides[wrap(dim0, x)], strides[wrap(dim1, x)]);
  Tensor out = rt.alias(x, shape, strides);
  rt.emit(Aten::transpose, {&x}, {&out}, {dim0, dim1});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {},
           [dim0, dim1](Backward& b) { b.out[0] = transpose(b.rt, b.grad[0], dim0, dim1); });
  }
  return out;
}

Tensor permute(Eager& rt, const Tensor& x, std::initializer_list<std::int64_t> dims) {
  Shape shape, strides, order, inverse = x.shape();
  for (const std::int64_t dim : dims) {
    inverse[static_cast<std::size_t>(dim)] = static_cast<std::int64_t>(order.rank());
    order.push_back(dim);
    shape.push_back(x.shape()[static_cast<std::size_t>(dim)]);
    strides.push_back(x.strides()[static_cast<std::size_t>(dim)]);
  }
  Tensor out = rt.alias(x, shape, strides);
  AttrList attrs;
  emit_view(rt, Aten::permute, x, out, (attrs << order).span());
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {}, [inverse](Backward& b) {
      Shape back, steps;
      for (const std::int64_t dim : inverse) {
        back.push_back(b.grad[0].shape()[static_cast<std::size_t>(dim)]);
        steps.push_back(b.grad[0].strides()[static_cast<std::size_t>(dim)]);
      }
      b.out[0] = b.rt.alias(b.grad[0], back, steps);
      AttrList backward_attrs;
      emit_view(b.rt, Aten::permute, b.grad[0], b.out[0], (backward_attrs << inverse).span());
    });
  }
  return out;
}

Tensor expand(Eager& rt, const Tensor& x, const Shape& shape) {
  Shape strides = shape;
  const std::size_t added = shape.rank() - x.shape().rank();
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    const bool widened = i < added || x.shape()[i - added] != shape[i];
    strides[i] = widened ? 0 : x.strides()[i - added];
  }
  Tensor out = rt.alias(x, shape, strides);
  AttrList attrs;
  emit_view(rt, Aten::expand, x, out, (attrs << shape).span());
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {}, [wanted = x.shape()](Backward& b) {
      b.out[0] = b.grad[0].shape() == wanted ? b.grad[0] : sum_to(b.rt, b.grad[0], wanted);
    });
  }
  return out;
}

Tensor unsqueeze(Eager& rt, const Tensor& x, std::int64_t dim) {
  const std::size_t at =
      static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(x.shape().rank()) + 1 : dim);
  Shape shape, strides;
  for (std::size_t i = 0; i <= x.shape().rank(); ++i) {
    if (i == at) {
      shape.push_back(1);
      strides.push_back(i < x.shape().rank() ? x.shape()[i] * x.strides()[i] : 1);
    }
    if (i < x.shape().rank()) {
      shape.push_back(x.shape()[i]);
      strides.push_back(x.strides()[i]);
    }
  }
  Tensor out = rt.alias(x, shape, strides);
  rt.emit(Aten::unsqueeze, {&x}, {&out}, {dim});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {}, [shape = x.shape(), dim](Backward& b) {
      const auto steps = view_strides(b.grad[0].shape(), b.grad[0].strides(), shape);
      b.out[0] = b.rt.alias(b.grad[0], shape, steps ? *steps : contiguous_strides(shape));
      b.rt.emit(Aten::squeeze, {&b.grad[0]}, {&b.out[0]}, {dim});
    });
  }
  return out;
}

Tensor slice(Eager& rt, const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end) {
  const std::size_t at = wrap(dim, x);
  const std::int64_t size = x.shape()[at];
  const std::int64_t last = std::min(end < 0 ? size + end : end, size);
  Shape shape = x.shape();
  shape[at] = std::max<std::int64_t>(last - start, 0);
  Tensor out = rt.alias(x, shape, x.strides());
  rt.emit(Aten::slice, {&x}, {&out}, {dim, start, end});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {}, [wanted = x.shape(), dim, start, end](Backward& b) {
      b.out[0] = b.rt.make(wanted, b.grad[0].dtype());
      b.rt.emit(Aten::slice_backward, {&b.grad[0]}, {&b.out[0]}, {dim, start, end});
    });
  }
  return out;
}

std::vector<Tensor> split_with_sizes(Eager& rt, const Tensor& x, std::span<const std::int64_t> sizes,
                                     std::int64_t dim) {
  const std::size_t at = wrap(dim, x);
  std::vector<Tensor> parts;
  std::vector<Attr> attrs;
  for (const std::int64_t size : sizes) {
    Shape shape = x.shape();
    shape[at] = size;
    parts.push_back(rt.alias(x, shape, x.strides()));
    attrs.emplace_back(size);
  }
  const bool equal =
      std::all_of(sizes.begin(), sizes.end() - 1, [&](std::int64_t s) { return s == sizes[0]; }) &&
      sizes.back() <= sizes[0];
  if (equal) attrs.assign(1, Attr(sizes[0]));
  attrs.emplace_back(static_cast<std::int64_t>(at));
  std::vector<const Tensor*> results;
  results.reserve(parts.size());
  for (const Tensor& part : parts) results.push_back(&part);
  const Tensor* in[] = {&x};
  rt.emit_list(equal ? Aten::split : Aten::split_with_sizes, in, results, attrs, {}, SyncKind::none);
  if (!rt.records({&x})) return parts;
  std::vector<Tensor*> outputs;
  outputs.reserve(parts.size());
  for (Tensor& part : parts) outputs.push_back(&part);
  record(rt, outputs, {&x}, {}, [at](Backward& b) {
    for (std::size_t i = 0; i < b.grad.size(); ++i)
      if (!b.grad[i].defined()) b.grad[i] = zeros(b.rt, b.node.outputs[i].shape, b.node.outputs[i].dtype);
    b.out[0] = cat(b.rt, b.grad, static_cast<std::int64_t>(at));
  });
  return parts;
}

std::vector<Tensor> split(Eager& rt, const Tensor& x, std::int64_t size, std::int64_t dim) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t left = x.size(dim); left > 0; left -= size) sizes.push_back(std::min(left, size));
  return split_with_sizes(rt, x, sizes, dim);
}

Tensor detach(Eager& rt, const Tensor& x) {
  const Tensor first = detach_saved(rt, x);
  return detach_saved(rt, first);
}

Tensor detach_saved(Eager& rt, const Tensor& x) {
  Tensor out = rt.alias(x, x.shape(), x.strides());
  rt.emit(Aten::detach, {&x}, {&out});
  return out;
}

Tensor clone(Eager& rt, const Tensor& x) {
  Tensor out = copy_contiguous(rt, x);
  if (rt.records({&x})) record(rt, {&out}, {&x}, {}, [](Backward& b) { b.out[0] = b.grad[0]; });
  return out;
}

Tensor to(Eager& rt, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor out = rt.make(x.shape(), dtype);
  rt.emit(Aten::to_copy, {&x}, {&out});
  if (rt.records({&x})) {
    record(rt, {&out}, {&x}, {},
           [before = x.dtype()](Backward& b) { b.out[0] = to(b.rt, b.grad[0], before); });
  }
  return out;
}

Tensor cat(Eager& rt, std::span<const Tensor> parts, std::int64_t dim) {
  const std::size_t at = wrap(dim, parts[0]);
  Shape shape = parts[0].shape();
  shape[at] = 0;
  std::vector<const Tensor*> in;
  std::vector<std::int64_t> sizes;
  bool wanted = false;
  for (const Tensor& part : parts) {
    in.push_back(&part);
    sizes.push_back(part.shape()[at]);
    shape[at] += part.shape()[at];
    wanted = wanted || part.requires_grad();
  }
  Tensor out = rt.make(shape, parts[0].dtype());
  const Tensor* results[] = {&out};
  const Attr attrs[] = {static_cast<std::int64_t>(at)};
  rt.emit_list(Aten::cat, in, results, attrs, {}, SyncKind::none);
  if (!rt.grad_enabled() || !wanted) return out;
  record(rt, {&out}, {}, {}, [at, sizes](Backward& b) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (b.needs(i))
        b.out[i] = slice(b.rt, b.grad[0], static_cast<std::int64_t>(at), start, start + sizes[i]);
      start += sizes[i];
    }
  });
  for (const Tensor& part : parts) out.impl()->grad_fn->next.push_back(gradient_edge(rt, part));
  return out;
}

Tensor zeros_like(Eager& rt, const Tensor& x) {
  Tensor out = rt.make(x.shape(), x.dtype());
  rt.emit(Aten::zeros_like, {&x}, {&out}, {false});
  return out;
}

Tensor zeros(Eager& rt, const Shape& shape, DType dtype) {
  Tensor out = rt.make(shape, dtype);
  std::vector<Attr> attrs;
  for (const std::int64_t size : shape) attrs.emplace_back(size);
  const Tensor* results[] = {&out};
  rt.emit_list(Aten::zeros, {}, results, attrs, {}, SyncKind::none);
  return out;
}

void copy_(Eager& rt, const Tensor& target, const Tensor& source) {
  rt.emit(Aten::copy_, {&target, &source}, {&target}, {}, {&target});
}

}  // namespace swaplab::synth
