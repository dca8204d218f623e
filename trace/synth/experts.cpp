#include "trace/synth/experts.hpp"

#include <algorithm>
#include <numeric>

namespace swaplab::synth {
namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

std::vector<std::int64_t> route_tokens(std::int64_t tokens, std::int64_t experts, std::int64_t top_k,
                                       std::int64_t imbalance_percent, std::uint64_t seed,
                                       std::uint64_t step) {
  // An expert's share is 2^(lasting preference + a smaller one of this step), piecewise linear in integers;
  // at 100 % the most and the least wanted are about a thousand times apart, as with an untrained router.
  std::vector<std::int64_t> weight;
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto key = static_cast<std::uint64_t>(e);
    const auto lasting = static_cast<std::int64_t>(mix(seed ^ mix(key)) % 8192);
    const auto passing = static_cast<std::int64_t>(mix(seed ^ mix(key) ^ mix(step + 1)) % 2048);
    const std::int64_t exponent = (lasting + passing) * imbalance_percent / 100;  // in 1/1024
    weight.push_back((1024 + exponent % 1024) << (exponent / 1024));
  }
  const std::int64_t sum = std::accumulate(weight.begin(), weight.end(), std::int64_t{0});
  const std::int64_t routed = tokens * top_k;
  std::vector<std::int64_t> count;
  for (const std::int64_t w : weight) count.push_back(std::min(tokens, routed * w / sum));
  std::int64_t left = routed - std::accumulate(count.begin(), count.end(), std::int64_t{0});
  for (std::size_t e = 0; left != 0; e = (e + 1) % count.size()) {  // what rounding and the limit left over
    const std::int64_t change =
        left > 0 ? std::min({left, tokens - count[e], left / experts + 1}) : -std::min(-left, count[e]);
    count[e] += change;
    left -= change;
  }
  return count;
}

Experts::Experts(Context& c, const std::string& name, std::uint64_t layer) : layer_(layer) {
  const ModelConfig& m = c.config.model;
  router_ = Linear(c, name + ".router", m.hidden, m.experts.count, false);
  const std::int64_t local = m.experts.count / c.config.parallel.expert;
  for (std::int64_t e = 0; e < local; ++e) {
    experts_.emplace_back(c, name + ".experts." + std::to_string(e), m.hidden, m.experts.ffn, Partition::none,
                          Partition::none);
  }
}

Tensor Experts::dispatch(Context& c, const Tensor& flat, const Tensor& weights, const Tensor& chosen,
                         std::uint64_t step) const {
  Eager& rt = c.rt;
  const ExpertsConfig& x = c.config.model.experts;
  const std::int64_t tokens = flat.size(0);
  std::vector<std::int64_t> load =
      route_tokens(tokens, x.count, x.top_k, x.imbalance_percent, c.config.seed ^ mix(layer_), step);
  if (x.capacity_percent > 0) {
    const std::int64_t capacity =
        std::max<std::int64_t>(1, tokens * x.top_k * x.capacity_percent / (100 * x.count));
    for (std::int64_t& rows : load) rows = std::min(rows, capacity);  // the rest of the tokens is dropped
  }
  Tensor out = zeros_like(rt, flat);
  const std::int64_t ranks = c.config.parallel.expert;
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    const Tensor equal = rt.make(chosen.shape(), DType::boolean);
    rt.emit(Aten::eq_scalar, {&chosen}, {&equal}, {e});
    const std::int64_t rows = load[e];
    const Tensor where = rt.make({rows, 2}, DType::int64);
    const Tensor* in[] = {&equal};
    const Tensor* results[] = {&where};
    rt.emit_list(Aten::nonzero, in, results, {}, {}, SyncKind::shape);
    const Tensor token = rt.alias(where, {rows}, {2}), slot = rt.alias(where, {rows}, {2});
    rt.emit(Aten::unbind, {&where}, {&token, &slot}, {1});
    if (rows == 0) continue;
    Tensor y = index_rows(rt, flat, token);
    if (ranks > 1) y = all_to_all(rt, y, rows, ranks, Group::expert);
    y = experts_[e].forward(c, std::move(y));
    if (ranks > 1) y = all_to_all(rt, y, rows, ranks, Group::expert);
    Tensor share = rt.make({rows}, weights.dtype());
    rt.emit(Aten::index, {&weights, &token, &slot}, {&share});
    if (rt.records({&weights})) {
      record(rt, {&share}, {&weights}, {token, slot}, [shape = weights.shape()](Backward& b) {
        const Tensor zero = b.rt.make(shape, b.grad[0].dtype());
        b.rt.emit(Aten::new_zeros, {&b.grad[0]}, {&zero}, {shape[0], shape[1]});
        b.out[0] = b.rt.make(shape, b.grad[0].dtype());
        b.rt.emit(Aten::index_put, {&zero, &b.saved(0), &b.saved(1), &b.grad[0]}, {&b.out[0]}, {true});
      });
    }
    const Tensor column = unsqueeze(rt, share, -1);
    y = mul(rt, y, column);
    if (y.dtype() != out.dtype()) y = to(rt, y, out.dtype());
    out = index_add(rt, out, token, y);
  }
  return out;
}

Tensor Experts::forward(Context& c, Tensor given, std::vector<Tensor>& balance) const {
  Eager& rt = c.rt;
  const ExpertsConfig& e = c.config.model.experts;
  const Tensor x = std::move(given);
  const Tensor flat = reshape(rt, x, {-1, x.size(-1)});
  Tensor logits = router_.forward(c, flat);
  const Tensor probabilities = softmax(rt, logits);
  logits.reset();
  const Shape best{flat.size(0), e.top_k};
  Tensor weights = rt.make(best, probabilities.dtype());
  const Tensor chosen = rt.make(best, DType::int64);
  rt.emit(Aten::topk, {&probabilities}, {&weights, &chosen}, {e.top_k});
  if (rt.records({&probabilities})) {
    record(rt, {&weights}, {&probabilities}, {chosen}, [shape = probabilities.shape()](Backward& b) {
      const Tensor zero = zeros(b.rt, shape, b.grad[0].dtype());
      b.out[0] = b.rt.make(shape, b.grad[0].dtype());
      b.rt.emit(Aten::scatter, {&zero, &b.saved(0), &b.grad[0]}, {&b.out[0]}, {-1});
    });
  }
  {
    const Tensor sum = sum_last(rt, weights);
    weights = div(rt, weights, sum);
  }
  const std::uint64_t step = c.forward_passes;
  const Tensor out = dispatch(c, flat, weights, chosen, step);
  Tensor hot;  // share of tokens whose first choice each expert is, by one_hot
  {
    const Eager::GradMode no_grad(rt, false);
    const Tensor all = slice(rt, chosen, 0, 0, INT64_MAX);
    const Tensor first = rt.alias(chosen, {flat.size(0)}, {e.top_k});
    rt.emit(Aten::select, {&all}, {&first}, {1, 0});
    for (const Aten extreme : {Aten::min, Aten::max}) {
      const Tensor value = rt.make({}, DType::int64);
      rt.emit(extreme, {&first}, {&value});
      item(rt, value);
    }
    const Tensor marks = zeros(rt, {flat.size(0), e.count}, DType::int64);
    const Tensor column = unsqueeze(rt, first, -1);
    rt.emit(Aten::scatter_value_, {&marks, &column}, {&marks}, {-1, 1}, {&marks});
    const Tensor real = to(rt, marks, probabilities.dtype());
    hot = mean(rt, real, {0}, false);
  }
  Tensor result = view(rt, out, x.shape());
  const Tensor likely = mean(rt, probabilities, {0}, false);
  const Tensor product = mul(rt, hot, likely);
  const Tensor total = sum(rt, product);
  balance.push_back(mul_scalar(rt, total));
  return result;
}

}  // namespace swaplab::synth
