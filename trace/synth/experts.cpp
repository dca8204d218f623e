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
  weight.reserve(static_cast<std::size_t>(experts));
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
  count.reserve(weight.size());
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

// Rows of tokens that go to expert `e`, and in which of their top-k slots: the host waits for their number.
Experts::Routed Experts::routed_to(Context& c, const Tensor& chosen, std::size_t e, std::int64_t rows) {
  Eager& rt = c.rt;
  const Tensor equal = rt.make(chosen.shape(), DType::boolean);
  rt.emit(Aten::eq_scalar, {&chosen}, {&equal}, {e});
  const Tensor where = rt.make({rows, 2}, DType::int64);
  const Tensor* in[] = {&equal};
  const Tensor* results[] = {&where};
  rt.emit_list(Aten::nonzero, in, results, {}, {}, SyncKind::shape);
  Routed routed{rt.alias(where, {rows}, {2}), rt.alias(where, {rows}, {2})};
  rt.emit(Aten::unbind, {&where}, {&routed.token, &routed.slot}, {1});
  return routed;
}

// weights[token, slot]
Tensor Experts::shares(Context& c, const Tensor& weights, const Routed& routed) {
  Eager& rt = c.rt;
  Tensor share = rt.make({routed.token.size(0)}, weights.dtype());
  rt.emit(Aten::index, {&weights, &routed.token, &routed.slot}, {&share});
  if (rt.records({&weights})) {
    record(rt, {&share}, {&weights}, {routed.token, routed.slot}, [shape = weights.shape()](Backward& b) {
      const Tensor zero = b.rt.make(shape, b.grad[0].dtype());
      b.rt.emit(Aten::new_zeros, {&b.grad[0]}, {&zero}, {shape[0], shape[1]});
      b.out[0] = b.rt.make(shape, b.grad[0].dtype());
      b.rt.emit(Aten::index_put, {&zero, &b.saved(0), &b.saved(1), &b.grad[0]}, {&b.out[0]}, {true});
    });
  }
  return share;
}

std::vector<std::int64_t> Experts::loads(const Context& c, std::int64_t tokens, std::int64_t rank) const {
  const ExpertsConfig& x = c.config.model.experts;
  const std::uint64_t seed = c.config.seed ^ mix(layer_);
  std::vector<std::int64_t> load = route_tokens(tokens, x.count, x.top_k, x.imbalance_percent, seed,
                                                c.forward_passes * 4096 + static_cast<std::uint64_t>(rank));
  if (x.capacity_percent > 0) {
    const std::int64_t capacity =
        std::max<std::int64_t>(1, tokens * x.top_k * x.capacity_percent / (100 * x.count));
    for (std::int64_t& rows : load) rows = std::min(rows, capacity);  // the rest of the tokens is dropped
  }
  return load;
}

// Each expert in turn on the rows that chose it, as plain PyTorch code does it.
Tensor Experts::run_locally(Context& c, const Tensor& flat, const Tensor& weights,
                            const Tensor& chosen) const {
  Eager& rt = c.rt;
  const std::vector<std::int64_t> load = loads(c, flat.size(0), 0);
  Tensor out = zeros_like(rt, flat);
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    const Routed routed = routed_to(c, chosen, e, load[e]);
    if (load[e] == 0) continue;
    Tensor y = index_rows(rt, flat, routed.token);
    y = experts_[e].forward(c, std::move(y));
    const Tensor share = shares(c, weights, routed);
    const Tensor column = unsqueeze(rt, share, -1);
    y = mul(rt, y, column);
    y = to(rt, y, out.dtype());
    out = index_add(rt, out, routed.token, y);
  }
  return out;
}

// Expert parallelism: rows travel to the ranks of their experts and back.
Tensor Experts::run_across_ranks(Context& c, const Tensor& flat, const Tensor& weights,
                                 const Tensor& chosen) const {
  Eager& rt = c.rt;
  const std::int64_t ranks = c.config.parallel.expert;
  const std::vector<std::int64_t> own = loads(c, flat.size(0), 0);
  std::vector<Tensor> tokens, slots;
  for (std::size_t e = 0; e < own.size(); ++e) {
    const Routed routed = routed_to(c, chosen, e, own[e]);
    tokens.push_back(routed.token);
    slots.push_back(routed.slot);
  }
  std::vector<std::int64_t> received(experts_.size());
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::vector<std::int64_t> load = loads(c, flat.size(0), rank);
    for (std::size_t e = 0; e < received.size(); ++e) received[e] += load[e];
  }
  const Routed all{cat(rt, tokens, 0), cat(rt, slots, 0)};
  tokens.clear();
  slots.clear();
  const Tensor sorted = index_rows(rt, flat, all.token);
  const std::int64_t rows = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  Tensor results;
  if (rows > 0) {
    const Tensor arrived = all_to_all(rt, sorted, rows, ranks, Group::expert);
    std::vector<Tensor> parts = split_with_sizes(rt, arrived, received, 0);
    for (std::size_t e = 0; e < parts.size(); ++e)
      if (received[e] > 0) parts[e] = experts_[e].forward(c, std::move(parts[e]));
    results = cat(rt, parts, 0);
  } else {
    results = zeros(rt, {0, flat.size(1)}, flat.dtype());
  }
  Tensor y = all_to_all(rt, results, all.token.size(0), ranks, Group::expert);
  const Tensor share = shares(c, weights, all);
  const Tensor column = unsqueeze(rt, share, -1);
  y = mul(rt, y, column);
  y = to(rt, y, flat.dtype());
  const Tensor zero = zeros_like(rt, flat);
  return index_add(rt, zero, all.token, y);
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
  const Tensor out = c.config.parallel.expert > 1 ? run_across_ranks(c, flat, weights, chosen)
                                                  : run_locally(c, flat, weights, chosen);
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
