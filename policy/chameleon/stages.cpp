#include "policy/chameleon/stages.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "trace/error.hpp"

namespace swaplab::chameleon {
namespace {

bool has_layers(StageType type) {
  return type == StageType::forward || type == StageType::backward;
}

std::int64_t count_ops(const IterationProfile& p, StageType type, std::int32_t micro_batch) {
  std::int64_t count = 0;
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    if (p.type[op] == type && p.micro_batch[op] == micro_batch) ++count;
  }
  return count;
}

// v1: the boundaries of micro-batch 1 serve every micro-batch.
std::vector<std::int32_t> equal_count_layers(const IterationProfile& p, const GeneratorParams& params,
                                             SwapPlan& plan) {
  plan.forward_layers = layer_boundaries(count_ops(p, StageType::forward, 1), params.n_layers);
  plan.backward_layers = layer_boundaries(count_ops(p, StageType::backward, 1), params.n_layers);
  std::vector<std::int32_t> layers(p.op_count(), 0);
  std::int64_t offset = 0, layer = 1;
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    if (!has_layers(p.type[op])) continue;
    const bool continues =
        op > 0 && p.type[op] == p.type[op - 1] && p.micro_batch[op] == p.micro_batch[op - 1];
    if (!continues) offset = 0, layer = 1;
    const auto& boundaries = p.type[op] == StageType::forward ? plan.forward_layers : plan.backward_layers;
    while (layer - 1 < static_cast<std::int64_t>(boundaries.size()) &&
           boundaries[static_cast<std::size_t>(layer - 1)] < offset) {
      ++layer;
    }
    layers[op] = params.layer_rule == LayerRule::single ? 1 : static_cast<std::int32_t>(layer);
    ++offset;
  }
  return layers;
}

// v2: layers are the repetitions of the longest pattern, per direction and micro-batch.
std::vector<std::int32_t> pattern_layers(const IterationProfile& p, const GeneratorParams& params,
                                         SwapPlan& plan) {
  std::vector<std::uint8_t> attention_name(p.names.size());
  for (std::size_t i = 0; i < p.names.size(); ++i) {
    attention_name[i] = p.names[i].find("attention") != std::string::npos ? 1 : 0;
  }
  std::vector<std::int32_t> layers(p.op_count(), 0);
  std::vector<std::uint8_t> done(p.op_count(), 0);
  for (std::uint32_t first = 0; first < p.op_count(); ++first) {
    if (!has_layers(p.type[first]) || done[first] != 0) continue;
    const StageType type = p.type[first];
    const std::int32_t micro_batch = p.micro_batch[first];
    std::vector<std::uint32_t> ops, names;
    std::vector<std::uint8_t> attention;
    std::int64_t attention_ops = 0;
    for (std::uint32_t op = first; op < p.op_count(); ++op) {
      if (p.type[op] != type || p.micro_batch[op] != micro_batch) continue;
      done[op] = 1;
      ops.push_back(op);
      names.push_back(p.name[op]);
      attention.push_back(attention_name[p.name[op]]);
      attention_ops += attention.back();
    }
    const std::int64_t count = attention_ops / params.attention_per_stage;
    if (count == 0) {
      throw Error(ErrorKind::input, "generator v2: " + std::string(stage_type_name(type)) +
                                        " of micro-batch " + std::to_string(micro_batch) + " has " +
                                        std::to_string(attention_ops) +
                                        " operators named \"attention\"; expected at least " +
                                        std::to_string(params.attention_per_stage) +
                                        " (the public code fails here; use version=v1)");
    }
    const std::vector<std::int64_t> starts = pattern_layer_starts(names, attention, count);
    if (micro_batch == 1) (type == StageType::forward ? plan.forward_layers : plan.backward_layers) = starts;
    std::int32_t layer = 1;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      while (static_cast<std::size_t>(layer - 1) < starts.size() &&
             starts[static_cast<std::size_t>(layer - 1)] <= static_cast<std::int64_t>(i)) {
        ++layer;
      }
      layers[ops[i]] = layer;
    }
  }
  return layers;
}

// The reduction list for one target (step 5): INIT is skipped, an excess in OPTIM ends it.
std::vector<NeedEntry> reduction_list(const IterationProfile& p, const std::vector<Bytes>& curve,
                                      Bytes target) {
  std::vector<NeedEntry> needs;
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    if (curve[op] <= target || p.type[op] == StageType::init) continue;
    if (p.type[op] == StageType::optimizer) break;
    needs.push_back({op, curve[op] - target});
  }
  return needs;
}

// An entry outside any peak stops the scan, so later peaks then get no range (step 6).
void assign_ranges(const std::vector<NeedEntry>& needs, std::vector<Peak>& peaks) {
  std::size_t i = 0;
  for (Peak& peak : peaks) {
    peak.first_need_op = peak.last_need_op = -1;
    for (; i < needs.size() && needs[i].op >= peak.first_op && needs[i].op <= peak.last_op; ++i) {
      if (peak.first_need_op < 0) peak.first_need_op = needs[i].op;
      peak.last_need_op = needs[i].op;
    }
  }
}

}  // namespace

std::string Stage::name() const {
  return std::string(stage_type_name(type)) + "." + std::to_string(micro_batch) + "." + std::to_string(layer);
}

std::vector<std::int64_t> layer_boundaries(std::int64_t n_ops, std::int64_t n_layers) {
  std::vector<std::int64_t> boundaries;
  if (n_layers < 0) {
    for (std::int64_t i = 0; i < n_ops; ++i) boundaries.push_back(i);
    return boundaries;
  }
  const std::int64_t layers = (10 / n_layers + 1) * n_layers;
  for (std::int64_t i = 1; i < layers; ++i) boundaries.push_back(n_ops / layers * i);
  return boundaries;
}

std::vector<std::int32_t> assign_layers(const IterationProfile& p, const GeneratorParams& params,
                                        SwapPlan& plan) {
  return params.version == GeneratorVersion::v1 ? equal_count_layers(p, params, plan)
                                                : pattern_layers(p, params, plan);
}

void build_stages(const IterationProfile& p, const std::vector<std::int32_t>& layers, SwapPlan& plan) {
  const std::uint32_t n = p.op_count();
  const double duration = static_cast<double>(p.duration.value) / 1e9;
  const double step = duration / n;
  // Operator k ends at (k+1) steps, the last one at the end of the iteration exactly.
  const auto time = [&](std::uint32_t op) { return op + 1 == n ? duration : (op + 1) * step; };
  plan.stage_of.resize(n);
  for (std::uint32_t op = 0; op < n; ++op) {
    const bool continues = op > 0 && p.type[op] == p.type[op - 1] &&
                           p.micro_batch[op] == p.micro_batch[op - 1] && layers[op] == layers[op - 1];
    if (!continues) {
      plan.stages.push_back({p.type[op], p.micro_batch[op], layers[op], op, 0, time(op), 0, 0});
    }
    Stage& stage = plan.stages.back();
    ++stage.op_count;
    stage.end_s = time(op);
    stage.left_s = stage.end_s - stage.start_s;
    plan.stage_of[op] = static_cast<std::uint32_t>(plan.stages.size() - 1);
  }
}

std::vector<Peak> find_peaks(const IterationProfile& p) {
  std::vector<Peak> peaks;
  std::int64_t first = -1;
  bool in_backward = false;
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    const StageType type = p.type[op];
    const bool first_of_forward =
        type == StageType::forward && (op == 0 || p.type[op - 1] != StageType::forward);
    if (in_backward && type != StageType::backward) {
      if (first >= 0) peaks.push_back({static_cast<std::uint32_t>(first), op - 1, -1, -1});
      first = -1;
    }
    if (first_of_forward) first = op;
    in_backward = type == StageType::backward;
  }
  return peaks;
}

std::vector<Bytes> theoretical_curve(const IterationProfile& p, const std::vector<Peak>& peaks) {
  std::vector<Bytes> curve = p.active;
  if (p.swaps.empty()) return curve;
  Bytes out{0}, in{0};
  std::unordered_set<std::int64_t> returned;
  for (const SwapRecord& swap : p.swaps) {
    (swap.out ? out : in) += swap.bytes;
    if (!swap.out) returned.insert(swap.from);
  }
  std::unordered_map<std::uint32_t, Bytes> reset;  // at an operator, what its peak swapped out for good
  if (out != in) {
    for (const SwapRecord& swap : p.swaps) {
      if (!swap.out || returned.count(swap.into) != 0) continue;
      const auto peak =
          std::find_if(peaks.begin(), peaks.end(), [&](const Peak& k) { return k.last_op >= swap.op; });
      if (peak != peaks.end()) reset[peak->last_op + 1] += swap.bytes;
    }
  }
  Bytes hidden{0};
  std::size_t next = 0;
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    for (; next < p.swaps.size() && p.swaps[next].op == op; ++next) {
      hidden += p.swaps[next].out ? p.swaps[next].bytes : -p.swaps[next].bytes;
    }
    const auto ended = reset.find(op);
    if (ended != reset.end()) hidden -= ended->second;
    curve[op] += hidden;
  }
  return curve;
}

void build_needs(const IterationProfile& p, const GeneratorParams& params, SwapPlan& plan) {
  std::vector<Peak> peaks = find_peaks(p);
  plan.curve = theoretical_curve(p, peaks);
  Bytes max_active{0};
  plan.max_memory = Bytes{0};
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    max_active = std::max(max_active, p.active[op]);
    if (has_layers(p.type[op])) plan.max_memory = std::max(plan.max_memory, plan.curve[op]);
  }
  const auto target = [&](Bytes redundant) {
    if (p.step_out_of_memory) return max_active - redundant;
    if (!p.swaps.empty()) return max_active;
    return params.target_mode ? params.target_memory : plan.max_memory - params.reduction_memory;
  };
  plan.redundant_memory = params.redundant_memory;
  plan.target_memory = target(plan.redundant_memory);
  plan.needs = reduction_list(p, plan.curve, plan.target_memory);
  assign_ranges(plan.needs, peaks);
  if (std::any_of(p.swaps.begin(), p.swaps.end(), [](const SwapRecord& s) { return s.out_of_memory; })) {
    // A forced swap: the reserve grows and the list is built again; the peaks keep the ranges of the first.
    plan.redundant_memory += params.adjust_memory;
    plan.target_memory = target(plan.redundant_memory);
    plan.needs = reduction_list(p, plan.curve, plan.target_memory);
  }
  plan.needs_left.clear();
  for (const NeedEntry& entry : plan.needs) plan.needs_left.push_back(entry.need);
  if (params.version == GeneratorVersion::v1) plan.peaks = std::move(peaks);
}

SwapPlan generate_plan(const IterationProfile& profile, const GeneratorParams& params) {
  check_profile(profile);
  SwapPlan plan;
  build_stages(profile, assign_layers(profile, params, plan), plan);
  build_needs(profile, params, plan);
  params.version == GeneratorVersion::v1 ? generate_v1(profile, params, plan)
                                         : generate_v2(profile, params, plan);
  for (const Selection& s : plan.selected) {
    plan.tensor_size_thresh = std::min(plan.tensor_size_thresh, profile.storages[s.tensor].bytes);
  }
  return plan;
}

}  // namespace swaplab::chameleon
