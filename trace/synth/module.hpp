// Parameters and the layers that all architectures share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/synth/collectives.hpp"
#include "trace/synth/config.hpp"
#include "trace/synth/ops.hpp"

namespace swaplab::synth {

struct Parameter {
  std::string name;
  Tensor value;
};

// How parameters are laid out in flat buffers (data_parallel.hpp); empty: each has its own storage.
struct ParameterPlan {
  std::vector<std::size_t> unit_of;         // by parameter
  std::vector<std::int64_t> offset;         // elements, inside its unit
  std::vector<std::int64_t> unit_numel;     // padded to the number of ranks
  bool flatten_values = false;              // values are views of a buffer per unit
  bool whole_storage_is_temporary = false;  // which has bytes only while it is gathered
};

// What building and running a model needs besides the runtime.
struct Context {
  Eager& rt;
  const WorkloadConfig& config;
  std::vector<Parameter>& parameters;  // in registration order
  std::vector<Parameter>& buffers;
  const ParameterPlan* plan = nullptr;
  std::vector<Tensor> flats;         // by unit, where the plan flattens values
  bool training = true;              // dropout is active
  std::uint64_t forward_passes = 0;  // micro-batches so far: routing changes with it
  Tensor cosine, sine;               // rotary tables of this forward pass

  DType parameter_format() const {
    return config.training.precision == Precision::bf16 ? DType::bfloat16 : DType::float32;
  }
  // Whether block `i` is recomputed as a whole.
  bool recomputes(std::size_t i) const {
    return training && config.training.recompute == Recompute::full &&
           i % static_cast<std::size_t>(config.training.recompute_stride) == 0;
  }
  // A trainable parameter that lives from before the program.
  Tensor parameter(const std::string& name, const Shape& shape);
  Tensor buffer(const std::string& name, const Shape& shape, DType dtype);
};

// How a linear layer is divided over the ranks of the tensor-parallel group.
enum class Partition : std::uint8_t {
  none,
  column,  // outputs divided; the input is whole (or gathered along the sequence)
  row,     // inputs divided; the output is summed (or scattered along the sequence)
};

class Linear {
 public:
  Linear() = default;
  Linear(Context& c, const std::string& name, std::int64_t in, std::int64_t out, bool bias,
         Partition partition = Partition::none);
  Tensor forward(Context& c, const Tensor& x) const;
  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_, bias_;
  Partition partition_ = Partition::none;
};

class Normalization {
 public:
  Normalization() = default;
  Normalization(Context& c, const std::string& name, std::int64_t width);
  Tensor forward(Context& c, const Tensor& x) const;

 private:
  Tensor weight_, bias_;
  Norm kind_ = Norm::layer;
};

Tensor dropout(Context& c, const Tensor& x);

// Self-attention of transformers.
class Attention {
 public:
  Attention() = default;
  Attention(Context& c, const std::string& name, bool causal);
  Tensor forward(Context& c, Tensor x) const;

 private:
  Tensor core(Context& c, const Tensor& q, const Tensor& k, const Tensor& v) const;
  Tensor scores(Context& c, const Tensor& q, const Tensor& k, const Tensor& v) const;
  Tensor rotate(Context& c, const Tensor& x) const;
  Linear qkv_, q_, k_, v_, proj_;
  Tensor mask_;
  std::int64_t heads_ = 0, kv_heads_ = 0, head_size_ = 0;  // of this rank
  bool causal_ = true, fused_projection_ = true;
};

class Mlp {
 public:
  Mlp() = default;
  Mlp(Context& c, const std::string& name, std::int64_t width, std::int64_t hidden,
      Partition up = Partition::column, Partition down = Partition::row);
  Tensor forward(Context& c, Tensor x) const;

 private:
  Linear up_, gate_, down_;
  Activation activation_ = Activation::gelu;
  bool fused_gate_ = false;
};

}  // namespace swaplab::synth
