#include "trace/synth/config_keys.hpp"

#include <charconv>
#include <optional>

#include "trace/error.hpp"

namespace swaplab::synth {
namespace {

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

using IntegerOf = std::int64_t& (*)(WorkloadConfig&);
constexpr std::int64_t kLargest = std::int64_t{1} << 40;

ConfigKey integer(std::string_view path, IntegerOf of, std::int64_t least, std::string_view meaning,
                  std::int64_t most = kLargest) {
  ConfigKey key;
  key.path = path;
  key.form =
      "integer >= " + std::to_string(least) + (most < kLargest ? " and <= " + std::to_string(most) : "");
  key.meaning = meaning;
  key.set = [of, least, most, form = key.form](WorkloadConfig& c, const std::string& text) -> std::string {
    const auto value = whole_number(text);
    if (!value || *value < least || *value > most) return "'" + text + "' is not an " + form;
    of(c) = *value;
    return {};
  };
  // The accessor only hands out the member.
  key.get = [of](const WorkloadConfig& c) { return std::to_string(of(const_cast<WorkloadConfig&>(c))); };
  return key;
}

ConfigKey flag(std::string_view path, bool& (*of)(WorkloadConfig&), std::string_view meaning) {
  ConfigKey key;
  key.path = path;
  key.form = "yes or no";
  key.meaning = meaning;
  key.set = [of](WorkloadConfig& c, const std::string& text) -> std::string {
    if (text != "yes" && text != "true" && text != "no" && text != "false")
      return "'" + text + "' is neither yes nor no";
    of(c) = text == "yes" || text == "true";
    return {};
  };
  key.get = [of](const WorkloadConfig& c) { return of(const_cast<WorkloadConfig&>(c)) ? "true" : "false"; };
  return key;
}

template <class Enum>
ConfigKey choice(std::string_view path, Enum& (*of)(WorkloadConfig&), std::vector<std::string> names,
                 std::string_view meaning) {
  ConfigKey key;
  key.path = path;
  key.form = "one of ";
  for (std::size_t i = 0; i < names.size(); ++i) key.form += (i > 0 ? ", " : "") + names[i];
  key.meaning = meaning;
  key.set = [of, names, form = key.form](WorkloadConfig& c, const std::string& text) -> std::string {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] != text) continue;
      of(c) = static_cast<Enum>(i);
      return {};
    }
    return "'" + text + "' is not " + form + did_you_mean(text, names);
  };
  key.get = [of, names](const WorkloadConfig& c) {
    return '"' + names[static_cast<std::size_t>(of(const_cast<WorkloadConfig&>(c)))] + '"';
  };
  return key;
}

ConfigKey integers(std::string_view path, std::vector<std::int64_t>& (*of)(WorkloadConfig&),
                   std::int64_t least, bool may_be_empty, std::string_view meaning) {
  ConfigKey key;
  key.path = path;
  key.form = "integers >= " + std::to_string(least) + ", separated by commas";
  key.meaning = meaning;
  key.list = true;
  key.set = [of, least, may_be_empty, form = key.form](WorkloadConfig& c,
                                                       const std::string& text) -> std::string {
    std::vector<std::int64_t> values;
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t comma = std::min(text.find(',', start), text.size());
      const auto value = whole_number(std::string_view(text).substr(start, comma - start));
      if (!value || *value < least || *value > kLargest) return "'" + text + "' is not " + form;
      values.push_back(*value);
      start = comma + 1;
    }
    if (values.empty() && !may_be_empty) return "needs at least one number";
    of(c) = std::move(values);
    return {};
  };
  key.get = [of](const WorkloadConfig& c) {
    std::string text = "[";
    for (const std::int64_t v : of(const_cast<WorkloadConfig&>(c)))
      text += (text.size() > 1 ? "," : "") + std::to_string(v);
    return text + "]";
  };
  return key;
}

// NOLINTNEXTLINE(bugprone-macro-parentheses): `member` is a chain of members
#define FIELD(member) [](WorkloadConfig& c) -> decltype(c.member)& { return c.member; }

std::vector<ConfigKey> make_keys() {
  std::vector<ConfigKey> k;
  ConfigKey seed;
  seed.path = "seed";
  seed.form = "integer >= 0";
  seed.meaning = "of expert routing, the only thing that is random";
  seed.set = [](WorkloadConfig& c, const std::string& text) -> std::string {
    const auto value = whole_number(text);
    if (!value || *value < 0) return "'" + text + "' is not an integer >= 0";
    c.seed = static_cast<std::uint64_t>(*value);
    return {};
  };
  seed.get = [](const WorkloadConfig& c) { return std::to_string(c.seed); };
  k.push_back(std::move(seed));
  ConfigKey device;
  device.path = "device";
  device.form = "cuda:N or cpu";
  device.meaning = "where the tensors are";
  device.set = [](WorkloadConfig& c, const std::string& text) -> std::string {
    const bool cuda = text.starts_with("cuda:") && whole_number(text.substr(5)).value_or(-1) >= 0;
    if (!cuda && text != "cpu") return "'" + text + "' is neither cuda:N nor cpu";
    c.device = text;
    return {};
  };
  device.get = [](const WorkloadConfig& c) { return '"' + c.device + '"'; };
  k.push_back(std::move(device));

  k.push_back(choice<Family>("model.family", FIELD(model.family),
                             {"decoder", "encoder", "vit", "resnet", "unet"},
                             "GPT and Llama; BERT; ViT; ResNet; diffusion U-Net"));
  k.push_back(integer("model.layers", FIELD(model.layers), 1, "transformer blocks", 10'000));
  k.push_back(integer("model.hidden", FIELD(model.hidden), 1, "width of the residual stream"));
  k.push_back(integer("model.heads", FIELD(model.heads), 1, "attention heads (of the queries)"));
  k.push_back(
      integer("model.kv_heads", FIELD(model.kv_heads), 0, "heads of keys and values; 0: as many as heads"));
  k.push_back(integer("model.ffn", FIELD(model.ffn), 0, "hidden width of the MLP; 0: 4 x hidden"));
  k.push_back(integer("model.vocab", FIELD(model.vocab), 1, "rows of the embedding"));
  k.push_back(integer("model.max_positions", FIELD(model.max_positions), 0,
                      "rows of learned positions and of the mask buffer; 0: the longest sequence"));
  k.push_back(choice<Positions>("model.positions", FIELD(model.positions), {"learned", "rotary", "none"},
                                "how positions enter"));
  k.push_back(
      choice<Activation>("model.activation", FIELD(model.activation), {"gelu", "swiglu"}, "of the MLP"));
  k.push_back(choice<Norm>("model.norm", FIELD(model.norm), {"layer", "rms"},
                           "LayerNorm kernel, or RMSNorm operators"));
  k.push_back(flag("model.bias", FIELD(model.bias), "biases in linear layers"));
  k.push_back(flag("model.tied_head", FIELD(model.tied_head), "the output embedding is the input embedding"));
  k.push_back(
      flag("model.dropout", FIELD(model.dropout), "dropout after embedding, attention weights and blocks"));
  k.push_back(choice<AttentionKernel>("model.attention", FIELD(model.attention),
                                      {"explicit", "fused", "fused-softmax"},
                                      "score matrix in memory; one flash-attention kernel; or explicit with "
                                      "Megatron's scale-mask-softmax kernel"));
  k.push_back(choice<MaskSource>("model.mask", FIELD(model.mask), {"built", "buffer"},
                                 "causal mask of explicit attention: made per call, or a registered buffer"));
  k.push_back(choice<DropoutStyle>("model.dropout_kernel", FIELD(model.dropout_kernel),
                                   {"native", "composite"},
                                   "GPU kernel with a boolean mask, or the CPU's four operators"));
  k.push_back(integer("model.loss_chunks", FIELD(model.loss_chunks), 1,
                      "cross-entropy in this many pieces of the sequence, logits made again backward"));
  k.push_back(flag("model.upcast_logits", FIELD(model.upcast_logits), "loss of 16-bit logits in float32"));
  k.push_back(integer("model.experts.count", FIELD(model.experts.count), 0, "experts per layer; 0: dense"));
  k.push_back(
      integer("model.experts.top_k", FIELD(model.experts.top_k), 1, "experts that each token goes to"));
  k.push_back(
      integer("model.experts.ffn", FIELD(model.experts.ffn), 0, "hidden width of an expert; 0: model.ffn"));
  k.push_back(integer("model.experts.capacity_percent", FIELD(model.experts.capacity_percent), 0,
                      "limit of an expert in per cent of its equal share; 0: dropless"));
  k.push_back(integer("model.experts.imbalance_percent", FIELD(model.experts.imbalance_percent), 0,
                      "unevenness of routing; 0: equal shares", 100));
  k.push_back(integer("model.image_size", FIELD(model.image_size), 1, "pixels per side"));
  k.push_back(integer("model.patch", FIELD(model.patch), 1, "pixels per side of a ViT patch"));
  k.push_back(integer("model.classes", FIELD(model.classes), 1, "of an image classifier"));
  k.push_back(integer("model.depth", FIELD(model.depth), 18, "of a ResNet: 18, 34, 50, 101, 152"));
  k.push_back(
      integer("model.channels", FIELD(model.channels), 32, "of a U-Net's first level, a multiple of 32"));
  k.push_back(integers("model.channel_factors", FIELD(model.channel_factors), 1, false,
                       "width of each U-Net level in units of channels"));
  k.push_back(
      integer("model.blocks_per_level", FIELD(model.blocks_per_level), 1, "residual blocks on the way down"));
  k.push_back(integer("model.in_channels", FIELD(model.in_channels), 1, "of the images"));

  k.push_back(integer("training.iterations", FIELD(training.iterations), 1, "training iterations"));
  k.push_back(
      integer("training.batch", FIELD(training.batch), 1, "sequences or images per micro-batch and rank"));
  k.push_back(integers("training.sequence", FIELD(training.sequence), 1, false,
                       "tokens per sequence, in turn per micro-batch"));
  k.push_back(integer("training.accumulation", FIELD(training.accumulation), 1,
                      "micro-batches per optimizer step (those of a pipeline too)"));
  k.push_back(choice<Precision>("training.precision", FIELD(training.precision),
                                {"fp32", "bf16-autocast", "fp16-autocast", "bf16"},
                                "number formats; autocast keeps fp32 parameters"));
  k.push_back(choice<OptimizerKind>("training.optimizer", FIELD(training.optimizer),
                                    {"adamw-loop", "adamw-foreach", "adamw-fused", "sgd"},
                                    "AdamW per parameter, list-wise or fused; SGD with momentum"));
  k.push_back(flag("training.master_weights", FIELD(training.master_weights),
                   "fp32 copies of the parameters in the optimizer (precision bf16)"));
  k.push_back(choice<GradientFormat>("training.gradients", FIELD(training.gradients),
                                     {"as-parameters", "fp32"},
                                     "fp32: Megatron's main gradients, which each gradient is added into"));
  k.push_back(
      flag("training.clip_gradients", FIELD(training.clip_gradients), "clip the global gradient norm"));
  k.push_back(flag("training.loss_scaling", FIELD(training.loss_scaling),
                   "GradScaler: scale, unscale, read overflow"));
  k.push_back(choice<Recompute>("training.recompute", FIELD(training.recompute),
                                {"none", "selective", "full"},
                                "activations made again backward: attention core, or whole blocks"));
  k.push_back(integer("training.recompute_stride", FIELD(training.recompute_stride), 1,
                      "full recomputation of only the first of every so many blocks"));
  k.push_back(integer("training.validation_every", FIELD(training.validation_every), 0,
                      "a validation iteration after every so many; 0: none"));
  k.push_back(integers("training.skip_steps", FIELD(training.skip_steps), 0, true,
                       "iterations without an optimizer step (validation counted too)"));
  k.push_back(
      flag("training.read_loss", FIELD(training.read_loss), "the host reads the loss after each step"));
  k.push_back(choice<DataStyle>("training.data", FIELD(training.data), {"slices", "separate"},
                                "input and target cut from one tensor, or two tensors"));
  k.push_back(choice<LossDivision>("training.loss_division", FIELD(training.loss_division),
                                   {"when-accumulating", "always"},
                                   "divide the loss by the accumulation count"));

  k.push_back(integer("parallel.tensor", FIELD(parallel.tensor), 1, "tensor-parallel ranks"));
  k.push_back(
      flag("parallel.sequence", FIELD(parallel.sequence), "sequence parallelism over the tensor ranks"));
  k.push_back(integer("parallel.pipeline", FIELD(parallel.pipeline), 1, "pipeline stages (1F1B schedule)"));
  k.push_back(integer("parallel.stage", FIELD(parallel.stage), 0, "the stage of this rank"));
  k.push_back(integer("parallel.data", FIELD(parallel.data), 1, "data-parallel ranks"));
  k.push_back(integer("parallel.zero", FIELD(parallel.zero), 0,
                      "sharded: 1 optimizer state, 2 + gradients, 3 + parameters", 3));
  k.push_back(integer("parallel.bucket_mib", FIELD(parallel.bucket_mib), 1, "MiB of gradients per collective",
                      1 << 20));
  k.push_back(integer("parallel.expert", FIELD(parallel.expert), 1, "expert-parallel ranks"));
  return k;
}

#undef FIELD

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

}  // namespace swaplab::synth
