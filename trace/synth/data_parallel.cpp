#include "trace/synth/data_parallel.hpp"

#include <algorithm>

namespace swaplab::synth {
namespace {

DType gradient_format(const WorkloadConfig& config, DType parameter) {
  return config.training.gradients == GradientFormat::fp32 ? DType::float32 : parameter;
}

std::int64_t padded(std::int64_t numel, std::int64_t ranks) {
  return (numel + ranks - 1) / ranks * ranks;
}

}  // namespace

ParameterPlan plan_parameters(const WorkloadConfig& config, const std::vector<Parameter>& parameters,
                              const std::vector<Model::Range>& blocks) {
  ParameterPlan plan;
  const ParallelConfig& p = config.parallel;
  if (p.data == 1 && config.training.gradients == GradientFormat::as_parameters) return plan;
  plan.unit_of.resize(parameters.size());
  plan.offset.resize(parameters.size());
  std::vector<std::vector<std::size_t>> units;
  if (p.zero == 3) {
    std::vector<bool> in_block(parameters.size());
    for (const Model::Range& block : blocks) {
      units.emplace_back();
      for (std::size_t i = block.first; i < block.last; ++i) {
        units.back().push_back(i);
        in_block[i] = true;
      }
    }
    units.emplace_back();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (!in_block[i]) units.back().push_back(i);
    plan.whole_storage_is_temporary = true;
  } else {
    const std::int64_t limit = p.bucket_mib << 20;
    std::int64_t bytes = limit;
    for (std::size_t i = parameters.size(); i-- > 0;) {
      if (bytes >= limit) {
        units.emplace_back();
        bytes = 0;
      }
      units.back().insert(units.back().begin(), i);
      const Tensor& value = parameters[i].value;
      bytes += value.numel() * item_size(gradient_format(config, value.dtype()));
    }
  }
  for (std::size_t u = 0; u < units.size(); ++u) {
    std::int64_t numel = 0;
    for (const std::size_t i : units[u]) {
      plan.unit_of[i] = u;
      plan.offset[i] = numel;
      numel += parameters[i].value.numel();
    }
    plan.unit_numel.push_back(padded(numel, p.data));
  }
  // Only a sharded optimizer needs the parameters themselves in one buffer.
  plan.flatten_values = p.data > 1 && p.zero > 0;
  return plan;
}

struct DataParallel::Unit {
  std::vector<std::size_t> parameters;
  std::vector<std::int64_t> offsets;
  std::int64_t numel = 0;
  std::string name;
  Tensor flat;                // whole parameters (ZeRO 1 to 3)
  Tensor shard;               // this rank's part of them
  Tensor gradient;            // whole gradient buffer (ZeRO 0, 1; passing at 2)
  Tensor gradient_shard;      // ZeRO 1 to 3
  std::vector<Tensor> views;  // gradient of each parameter in the buffer
  std::size_t arrived = 0;
  bool resident = true;
};

DataParallel::DataParallel(Context& c, Model& model, const ParameterPlan& plan)
    : c_(c), parallel_(c.config.parallel) {
  for (std::size_t u = 0; u < plan.unit_numel.size(); ++u) {
    auto unit = std::make_unique<Unit>();
    unit->numel = plan.unit_numel[u];
    unit->name = "unit." + std::to_string(u);
    if (plan.flatten_values) unit->flat = c.flats[u];
    units_.push_back(std::move(unit));
  }
  for (std::size_t i = 0; i < plan.unit_of.size(); ++i) {
    units_[plan.unit_of[i]]->parameters.push_back(i);
    units_[plan.unit_of[i]]->offsets.push_back(plan.offset[i]);
  }
  for (const auto& unit : units_) parallel_.zero == 3 ? install_shards(*unit) : install_buffer(*unit);
  if (parallel_.zero != 3 || units_.empty()) return;
  root_ = units_.back().get();
  for (std::size_t b = 0; b < model.blocks.size(); ++b) block_unit_.push_back(units_[b].get());
  model.before_block = [this](std::size_t block, const Tensor& x) {
    gather(*block_unit_[block]);
    use_views(*block_unit_[block]);
    return x;
  };
  model.after_block = [this](std::size_t block, const Tensor& x) {
    Unit& unit = *block_unit_[block];
    for (const std::size_t i : unit.parameters) c_.parameters[i].value.impl()->grad_fn.reset();
    // Recomputation runs right before its backward pass: the parameters stay.
    if (c_.rt.phase() != Phase::recompute) give_back(unit);
    if (!c_.rt.records({&x})) return x;
    Tensor out = c_.rt.alias(x, x.shape(), x.strides());
    record(c_.rt, {&out}, {&x}, {}, [this, &unit](Backward& b) {
      gather(unit);
      b.out[0] = b.grad[0];
    });
    return out;
  };
}

DataParallel::~DataParallel() = default;

// Gradients are added into a flat buffer, which is reduced when the last one is in.
void DataParallel::install_buffer(Unit& unit) {
  Eager& rt = c_.rt;
  const DType format = gradient_format(c_.config, c_.parameter_format());
  if (parallel_.zero < 2) {
    unit.gradient = rt.external({unit.numel}, format);
    rt.tag(unit.gradient, StorageClass::gradient, unit.name + ".grad");
    for (std::size_t k = 0; k < unit.parameters.size(); ++k) {
      const Shape& shape = c_.parameters[unit.parameters[k]].value.shape();
      unit.views.push_back(rt.alias(unit.gradient, shape, contiguous_strides(shape)));
    }
  }
  if (unit.flat.defined()) {
    const Shape part{unit.numel / parallel_.data};
    unit.shard = rt.alias(unit.flat, part, {1});
    if (parallel_.zero == 1) unit.gradient_shard = rt.alias(unit.gradient, part, {1});
  }
  for (std::size_t k = 0; k < unit.parameters.size(); ++k) {
    accumulator_of(rt, c_.parameters[unit.parameters[k]].value).after = [this, &unit, k](Eager&) {
      gradient_arrived(unit, k);
    };
  }
}

void DataParallel::install_shards(Unit& unit) {
  Eager& rt = c_.rt;
  unit.shard = rt.external({unit.numel / parallel_.data}, c_.parameter_format());
  rt.tag(unit.shard, StorageClass::parameter, unit.name + ".shard");
  unit.flat.set_requires_grad(true);
  unit.resident = false;
  accumulator_of(rt, unit.flat).after = [this, &unit](Eager&) { flat_gradient_arrived(unit); };
}

std::vector<Updated> DataParallel::updated() {
  std::vector<Updated> all;
  if (units_.empty()) {
    for (const Parameter& p : c_.parameters) all.push_back({p.name, p.value, &p.value.impl()->grad});
    return all;
  }
  if (parallel_.data > 1 && parallel_.zero > 0) {
    for (const auto& unit : units_) all.push_back({unit->name, unit->shard, &unit->gradient_shard});
    return all;
  }
  for (const auto& unit : units_)
    for (std::size_t k = 0; k < unit->parameters.size(); ++k)
      all.push_back({c_.parameters[unit->parameters[k]].name, c_.parameters[unit->parameters[k]].value,
                     &unit->views[k]});
  return all;
}

void DataParallel::zero_gradients() {
  if (units_.empty()) {
    for (const Parameter& p : c_.parameters) p.value.impl()->grad.reset();
    return;
  }
  const Eager::PhaseScope phase(c_.rt, Phase::zero_grad);
  for (const auto& unit : units_) {
    if (parallel_.zero >= 2)
      unit->gradient_shard.reset();
    else
      c_.rt.emit(Aten::zero_, {&unit->gradient}, {&unit->gradient}, {}, {&unit->gradient});
  }
}

void DataParallel::begin_forward() {
  if (root_ == nullptr) return;
  gather(*root_);
  use_views(*root_);
}

void DataParallel::gather(Unit& unit) {
  if (unit.resident) return;
  c_.rt.resize_storage(unit.flat, Bytes{unit.numel * item_size(unit.flat.dtype())});
  all_gather_into(c_.rt, unit.flat, unit.shard, parallel_.data, Group::data);
  unit.resident = true;
}

void DataParallel::give_back(Unit& unit) {
  c_.rt.resize_storage(unit.flat, Bytes{0});
  unit.resident = false;
}

// Parameters become views of the gathered buffer, so that their gradients meet in one flat gradient.
void DataParallel::use_views(Unit& unit) {
  if (unit.parameters.empty()) return;
  std::vector<std::int64_t> sizes;
  std::int64_t rest = unit.numel;
  for (const std::size_t i : unit.parameters) {
    sizes.push_back(c_.parameters[i].value.numel());
    rest -= sizes.back();
  }
  if (rest > 0) sizes.push_back(rest);  // padding
  const std::vector<Tensor> parts = split_with_sizes(c_.rt, unit.flat, sizes, 0);
  for (std::size_t k = 0; k < unit.parameters.size(); ++k) {
    TensorImpl& parameter = *c_.parameters[unit.parameters[k]].value.impl();
    const Tensor shaped = view(c_.rt, parts[k], parameter.shape);
    parameter.grad_fn = shaped.impl()->grad_fn;
    parameter.output_nr = shaped.impl()->output_nr;
  }
}

void DataParallel::gradient_arrived(Unit& unit, std::size_t k) {
  Eager& rt = c_.rt;
  TensorImpl& parameter = *c_.parameters[unit.parameters[k]].value.impl();
  if (parallel_.zero == 2) {
    if (!unit.gradient.defined()) {
      unit.gradient = rt.make({unit.numel}, gradient_format(c_.config, parameter.dtype));
      rt.emit(Aten::empty, {}, {&unit.gradient}, {unit.numel});
    }
    const Tensor place = rt.alias(unit.gradient, parameter.shape, contiguous_strides(parameter.shape));
    copy_(rt, place, parameter.grad);
  } else {
    add_(rt, unit.views[k], parameter.grad);
  }
  parameter.grad.reset();
  if (++unit.arrived < unit.parameters.size()) return;
  unit.arrived = 0;
  if (parallel_.data == 1) return;
  if (parallel_.zero == 2) {
    const Tensor whole = std::move(unit.gradient);
    unit.gradient = {};
    store_shard(unit, reduce_scatter(rt, whole, parallel_.data, 0, Group::data));
  } else if (last_micro_batch_) {
    if (parallel_.zero == 0)
      all_reduce_(rt, unit.gradient, parallel_.data, Group::data);
    else
      reduce_scatter_into(rt, unit.gradient_shard, unit.gradient, parallel_.data, Group::data);
  }
}

void DataParallel::flat_gradient_arrived(Unit& unit) {
  TensorImpl& flat = *unit.flat.impl();
  const Tensor whole = std::move(flat.grad);
  flat.grad = {};
  give_back(unit);
  const Tensor wide = to(c_.rt, whole, gradient_format(c_.config, flat.dtype));
  store_shard(unit, reduce_scatter(c_.rt, wide, parallel_.data, 0, Group::data));
}

void DataParallel::store_shard(Unit& unit, Tensor shard) {
  if (unit.gradient_shard.defined())
    add_(c_.rt, unit.gradient_shard, shard);
  else
    unit.gradient_shard = std::move(shard);
}

void DataParallel::finish_step() {
  if (root_ != nullptr) {
    give_back(*root_);
    return;
  }
  if (parallel_.data == 1 || parallel_.zero == 0) return;
  for (const auto& unit : units_)
    all_gather_into(c_.rt, unit->flat, unit->shard, parallel_.data, Group::data);
}

void DataParallel::tag_gradients() {
  for (const Parameter& p : c_.parameters)
    if (p.value.impl()->grad.defined())
      c_.rt.tag(p.value.impl()->grad, StorageClass::gradient, p.name + ".grad");
  if (parallel_.zero < 2) return;
  for (const auto& unit : units_)
    if (unit->gradient_shard.defined())
      c_.rt.tag(unit->gradient_shard, StorageClass::gradient, unit->name + ".grad");
}

}  // namespace swaplab::synth
