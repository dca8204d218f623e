// Steps 1 to 6 of the generator: operator times, logical layers, stages, curve, target, needs, peaks.
#pragma once

#include "policy/chameleon/generator.hpp"

namespace swaplab::chameleon {

// Layer per operator (0 in INIT and OPTIM), and the boundaries where they are common to all micro-batches.
std::vector<std::int32_t> assign_layers(const IterationProfile& profile, const GeneratorParams& params,
                                        SwapPlan& plan);
// Fills stages and stage_of.
void build_stages(const IterationProfile& profile, const std::vector<std::int32_t>& layers, SwapPlan& plan);
// Runs of FWD .. BWD operators, without need ranges.
std::vector<Peak> find_peaks(const IterationProfile& profile);
// Fills curve, max_memory, target_memory, redundant_memory, needs, and the peaks' need ranges.
void build_needs(const IterationProfile& profile, const GeneratorParams& params, SwapPlan& plan);

// Generators.
void generate_v1(const IterationProfile& profile, const GeneratorParams& params, SwapPlan& plan);
void generate_v2(const IterationProfile& profile, const GeneratorParams& params, SwapPlan& plan);

}  // namespace swaplab::chameleon
