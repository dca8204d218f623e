// What a synthetic workload is: model, training loop, share of a parallel job.
//
// The file form (YAML or JSON, schema swaplab/workload@1) and every key's meaning: trace/synth/README.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/units.hpp"

namespace swaplab::synth {

enum class Family : std::uint8_t { decoder, encoder, vit, resnet, unet };
enum class Positions : std::uint8_t { learned, rotary, none };
enum class Activation : std::uint8_t { gelu, swiglu };
enum class Norm : std::uint8_t { layer, rms };
enum class AttentionKernel : std::uint8_t { explicit_scores, fused, fused_softmax };
enum class MaskSource : std::uint8_t { built, buffer };  // ones().triu() per call, or a registered buffer
enum class DropoutStyle : std::uint8_t { native, composite };
enum class Precision : std::uint8_t { fp32, bf16_autocast, fp16_autocast, bf16 };
enum class OptimizerKind : std::uint8_t { adamw_loop, adamw_foreach, adamw_fused, sgd };
enum class GradientFormat : std::uint8_t { as_parameters, fp32 };
enum class Recompute : std::uint8_t { none, selective, full };
enum class DataStyle : std::uint8_t { slices, separate };
enum class LossDivision : std::uint8_t { when_accumulating, always };

struct ExpertsConfig {
  std::int64_t count = 0;  // 0: a dense model
  std::int64_t top_k = 2;
  std::int64_t ffn = 0;                 // hidden size of one expert; 0: the model's ffn
  std::int64_t capacity_percent = 0;    // of tokens x top_k / count; 0: dropless
  std::int64_t imbalance_percent = 50;  // how uneven routing is: 0 equal shares
  bool operator==(const ExpertsConfig&) const = default;
};

struct ModelConfig {
  Family family = Family::decoder;
  std::int64_t layers = 12, hidden = 768, heads = 12, kv_heads = 0, ffn = 0, vocab = 50257, max_positions = 0;
  Positions positions = Positions::learned;
  Activation activation = Activation::gelu;
  Norm norm = Norm::layer;
  bool bias = true, tied_head = true, dropout = false;
  AttentionKernel attention = AttentionKernel::fused;
  MaskSource mask = MaskSource::built;
  DropoutStyle dropout_kernel = DropoutStyle::native;
  std::int64_t loss_chunks = 1;
  bool upcast_logits = true;
  ExpertsConfig experts;
  // Images.
  std::int64_t image_size = 224, patch = 16, classes = 1000, depth = 50, channels = 128;
  std::vector<std::int64_t> channel_factors = {1, 2, 2, 4};  // U-Net, one per resolution
  std::int64_t blocks_per_level = 2, in_channels = 3;
};

struct TrainingConfig {
  std::int64_t iterations = 3, batch = 8, accumulation = 1;
  std::vector<std::int64_t> sequence = {1024};  // in turn per micro-batch
  Precision precision = Precision::bf16_autocast;
  OptimizerKind optimizer = OptimizerKind::adamw_fused;
  bool master_weights = false;                               // fp32 copies of 16-bit parameters
  GradientFormat gradients = GradientFormat::as_parameters;  // fp32: main gradients, added into
  bool clip_gradients = false, loss_scaling = false;
  Recompute recompute = Recompute::none;
  std::int64_t recompute_stride = 1;  // full: of every so many blocks the first
  std::int64_t validation_every = 0;
  std::vector<std::int64_t> skip_steps;  // iterations (train and validation counted together)
  bool read_loss = true;                 // the host reads the loss after each step
  DataStyle data = DataStyle::slices;
  LossDivision loss_division = LossDivision::when_accumulating;
};

struct ParallelConfig {
  std::int64_t tensor = 1;
  bool sequence = false;
  std::int64_t pipeline = 1, stage = 0;
  std::int64_t data = 1, zero = 0;
  std::int64_t bucket_mib = 25;
  std::int64_t expert = 1;
};

struct WorkloadConfig {
  std::string name;
  std::uint64_t seed = 0;
  std::string device = "cuda:0";
  ModelConfig model;
  TrainingConfig training;
  ParallelConfig parallel;
};

// Parses YAML or JSON text; `overrides` are "model.layers=48" pairs. Throws Error(input) with file and line
// for unknown keys (with "did you mean"), wrong types, ranges and combinations; Error(usage) for bad
// overrides.
WorkloadConfig parse_workload(const std::string& text, const std::string& file_name,
                              std::span<const std::string> overrides = {});
// A file, or the name of one in a workload folder ($SWAPLAB_WORKLOADS, then configs/workloads).
WorkloadConfig load_workload(const std::string& name_or_path, std::span<const std::string> overrides = {});

struct WorkloadListing {
  std::string name, summary, path;
};
std::vector<WorkloadListing> list_workloads();

// Every key with its default, form and meaning, one per line.
std::string workload_reference();
// The resolved description as one JSON object without spaces.
std::string workload_json(const WorkloadConfig& config);

// Checks combinations; throws Error(input) that names the keys.
void check_workload(const WorkloadConfig& config);

}  // namespace swaplab::synth
