#include "sim/cost_model.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

struct ClassPrefix {
  std::string_view prefix;
  OpClass cls;
};

// Names without namespace, overload and leading underscores. An entry covers the name itself and
// name_<suffix> (in-place, backward, backend variants); the longest entry wins.
constexpr ClassPrefix kPrefixes[] = {
    // Products of matrices run on the tensor units.
    {"mm", OpClass::matmul},
    {"addmm", OpClass::matmul},
    {"bmm", OpClass::matmul},
    {"baddbmm", OpClass::matmul},
    {"addbmm", OpClass::matmul},
    {"matmul", OpClass::matmul},
    {"linear", OpClass::matmul},
    {"scaled_mm", OpClass::matmul},
    {"scaled_grouped_mm", OpClass::matmul},
    {"grouped_mm", OpClass::matmul},
    {"int_mm", OpClass::matmul},
    {"addmv", OpClass::matmul},
    {"mv", OpClass::matmul},
    {"dot", OpClass::matmul},
    {"vdot", OpClass::matmul},
    {"einsum", OpClass::matmul},
    // Fused attention.
    {"scaled_dot_product", OpClass::attention},
    {"flash", OpClass::attention},
    {"efficient_attention", OpClass::attention},
    {"cudnn_attention", OpClass::attention},
    {"fused_sdp", OpClass::attention},
    {"flex_attention", OpClass::attention},
    {"npu_fusion_attention", OpClass::attention},
    {"native_multi_head_attention", OpClass::attention},
    // Convolutions, forward and backward.
    {"convolution", OpClass::convolution},
    {"cudnn_convolution", OpClass::convolution},
    {"mkldnn_convolution", OpClass::convolution},
    {"miopen_convolution", OpClass::convolution},
    {"conv1d", OpClass::convolution},
    {"conv2d", OpClass::convolution},
    {"conv3d", OpClass::convolution},
    {"conv_transpose1d", OpClass::convolution},
    {"conv_transpose2d", OpClass::convolution},
    {"conv_transpose3d", OpClass::convolution},
    {"conv_depthwise2d", OpClass::convolution},
    {"conv_depthwise3d", OpClass::convolution},
    {"slow_conv2d", OpClass::convolution},
    {"slow_conv3d", OpClass::convolution},
    {"thnn_conv2d", OpClass::convolution},
    // Normalisations read their input twice.
    {"batch_norm", OpClass::normalization},
    {"native_batch_norm", OpClass::normalization},
    {"cudnn_batch_norm", OpClass::normalization},
    {"miopen_batch_norm", OpClass::normalization},
    {"layer_norm", OpClass::normalization},
    {"native_layer_norm", OpClass::normalization},
    {"group_norm", OpClass::normalization},
    {"native_group_norm", OpClass::normalization},
    {"instance_norm", OpClass::normalization},
    {"rms_norm", OpClass::normalization},
    {"fused_rms_norm", OpClass::normalization},
    {"weight_norm", OpClass::normalization},
    {"weight_norm_interface", OpClass::normalization},
    // Reductions along one or more dimensions.
    {"sum", OpClass::reduction},
    {"nansum", OpClass::reduction},
    {"mean", OpClass::reduction},
    {"prod", OpClass::reduction},
    {"amax", OpClass::reduction},
    {"amin", OpClass::reduction},
    {"aminmax", OpClass::reduction},
    {"max", OpClass::reduction},
    {"min", OpClass::reduction},
    {"argmax", OpClass::reduction},
    {"argmin", OpClass::reduction},
    {"any", OpClass::reduction},
    {"all", OpClass::reduction},
    {"var", OpClass::reduction},
    {"var_mean", OpClass::reduction},
    {"std", OpClass::reduction},
    {"std_mean", OpClass::reduction},
    {"norm", OpClass::reduction},
    {"linalg_vector_norm", OpClass::reduction},
    {"softmax", OpClass::reduction},
    {"log_softmax", OpClass::reduction},
    {"safe_softmax", OpClass::reduction},
    {"masked_softmax", OpClass::reduction},
    {"logsumexp", OpClass::reduction},
    {"cumsum", OpClass::reduction},
    {"cumprod", OpClass::reduction},
    {"topk", OpClass::reduction},
    {"sort", OpClass::reduction},
    {"nll_loss", OpClass::reduction},
    {"nll_loss2d", OpClass::reduction},
    {"cross_entropy_loss", OpClass::reduction},
    {"mse_loss", OpClass::reduction},
    {"l1_loss", OpClass::reduction},
    {"smooth_l1_loss", OpClass::reduction},
    {"huber_loss", OpClass::reduction},
    {"binary_cross_entropy", OpClass::reduction},
    {"binary_cross_entropy_with_logits", OpClass::reduction},
    {"avg_pool2d", OpClass::reduction},
    {"avg_pool3d", OpClass::reduction},
    {"adaptive_avg_pool2d", OpClass::reduction},
    {"adaptive_avg_pool3d", OpClass::reduction},
    {"max_pool2d", OpClass::reduction},
    {"max_pool3d", OpClass::reduction},
    {"adaptive_max_pool2d", OpClass::reduction},
    {"embedding_dense_backward", OpClass::reduction},
    {"bincount", OpClass::reduction},
    {"histc", OpClass::reduction},
    // Optimizer kernels over many tensors at once.
    {"foreach", OpClass::optimizer},
    {"fused_adam", OpClass::optimizer},
    {"fused_adamw", OpClass::optimizer},
    {"fused_adagrad", OpClass::optimizer},
    {"fused_sgd", OpClass::optimizer},
    {"amp_foreach", OpClass::optimizer},
    {"multi_tensor", OpClass::optimizer},
    // Copies, fills, gathers and scatters.
    {"clone", OpClass::copy},
    {"copy", OpClass::copy},
    {"to_copy", OpClass::copy},
    {"contiguous", OpClass::copy},
    {"cat", OpClass::copy},
    {"stack", OpClass::copy},
    {"split_with_sizes_copy", OpClass::copy},
    {"chunk_cat", OpClass::copy},
    {"repeat", OpClass::copy},
    {"flip", OpClass::copy},
    {"roll", OpClass::copy},
    {"constant_pad_nd", OpClass::copy},
    {"zero", OpClass::copy},
    {"fill", OpClass::copy},
    {"zeros", OpClass::copy},
    {"ones", OpClass::copy},
    {"full", OpClass::copy},
    {"new_zeros", OpClass::copy},
    {"new_ones", OpClass::copy},
    {"new_full", OpClass::copy},
    {"embedding", OpClass::copy},
    {"index", OpClass::copy},
    {"index_select", OpClass::copy},
    {"unsafe_index", OpClass::copy},
    {"gather", OpClass::copy},
    {"scatter", OpClass::copy},
    {"slice_backward", OpClass::copy},
    {"select_backward", OpClass::copy},
    {"slice_scatter", OpClass::copy},
    {"select_scatter", OpClass::copy},
    {"as_strided_scatter", OpClass::copy},
    {"pin_memory", OpClass::copy},
    // One result element from one element of each input.
    {"add", OpClass::elementwise},
    {"sub", OpClass::elementwise},
    {"rsub", OpClass::elementwise},
    {"mul", OpClass::elementwise},
    {"div", OpClass::elementwise},
    {"remainder", OpClass::elementwise},
    {"floor_divide", OpClass::elementwise},
    {"addcmul", OpClass::elementwise},
    {"addcdiv", OpClass::elementwise},
    {"lerp", OpClass::elementwise},
    {"neg", OpClass::elementwise},
    {"abs", OpClass::elementwise},
    {"sign", OpClass::elementwise},
    {"sqrt", OpClass::elementwise},
    {"rsqrt", OpClass::elementwise},
    {"reciprocal", OpClass::elementwise},
    {"pow", OpClass::elementwise},
    {"square", OpClass::elementwise},
    {"exp", OpClass::elementwise},
    {"expm1", OpClass::elementwise},
    {"log", OpClass::elementwise},
    {"log1p", OpClass::elementwise},
    {"log2", OpClass::elementwise},
    {"sin", OpClass::elementwise},
    {"cos", OpClass::elementwise},
    {"tanh", OpClass::elementwise},
    {"erf", OpClass::elementwise},
    {"sigmoid", OpClass::elementwise},
    {"log_sigmoid", OpClass::elementwise},
    {"logit", OpClass::elementwise},
    {"relu", OpClass::elementwise},
    {"leaky_relu", OpClass::elementwise},
    {"threshold", OpClass::elementwise},
    {"gelu", OpClass::elementwise},
    {"silu", OpClass::elementwise},
    {"mish", OpClass::elementwise},
    {"elu", OpClass::elementwise},
    {"softplus", OpClass::elementwise},
    {"hardtanh", OpClass::elementwise},
    {"hardswish", OpClass::elementwise},
    {"hardsigmoid", OpClass::elementwise},
    {"glu", OpClass::elementwise},
    {"clamp", OpClass::elementwise},
    {"maximum", OpClass::elementwise},
    {"minimum", OpClass::elementwise},
    {"where", OpClass::elementwise},
    {"masked_fill", OpClass::elementwise},
    {"tril", OpClass::elementwise},
    {"triu", OpClass::elementwise},
    {"arange", OpClass::elementwise},
    {"isnan", OpClass::elementwise},
    {"isinf", OpClass::elementwise},
    {"isfinite", OpClass::elementwise},
    {"eq", OpClass::elementwise},
    {"ne", OpClass::elementwise},
    {"lt", OpClass::elementwise},
    {"le", OpClass::elementwise},
    {"gt", OpClass::elementwise},
    {"ge", OpClass::elementwise},
    {"logical_not", OpClass::elementwise},
    {"logical_and", OpClass::elementwise},
    {"logical_or", OpClass::elementwise},
    {"bitwise_not", OpClass::elementwise},
    {"bitwise_and", OpClass::elementwise},
    {"bitwise_or", OpClass::elementwise},
    {"dropout", OpClass::elementwise},
    {"native_dropout", OpClass::elementwise},
    {"fused_dropout", OpClass::elementwise},
    {"bernoulli", OpClass::elementwise},
    {"rand", OpClass::elementwise},
    {"rand_like", OpClass::elementwise},
    {"randn", OpClass::elementwise},
    {"randn_like", OpClass::elementwise},
    {"uniform", OpClass::elementwise},
    {"normal", OpClass::elementwise},
};

bool covers(std::string_view prefix, std::string_view name) {
  return name.starts_with(prefix) && (name.size() == prefix.size() || name[prefix.size()] == '_');
}

// "aten._softmax.int" and "aten::_softmax" -> "softmax".
std::string_view base_name(std::string_view name) {
  if (const auto colons = name.rfind("::"); colons != std::string_view::npos) {
    name.remove_prefix(colons + 2);
  } else if (const auto dot = name.find('.'); dot != std::string_view::npos) {
    name.remove_prefix(dot + 1);
  }
  if (const auto dot = name.find('.'); dot != std::string_view::npos) name = name.substr(0, dot);
  name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
  return name;
}

enum class NumberFormat { none, fp32, fp16, bf16, fp64 };

NumberFormat number_format(std::string_view dtype) {
  if (dtype.starts_with("torch.")) dtype.remove_prefix(6);
  constexpr std::pair<std::string_view, NumberFormat> names[] = {
      {"float32", NumberFormat::fp32},   {"float", NumberFormat::fp32},   {"complex64", NumberFormat::fp32},
      {"float16", NumberFormat::fp16},   {"half", NumberFormat::fp16},    {"complex32", NumberFormat::fp16},
      {"bfloat16", NumberFormat::bf16},  {"float64", NumberFormat::fp64}, {"double", NumberFormat::fp64},
      {"complex128", NumberFormat::fp64}};
  for (const auto& [text, format] : names)
    if (dtype == text) return format;
  return dtype.starts_with("float8_") ? NumberFormat::fp16 : NumberFormat::none;
}

// First floating-point dtype of "in" or "out": tensors are [[shape], dtype], lists of them may nest.
NumberFormat first_format(const nlohmann::json& tensors) {
  if (tensors.is_string()) return number_format(tensors.get_ref<const std::string&>());
  if (!tensors.is_array()) return NumberFormat::none;
  for (const nlohmann::json& element : tensors)
    if (const NumberFormat format = first_format(element); format != NumberFormat::none) return format;
  return NumberFormat::none;
}

NumberFormat signature_format(std::string_view detail) {
  const auto json = nlohmann::json::parse(detail.begin(), detail.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return NumberFormat::none;
  for (const char* side : {"in", "out"})
    if (const auto tensors = json.find(side); tensors != json.end())
      if (const NumberFormat format = first_format(*tensors); format != NumberFormat::none) return format;
  return NumberFormat::none;
}

std::int64_t peak_rate(const FlopRates& rates, NumberFormat format, OpClass cls) {
  switch (format) {
    case NumberFormat::fp16:
      return rates.fp16;
    case NumberFormat::bf16:
      return rates.bf16;
    case NumberFormat::fp64:
      return rates.fp64;
    case NumberFormat::fp32:
    case NumberFormat::none:
      break;
  }
  return cls == OpClass::convolution ? rates.tf32 : rates.fp32;
}

// ceil(amount / (per_second * share)) in nanoseconds.
std::int64_t duration(std::int64_t amount, std::int64_t per_second, Ppm share) {
  constexpr Wide nanos_times_ppm = static_cast<Wide>(1'000'000'000) * kUnchanged;
  return ceil_div_wide(amount * nanos_times_ppm, static_cast<Wide>(per_second) * share);
}

}  // namespace

OpClass classify_operator(std::string_view name) {
  const std::string_view base = base_name(name);
  const ClassPrefix* best = nullptr;
  for (const ClassPrefix& entry : kPrefixes)
    if (covers(entry.prefix, base) && (best == nullptr || entry.prefix.size() > best->prefix.size()))
      best = &entry;
  return best == nullptr ? OpClass::other : best->cls;
}

Nanos model_device_time(const Trace& trace, SigId signature, const Machine& machine) {
  const SignatureColumns& sigs = trace.signatures;
  const auto i = index(signature);
  if (sigs.view[i] != 0) return {0};
  const std::string_view name = trace.names[sigs.name[i]];
  const std::int64_t flop = sigs.flop[i];
  const Bytes read = sigs.read[i], written = sigs.written[i];
  if (flop < 0 && read.value < 0 && written.value < 0)
    throw Error(ErrorKind::input,
                "operator '" + std::string(name) + "' (signature " + std::to_string(i) +
                    ") has neither FLOP nor bytes: its device time cannot be modelled; record "
                    "`flop`, `rb` and `wb`, or device times");
  // What is unknown beside a known figure counts as nothing; without any work there is no kernel.
  const std::int64_t work = std::max<std::int64_t>(flop, 0);
  const Wide bytes =
      static_cast<Wide>(std::max<std::int64_t>(read.value, 0)) + std::max<std::int64_t>(written.value, 0);
  if (work == 0 && bytes == 0) return {0};
  const OpClass cls = classify_operator(name);
  const Efficiency& efficiency = machine.efficiency[static_cast<std::size_t>(cls)];
  const std::int64_t rate = peak_rate(machine.flop_rates, signature_format(trace.names[sigs.detail[i]]), cls);
  const std::int64_t moved = bytes > kSaturated ? kSaturated : static_cast<std::int64_t>(bytes);
  return {std::max({duration(work, rate, efficiency.compute),
                    duration(moved, machine.hbm_bytes_per_second, efficiency.memory),
                    machine.kernel_floor.value})};
}

}  // namespace swaplab
