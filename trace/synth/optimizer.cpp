#include "trace/synth/optimizer.hpp"

namespace swaplab::synth {
namespace {

using Pointers = std::vector<const Tensor*>;

void in_place(Eager& rt, Aten op, Eager::TensorList in) {
  rt.emit(op, in, {*in.begin()}, {}, {*in.begin()});
}

// A list-wise kernel that changes its first list.
void list_in_place(Eager& rt, Aten op, const std::vector<Pointers>& lists, std::span<const Attr> attrs = {}) {
  Pointers in;
  for (const Pointers& list : lists) in.insert(in.end(), list.begin(), list.end());
  rt.emit_list(op, in, {}, attrs, lists[0], SyncKind::none);
}

std::vector<Tensor> list_result(Eager& rt, Aten op, const Pointers& in) {
  std::vector<Tensor> out;
  Pointers results;
  out.reserve(in.size());
  for (const Tensor* x : in) out.push_back(rt.make(x->shape(), x->dtype()));
  for (const Tensor& x : out) results.push_back(&x);
  rt.emit_list(op, in, results, {}, {}, SyncKind::none);
  return out;
}

Pointers pointers(const std::vector<Tensor>& tensors) {
  Pointers result;
  for (const Tensor& x : tensors) result.push_back(&x);
  return result;
}

}  // namespace

std::vector<std::size_t> Optimizer::with_gradient() const {
  std::vector<std::size_t> live;
  for (std::size_t i = 0; i < updated_.size(); ++i)
    if (updated_[i].gradient->defined()) live.push_back(i);
  return live;
}

void Optimizer::prepare(Eager& rt, std::size_t i) {
  State& state = states_[i];
  const Updated& u = updated_[i];
  if (has_master() && !state.master.defined()) {
    const Eager::GradMode no_grad(rt, false);
    state.master = to(rt, u.value, DType::float32);
    if (state.master.impl() == u.value.impl()) state.master = clone(rt, u.value);
    rt.tag(state.master, StorageClass::optimizer_state, u.name + ".master");
  }
  if (config_.optimizer == OptimizerKind::sgd || state.first.defined()) return;
  const Tensor& like = stepped(i);
  if (config_.optimizer == OptimizerKind::adamw_fused) {
    state.step = zeros(rt, {}, DType::float32);
  } else {  // step counters stay on the host unless the optimizer is fused
    state.step = rt.external({}, DType::float32, true);
    rt.emit(Aten::lift_fresh, {&state.step}, {&state.step});
  }
  state.first = zeros_like(rt, like);
  state.second = zeros_like(rt, like);
  rt.tag(state.step, StorageClass::optimizer_state, u.name + ".step");
  rt.tag(state.first, StorageClass::optimizer_state, u.name + ".exp_avg");
  rt.tag(state.second, StorageClass::optimizer_state, u.name + ".exp_avg_sq");
}

Tensor Optimizer::gradient(Eager& rt, std::size_t i) {
  return to(rt, *updated_[i].gradient, stepped(i).dtype());
}

void Optimizer::step(Eager& rt) {
  const Eager::GradMode no_grad(rt, false);
  const std::vector<std::size_t> live = with_gradient();
  for (const std::size_t i : live) prepare(rt, i);
  switch (config_.optimizer) {
    case OptimizerKind::adamw_loop:
      adamw_loop(rt, live);
      break;
    case OptimizerKind::adamw_foreach:
      adamw_foreach(rt, live);
      break;
    case OptimizerKind::adamw_fused:
      adamw_fused(rt, live);
      break;
    case OptimizerKind::sgd:
      sgd(rt, live);
      break;
  }
  if (!has_master()) return;
  if (config_.optimizer == OptimizerKind::adamw_loop) {
    for (const std::size_t i : live) copy_(rt, updated_[i].value, states_[i].master);
    return;
  }
  Pointers values, masters;
  for (const std::size_t i : live) {
    values.push_back(&updated_[i].value);
    masters.push_back(&states_[i].master);
  }
  list_in_place(rt, Aten::foreach_copy_, {values, masters});
}

void Optimizer::adamw_loop(Eager& rt, const std::vector<std::size_t>& live) {
  Tensor denominator;  // the loop's variable keeps the previous parameter's until it is assigned again
  for (const std::size_t i : live) {
    const State& s = states_[i];
    const Tensor& p = stepped(i);
    const Tensor g = gradient(rt, i);
    rt.emit(Aten::add_, {&s.step}, {&s.step}, {1}, {&s.step});
    in_place(rt, Aten::mul_, {&p});
    in_place(rt, Aten::mul_, {&s.first});
    in_place(rt, Aten::add_, {&s.first, &g});
    in_place(rt, Aten::mul_, {&s.second});
    in_place(rt, Aten::addcmul_, {&s.second, &g, &g});
    item(rt, s.step);
    Tensor quotient;
    {
      const Tensor root = rt.make(p.shape(), p.dtype());
      rt.emit(Aten::sqrt, {&s.second}, {&root});
      quotient = rt.make(p.shape(), p.dtype());
      rt.emit(Aten::div, {&root}, {&quotient});
    }
    in_place(rt, Aten::add_, {&quotient});
    denominator = std::move(quotient);
    in_place(rt, Aten::addcdiv_, {&p, &s.first, &denominator});
  }
}

void Optimizer::adamw_foreach(Eager& rt, const std::vector<std::size_t>& live) {
  std::vector<Tensor> gradients;
  Pointers p, g, first, second, steps;
  gradients.reserve(live.size());
  for (const std::size_t i : live) {
    gradients.push_back(gradient(rt, i));
    p.push_back(&stepped(i));
    first.push_back(&states_[i].first);
    second.push_back(&states_[i].second);
    steps.push_back(&states_[i].step);
  }
  g = pointers(gradients);
  const Attr one[] = {1};
  list_in_place(rt, Aten::foreach_add_scalar_, {steps}, one);
  list_in_place(rt, Aten::foreach_mul_scalar_, {p});
  list_in_place(rt, Aten::foreach_mul_scalar_, {first});
  list_in_place(rt, Aten::foreach_add_list_, {first, g});
  list_in_place(rt, Aten::foreach_mul_scalar_, {second});
  list_in_place(rt, Aten::foreach_addcmul_, {second, g, g});
  for (int correction = 0; correction < 2; ++correction)
    for (const Tensor* step : steps) item(rt, *step);
  const std::vector<Tensor> roots = list_result(rt, Aten::foreach_sqrt, second);
  list_in_place(rt, Aten::foreach_div_, {pointers(roots)});
  const std::vector<Tensor> denominators = list_result(rt, Aten::foreach_add_scalar, pointers(roots));
  list_in_place(rt, Aten::foreach_addcdiv_, {p, first, pointers(denominators)});
}

void Optimizer::adamw_fused(Eager& rt, const std::vector<std::size_t>& live) {
  std::vector<Tensor> gradients;
  Pointers lists[5];
  gradients.reserve(live.size());
  for (const std::size_t i : live) {
    gradients.push_back(gradient(rt, i));
    lists[0].push_back(&stepped(i));
    lists[2].push_back(&states_[i].first);
    lists[3].push_back(&states_[i].second);
    lists[4].push_back(&states_[i].step);
  }
  lists[1] = pointers(gradients);
  const Attr one[] = {1};
  list_in_place(rt, Aten::foreach_add_scalar_, {lists[4]}, one);
  Pointers in, written;
  for (const Pointers& list : lists) in.insert(in.end(), list.begin(), list.end());
  for (const int list : {0, 1, 2, 3}) written.insert(written.end(), lists[list].begin(), lists[list].end());
  rt.emit_list(Aten::fused_adamw, in, {}, {}, written, SyncKind::none);
}

void Optimizer::sgd(Eager& rt, const std::vector<std::size_t>& live) {
  momentum_.resize(updated_.size());
  for (const std::size_t i : live) {
    const Tensor& p = stepped(i);
    const Tensor g = gradient(rt, i);
    Tensor decayed = add(rt, g, p);
    Tensor& velocity = momentum_[i];
    if (!velocity.defined()) {
      const Tensor copy = clone(rt, decayed);
      velocity = detach(rt, copy);
      rt.tag(velocity, StorageClass::optimizer_state, updated_[i].name + ".momentum_buffer");
    } else {
      in_place(rt, Aten::mul_, {&velocity});
      in_place(rt, Aten::add_, {&velocity, &decayed});
    }
    decayed.reset();
    in_place(rt, Aten::add_, {&p, &velocity});
  }
}

void Optimizer::unscale(Eager& rt, const Tensor& scale) {
  const Eager::GradMode no_grad(rt, false);
  const Tensor found = rt.make({1}, DType::float32);
  rt.emit(Aten::zeros, {}, {&found}, {1, false});
  const Tensor inverse = rt.make({1}, DType::float32);
  rt.emit(Aten::reciprocal, {&scale}, {&inverse});
  Pointers in, written;
  for (const std::size_t i : with_gradient()) in.push_back(updated_[i].gradient);
  written = in;
  written.push_back(&found);
  in.push_back(&found);
  in.push_back(&inverse);
  rt.emit_list(Aten::amp_unscale, in, {}, {}, written, SyncKind::none);
  item(rt, found);
}

void Optimizer::clip(Eager& rt) {
  const Eager::GradMode no_grad(rt, false);
  Pointers g;
  for (const std::size_t i : with_gradient()) g.push_back(updated_[i].gradient);
  std::vector<Tensor> norms;
  norms.reserve(g.size());
  for (const Tensor* x : g) norms.push_back(rt.make({}, x->dtype()));
  rt.emit_list(Aten::foreach_norm, g, pointers(norms), {}, {}, SyncKind::none);
  const Tensor all = rt.make({static_cast<std::int64_t>(norms.size())}, norms[0].dtype());
  const Pointers parts = pointers(norms);
  const Tensor* stacked[] = {&all};
  rt.emit_list(Aten::stack, parts, stacked, {}, {}, SyncKind::none);
  const Tensor norm = rt.make({}, all.dtype());
  rt.emit(Aten::norm, {&all}, {&norm});
  const Tensor shifted = add_scalar(rt, norm);
  const Tensor inverse = rt.make({}, all.dtype());
  rt.emit(Aten::reciprocal, {&shifted}, {&inverse});
  const Tensor factor = mul_scalar(rt, inverse);
  const Tensor limited = rt.make({}, all.dtype());
  rt.emit(Aten::clamp, {&factor}, {&limited});
  Pointers in = g;
  in.push_back(&limited);
  rt.emit_list(Aten::foreach_mul_tensor_, in, {}, {}, g, SyncKind::none);
}

}  // namespace swaplab::synth
