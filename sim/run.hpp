// One run: program x machine x policy x budget -> result.
#pragma once

#include <functional>
#include <string_view>

#include "sim/allocator/config.hpp"
#include "sim/allocator/stitching_config.hpp"
#include "sim/machine.hpp"
#include "sim/metrics.hpp"
#include "sim/policy_api.hpp"
#include "sim/program.hpp"
#include "sim/program_windows.hpp"
#include "sim/schedule.hpp"

namespace swaplab {

enum class AllocatorKind : std::uint8_t { ideal, caching, stitching };
std::string_view allocator_name(AllocatorKind kind);  // "ideal", ...
// Throws Error(usage) with a suggestion for any other text.
AllocatorKind parse_allocator(std::string_view text);

// Device memory without limit, for `--budget inf` and the unconstrained run (1 TiB, the largest
// capacity that the caching allocator takes).
constexpr Bytes kUnlimitedBudget{std::int64_t{1} << 40};

struct RunOptions {
  Bytes budget = kUnlimitedBudget;
  AllocatorKind allocator = AllocatorKind::caching;
  AllocatorConfig allocator_config;  // of the caching one
  StitchingConfig stitching;
  Needs needs = Needs::none;     // what the policy declared
  Schedule* schedule = nullptr;  // filled when given (entries, placement, result)
};

// Deterministic; holds no state between calls; safe to call from many threads at once on one Program.
// Throws Error(invariant) when the accounting does not add up.
RunResult run_program(const Program& program, const Machine& machine, Policy& policy,
                      const RunOptions& options);

// The same for a trace that need not fit in memory, with equal results. Throws Error(policy) when the policy
// needs the future, and Error(usage) for a schedule: both would hold the whole program. `progress` (may be
// empty) gets the number of operators taken up so far.
RunResult run_windows(const ProgramWindows& windows, const Machine& machine, Policy& policy,
                      const RunOptions& options, std::function<void(std::uint32_t)> progress = {});

}  // namespace swaplab
