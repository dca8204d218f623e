// Every parameter of the `chameleon` policy and of `swaplab plan`: the keys of the public configuration
// under their own names, and switches for what the executor does.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "policy/chameleon/generator.hpp"
#include "policy/policy.hpp"

namespace swaplab::chameleon {

// Bytes, or a share of the budget: the public values are made for one device of 64 GiB.
struct Amount {
  Bytes bytes{0};
  Ppm share = -1;  // >= 0: of the budget, and `bytes` is not used
  Bytes of(Bytes budget) const;
};

struct ChameleonParams {
  std::string preset = "scaled";
  // Generator (public keys).
  std::string version = "v1", layer_rule = "equal";
  std::int64_t n_layers = 1;
  std::int64_t duration_ns = 0;  // duration_s; 0: as measured
  std::int64_t d2h_bandwidth = 25600, h2d_bandwidth = 25600;
  Amount tensor_size_filter, reduction_memory, target_memory, redundant_memory, adjust_memory;
  std::string target_mode = "false", is_oom = "false";
  std::int64_t size_coverage_weight = 2, free_stage_delay = 4, swap_in_free_stage_delay = 2;
  std::int64_t attn_per_stage = 1, bucket = -1;
  std::string pref = "BETTER_PERFORMANCE";
  // Detector and stages.
  std::string detector = "length+cosine", similarity = "sequence";
  Ppm op_diff_thresh = 50'000, cosine_thresh = 950'000;
  std::int64_t warmup_step = 2, stable_step = 3;
  // Executor.
  std::string match = "fuzzy", swap_out = "on", swap_in = "on", order = "lifo", release = "planned";
  std::string passive_swap_out = "any", synchronous_oom = "on", oom_feedback = "on";
  // Host time of the system's own work, per operator: what bench_chameleon measured, rounded up.
  std::string profiler = "own";
  std::int64_t light_ns = 2, detailed_ns = 25, conventional_ns = 65, match_ns = 10, generate_ns = 100;

  ChameleonParams();  // the preset `scaled`
};

ChameleonParams public_defaults();
std::vector<Parameter<ChameleonParams>> chameleon_parameters();

// "chameleon" or "chameleon:k=v,k=v". Throws Error(usage) with a suggestion.
ChameleonParams parse_chameleon(std::string_view text);

// Amounts become bytes of this budget.
GeneratorParams generator_params(const ChameleonParams& params, Bytes budget);

}  // namespace swaplab::chameleon
