// What the plan generator knows of one iteration: operators by name, stage and active bytes, tensors by
// identity, size and kind, and the time of the whole iteration. No time of a single operator.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trace/model.hpp"
#include "trace/units.hpp"

namespace swaplab::chameleon {

enum class StageType : std::uint8_t { init, forward, backward, optimizer };
std::string_view stage_type_name(StageType type);  // "INIT", "FWD", "BWD", "OPTIM"

// What the public profiler tells apart. `shared` is never moved.
enum class TensorKind : std::uint8_t { model, optimizer, shared, other };
std::string_view tensor_kind_name(TensorKind kind);  // "MODEL", "OPTIM", "SHARED_MEMORY", "OTHERS"
// The public code's kind of a storage, from its tag.
TensorKind tensor_kind_of(StorageClass cls);

struct ProfiledTensor {
  std::int64_t id;  // of the caller; ties are broken by it
  Bytes bytes;
  TensorKind kind;
};

// A copy that already happened in the profiled iteration.
struct SwapRecord {
  std::uint32_t op;
  bool out;  // device to host
  Bytes bytes;
  bool out_of_memory;       // forced by a failed allocation
  std::int64_t from, into;  // identities: a swap-in whose `from` is a swap-out's `into` returns it
};

struct IterationProfile {
  // Per operator.
  std::vector<StageType> type;
  std::vector<std::int32_t> micro_batch;  // from 1; 0 in INIT and OPTIM
  std::vector<std::uint32_t> name;        // row of `names`
  std::vector<Bytes> active;              // live device bytes at the operator, its own outputs included
  std::vector<std::uint32_t> tensor_begin{0};
  std::vector<std::uint32_t> tensors;  // rows of `storages`, argument order, repeats allowed

  std::vector<std::string> names;
  std::vector<ProfiledTensor> storages;  // ascending id
  std::vector<SwapRecord> swaps;         // ascending op
  bool step_out_of_memory = false;       // an allocation failed in this iteration
  Nanos duration;                        // of the whole iteration

  std::uint32_t op_count() const { return static_cast<std::uint32_t>(type.size()); }
  std::span<const std::uint32_t> tensors_of(std::uint32_t op) const {
    return {tensors.data() + tensor_begin[op], tensors.data() + tensor_begin[op + 1]};
  }
};

// Throws Error(input) where the columns do not fit together (lengths, order, ranges).
void check_profile(const IterationProfile& profile);

enum class OperatorFilter : std::uint8_t { all, without_views };

struct TraceProfile {
  IterationProfile profile;
  std::int64_t iteration = 0;           // number of the iteration in the trace
  std::vector<std::uint32_t> trace_op;  // operator of the trace, per operator of the profile
};

// The profile of one iteration of a recording, by the rules of the public hooks: stages from the phases
// (F, B and R, O; others continue the stage before), micro-batch of the last micro_begin + 1, every
// operand in argument order, active bytes without rounding over all devices. `iteration` < 0: the last
// training iteration that was not skipped. Duration: the sum of `device_time` of its operators.
// Throws Error(usage) without such an iteration.
TraceProfile profile_iteration(const Trace& trace, std::int64_t iteration, OperatorFilter filter);

}  // namespace swaplab::chameleon
