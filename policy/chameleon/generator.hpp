// The public plan generator of Chameleon / SmartSwap, v1 and v2, over an integer profile.
//
// Semantics: those of the public code (Ascend/MindSpeed, mindspeed/core/memory/smart_swap) to the
// letter, its known faults included; what it leaves to object addresses is decided by ascending
// storage id. policy/chameleon/README.md states each rule and where this project had to choose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policy/chameleon/profile.hpp"

namespace swaplab::chameleon {

enum class GeneratorVersion : std::uint8_t { v1, v2 };
enum class LayerRule : std::uint8_t {
  equal_counts,  // v1: each direction cut into layers of equal operator count
  single,        // v1 as published at HEAD: a slip leaves one layer per direction
};

// Public defaults (swap_policy_config.py). Rates in MiB/s, as there.
struct GeneratorParams {
  GeneratorVersion version = GeneratorVersion::v1;
  LayerRule layer_rule = LayerRule::equal_counts;
  std::int64_t n_layers = 1;  // blocks of the model; -1: one logical layer per operator
  std::int64_t d2h_mib_per_s = 25600, h2d_mib_per_s = 25600;
  Bytes tensor_size_filter{20LL << 20};
  bool target_mode = false;               // false: peak - reduction_memory; true: target_memory
  Bytes reduction_memory{3LL << 30};      //
  Bytes target_memory{40LL << 30};        //
  Bytes redundant_memory{2LL << 30};      // reserve below the peak after a failed allocation
  Bytes adjust_memory{300LL << 20};       // by which the reserve grows for a forced swap-out
  std::int64_t size_coverage_weight = 2;  // weight of size^(1/3) against coverage in the score
  std::int64_t free_stage_delay = 4, swap_in_free_stage_delay = 2;
  // v2
  std::int64_t attention_per_stage = 1;
  Bytes swap_bucket{-1};       // per forward stage; -1: no limit
  bool memory_saving = false;  // policy_pref BETTER_MEMORY_SAVING: optimizer state too
  std::int64_t v2_free_stage_delay = 2;
};

struct Stage {
  StageType type;
  std::int32_t micro_batch, layer;
  std::uint32_t first_op, op_count;
  double start_s, end_s;     // uniform operator time
  double left_s;             // transfer budget that the plan leaves
  std::string name() const;  // "FWD.1.3": type, micro-batch, layer
};

struct NeedEntry {  // an operator above the target, and by how much
  std::uint32_t op;
  Bytes need;
};

struct Peak {  // one run of FWD .. BWD operators
  std::uint32_t first_op, last_op;
  std::int64_t first_need_op, last_need_op;  // first and last entry of the first reduction list; -1 none
};

// Coverage: half-open range of the reduction list.
struct Coverage {
  std::uint32_t begin = 0, end = 0;
  std::uint32_t count() const { return end - begin; }
};

struct Candidate {
  std::uint32_t tensor;  // row of IterationProfile::storages
  bool optimizer;
  std::int64_t out_op, in_op;  // last forward, first backward use; -1 for optimizer state
  std::uint32_t out_stage, in_stage;
  Coverage coverage;  // with the swap-in in the stage of its use
  double score;
};

struct Selection {
  std::uint32_t candidate;  // v1: row of Plan::candidates; v2: kNever
  std::uint32_t tensor;
  bool optimizer;
  std::int64_t out_op, in_op;
  std::uint32_t round;
  bool delayed;
  std::uint32_t out_stage, in_stage_use, in_stage;  // stage of the use, and the one that is planned
  std::uint32_t free_stage, in_free_stage;
  Coverage coverage;  // with the planned stage: what it reduces
  // The public code's own check, which it never calls: free stage strictly between out and in.
  bool passes_own_check() const { return optimizer || (out_stage < free_stage && free_stage < in_stage); }
};

struct Round {
  std::uint32_t peak_op;
  Bytes need_before;
  std::uint32_t covering, selected;  // unselected candidates that cover the peak; how many were taken
  bool with_delay;
};

struct SwapPlan {
  Bytes max_memory, target_memory;
  Bytes redundant_memory;                                     // after adjustment
  std::vector<std::int64_t> forward_layers, backward_layers;  // layer boundaries, offsets in the run
  std::vector<Stage> stages;
  std::vector<std::uint32_t> stage_of;        // per operator
  std::vector<Bytes> curve;                   // theoretical memory, per operator
  std::vector<NeedEntry> needs;               // memory reduction list
  std::vector<Bytes> needs_left;              // per entry, after the plan
  std::vector<Peak> peaks;                    // v1
  std::vector<Candidate> candidates;          // v1: ascending storage id
  std::vector<Round> rounds;                  // v1
  std::vector<Selection> selected;            // v1: in order of selection; v2: by (out op, -size, id)
  std::vector<std::uint32_t> emitted;         // rows of `selected` by (out op, -size)
  bool reached = false;                       // every need is met
  Bytes tensor_size_thresh{(1LL << 31) - 1};  // smallest selected tensor; tracked from this size on
};

// Throws Error(input) for an inconsistent profile and, in v2, when no operator of a direction and
// micro-batch is named "attention" (the public code fails there).
SwapPlan generate_plan(const IterationProfile& profile, const GeneratorParams& params);

// ---- single steps, for tests and for `adaptive`

// Boundaries of the logical layers of `n_ops` operators: layer = 1 + number of boundaries below the offset.
std::vector<std::int64_t> layer_boundaries(std::int64_t n_ops, std::int64_t n_layers);
// Layer starts of v2: offsets of the 2nd .. Kth occurrence of the longest sequence that holds an
// attention operator and occurs exactly `count` times. Empty without such a sequence.
std::vector<std::int64_t> pattern_layer_starts(std::span<const std::uint32_t> names,
                                               std::span<const std::uint8_t> is_attention,
                                               std::int64_t count);
// Seconds that the generator assumes for a copy.
double transfer_seconds(Bytes bytes, std::int64_t mib_per_s);
// Cube root from correctly rounded operations only: the same bits on every compiler.
double cube_root(double value);
// Active bytes plus what the recorded swaps hide (rule 7 of the definition).
std::vector<Bytes> theoretical_curve(const IterationProfile& profile, const std::vector<Peak>& peaks);

}  // namespace swaplab::chameleon
