#include "policy/chameleon/profile.hpp"

#include <algorithm>
#include <unordered_map>

#include "trace/error.hpp"

namespace swaplab::chameleon {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::input, "iteration profile: " + what);
}

// Sizes, live bytes and the current micro-batch while the trace is walked.
struct Walk {
  std::vector<Bytes> size;
  Bytes active{0};
  std::int32_t micro_batch = 0;  // 0 until the first micro_begin

  explicit Walk(const Trace& trace) : size(trace.storages.size()) {}

  void pass(const Trace& trace, std::uint32_t gap) {
    for (const Event& event : trace.gap(gap)) {
      switch (event.kind) {
        case EventKind::alloc_op:
        case EventKind::alloc_external:
          size[event.arg] = trace.storages.bytes[event.arg];
          active += size[event.arg];
          break;
        case EventKind::free:
          active -= size[event.arg];
          size[event.arg] = Bytes{0};
          break;
        case EventKind::resize: {
          const Resize& resize = trace.resizes[event.arg];
          active += resize.to - resize.from;
          size[index(resize.storage)] = resize.to;
          break;
        }
        case EventKind::mark: {
          const Mark& mark = trace.marks[event.arg];
          if (mark.kind == MarkKind::micro_begin && mark.number >= 0) {
            micro_batch = static_cast<std::int32_t>(mark.number);
          }
          break;
        }
        case EventKind::saved:
        case EventKind::memory:
          break;
      }
    }
  }
};

const Iteration& choose_iteration(const Trace& trace, std::int64_t number) {
  const Iteration* found = nullptr;
  for (const Iteration& it : trace.iterations) {
    if (number >= 0 ? it.number == number : it.kind == IterationKind::train && !it.step_skipped) found = &it;
  }
  if (found == nullptr) {
    throw Error(ErrorKind::usage, number >= 0 ? "the trace has no iteration " + std::to_string(number)
                                              : std::string("the trace has no training iteration that was "
                                                            "not skipped; choose one by its number"));
  }
  if (found->first_op == found->end_op) {
    throw Error(ErrorKind::usage, "iteration " + std::to_string(found->number) + " holds no operators");
  }
  return *found;
}

}  // namespace

TensorKind tensor_kind_of(StorageClass cls) {
  switch (cls) {
    case StorageClass::parameter:
      return TensorKind::model;
    case StorageClass::gradient:
      return TensorKind::shared;
    case StorageClass::optimizer_state:
      return TensorKind::optimizer;
    case StorageClass::unknown:
    case StorageClass::buffer:
    case StorageClass::data:
      return TensorKind::other;
  }
  return TensorKind::other;
}

std::string_view stage_type_name(StageType type) {
  constexpr std::string_view kNames[] = {"INIT", "FWD", "BWD", "OPTIM"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string_view tensor_kind_name(TensorKind kind) {
  constexpr std::string_view kNames[] = {"MODEL", "OPTIM", "SHARED_MEMORY", "OTHERS"};
  return kNames[static_cast<std::size_t>(kind)];
}

void check_profile(const IterationProfile& p) {
  const std::size_t n = p.type.size();
  if (n == 0) fail("no operators");
  if (p.micro_batch.size() != n || p.name.size() != n || p.active.size() != n ||
      p.tensor_begin.size() != n + 1) {
    fail("columns of unequal length; expected one row per operator");
  }
  if (p.tensor_begin[0] != 0 || p.tensor_begin[n] != p.tensors.size() ||
      !std::is_sorted(p.tensor_begin.begin(), p.tensor_begin.end())) {
    fail("the tensor rows are not ascending; expected 0 .. number of tensors");
  }
  for (const std::uint32_t tensor : p.tensors) {
    if (tensor >= p.storages.size()) fail("an operator names a tensor that is not there");
  }
  for (const std::uint32_t name : p.name) {
    if (name >= p.names.size()) fail("an operator has a name that is not there");
  }
  const auto not_ascending = [](const ProfiledTensor& a, const ProfiledTensor& b) { return a.id >= b.id; };
  if (std::adjacent_find(p.storages.begin(), p.storages.end(), not_ascending) != p.storages.end()) {
    fail("storages are not in ascending order of id");
  }
  for (std::size_t i = 0; i < p.swaps.size(); ++i) {
    if (p.swaps[i].op >= n || (i > 0 && p.swaps[i].op < p.swaps[i - 1].op)) {
      fail("swap records are not in the order of operators");
    }
  }
  if (p.duration < Nanos{0}) fail("negative duration");
}

TraceProfile profile_iteration(const Trace& trace, std::int64_t number, OperatorFilter filter) {
  const Iteration& iteration = choose_iteration(trace, number);
  TraceProfile result;
  result.iteration = iteration.number;
  IterationProfile& p = result.profile;
  Walk walk(trace);
  StageType type = StageType::init;
  std::int32_t stage_micro_batch = 0;
  std::vector<std::uint32_t> row_of(trace.storages.size(), kNever);
  std::vector<Bytes> bytes_of(trace.storages.size());
  std::unordered_map<std::uint32_t, std::uint32_t> name_row;
  for (std::uint32_t gap = 0; gap <= iteration.first_op; ++gap) walk.pass(trace, gap);
  for (std::uint32_t op = iteration.first_op; op < iteration.end_op; ++op) {
    if (op > iteration.first_op) walk.pass(trace, op);
    const std::uint32_t signature = index(trace.ops.signature[op]);
    const Nanos time = trace.ops.device_time.empty() ? Nanos{-1} : trace.ops.device_time[op];
    if (time > Nanos{0}) p.duration += time;
    switch (trace.ops.phase[op]) {
      case Phase::forward:
        type = StageType::forward, stage_micro_batch = walk.micro_batch + 1;
        break;
      case Phase::backward:
      case Phase::recompute:
        type = StageType::backward, stage_micro_batch = walk.micro_batch + 1;
        break;
      case Phase::optimizer:
        type = StageType::optimizer, stage_micro_batch = 0;
        break;
      case Phase::unknown:
      case Phase::init:
      case Phase::zero_grad:
      case Phase::data:
      case Phase::evaluation:
        break;
    }
    if (filter == OperatorFilter::without_views && trace.signatures.view[signature] != 0) continue;
    p.type.push_back(type);
    p.micro_batch.push_back(stage_micro_batch);
    const NameId name = trace.signatures.name[signature];
    const auto [at, fresh] = name_row.emplace(index(name), static_cast<std::uint32_t>(p.names.size()));
    if (fresh) p.names.emplace_back(trace.names[name]);
    p.name.push_back(at->second);
    p.active.push_back(walk.active);
    const auto use = [&](std::span<const StorageId> storages) {
      for (const StorageId storage : storages) {
        const std::uint32_t s = index(storage);
        if (walk.size[s] == Bytes{0}) continue;
        row_of[s] = 0;
        bytes_of[s] = walk.size[s];
        p.tensors.push_back(s);  // becomes a row below
      }
    };
    use(trace.inputs(op));
    use(trace.outputs(op));
    p.tensor_begin.push_back(static_cast<std::uint32_t>(p.tensors.size()));
    result.trace_op.push_back(op);
  }
  for (std::uint32_t s = 0; s < row_of.size(); ++s) {
    if (row_of[s] == kNever) continue;
    row_of[s] = static_cast<std::uint32_t>(p.storages.size());
    p.storages.push_back({static_cast<std::int64_t>(s), bytes_of[s], tensor_kind_of(trace.storages.cls[s])});
  }
  for (std::uint32_t& tensor : p.tensors) tensor = row_of[tensor];
  if (p.type.empty()) {
    throw Error(ErrorKind::usage,
                "iteration " + std::to_string(iteration.number) + " holds no operators but views");
  }
  return result;
}

}  // namespace swaplab::chameleon
