#include "policy/chameleon/plan_json.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace swaplab::chameleon {
namespace {

using Json = nlohmann::ordered_json;

double twelve_digits(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.12g", value);
  return std::strtod(text, nullptr);
}

Json operator_or_null(std::int64_t op) {
  return op < 0 ? Json() : Json(op);
}

Json stages_json(const SwapPlan& plan) {
  Json name = Json::array(), first = Json::array(), ops = Json::array(), start = Json::array(),
       end = Json::array(), left = Json::array();
  for (const Stage& stage : plan.stages) {
    name.push_back(stage.name());
    first.push_back(stage.first_op);
    ops.push_back(stage.op_count);
    start.push_back(stage.start_s);
    end.push_back(stage.end_s);
    left.push_back(twelve_digits(stage.left_s));
  }
  return {{"name", name},        {"start_op", first}, {"n_ops", ops},
          {"start_time", start}, {"end_time", end},   {"time_left_final", left}};
}

Json needs_json(const SwapPlan& plan) {
  Json runs = Json::array();
  std::int64_t sum = 0, largest = 0, last = -2;
  for (const NeedEntry& entry : plan.needs) {
    sum += entry.need.value;
    largest = std::max(largest, entry.need.value);
    if (entry.op == last + 1) {
      runs.back()[1] = entry.op;
    } else {
      runs.push_back({entry.op, entry.op});
    }
    last = entry.op;
  }
  return {{"n", plan.needs.size()}, {"op_runs", runs}, {"sum_total", sum}, {"max_total", largest}};
}

// First and last operator of a range of the reduction list, -1 when empty.
std::pair<std::int64_t, std::int64_t> ends(const SwapPlan& plan, const Coverage& range) {
  if (range.count() == 0) return {-1, -1};
  return {plan.needs[range.begin].op, plan.needs[range.end - 1].op};
}

Json candidates_json(const IterationProfile& p, const SwapPlan& plan) {
  Json j;
  for (const char* key : {"sid", "size", "optim", "out_op", "in_op", "out_stage", "in_stage", "coverage",
                          "first_mri_op", "last_mri_op", "score"}) {
    j[key] = Json::array();
  }
  for (const Candidate& c : plan.candidates) {
    j["sid"].push_back(p.storages[c.tensor].id);
    j["size"].push_back(p.storages[c.tensor].bytes.value);
    j["optim"].push_back(c.optimizer ? 1 : 0);
    j["out_op"].push_back(operator_or_null(c.out_op));
    j["in_op"].push_back(operator_or_null(c.in_op));
    j["out_stage"].push_back(c.out_stage);
    j["in_stage"].push_back(c.in_stage);
    j["coverage"].push_back(c.coverage.count());
    const auto [first, last] = ends(plan, c.coverage);
    j["first_mri_op"].push_back(first);
    j["last_mri_op"].push_back(last);
    j["score"].push_back(twelve_digits(c.score));
  }
  return j;
}

Json selected_v1_json(const IterationProfile& p, const SwapPlan& plan) {
  Json j;
  for (const char* key :
       {"sid", "round", "delayed", "size", "out_op", "out_stage", "in_stage_use", "in_stage_actual",
        "free_stage", "in_free_stage", "first_mri_op_final", "last_mri_op_final", "own_validity_check"}) {
    j[key] = Json::array();
  }
  for (const Selection& s : plan.selected) {
    j["sid"].push_back(p.storages[s.tensor].id);
    j["round"].push_back(s.round);
    j["delayed"].push_back(s.delayed ? 1 : 0);
    j["size"].push_back(p.storages[s.tensor].bytes.value);
    j["out_op"].push_back(operator_or_null(s.out_op));
    j["out_stage"].push_back(s.out_stage);
    j["in_stage_use"].push_back(s.in_stage_use);
    j["in_stage_actual"].push_back(s.in_stage);
    j["free_stage"].push_back(s.free_stage);
    j["in_free_stage"].push_back(s.in_free_stage);
    const auto [first, last] = ends(plan, s.coverage);
    j["first_mri_op_final"].push_back(first);
    j["last_mri_op_final"].push_back(last);
    j["own_validity_check"].push_back(s.passes_own_check() ? 1 : 0);
  }
  return j;
}

Json selected_v2_json(const IterationProfile& p, const SwapPlan& plan) {
  Json j;
  for (const char* key :
       {"sid", "size", "optim", "out_op", "in_op", "out_stage", "in_stage", "free_stage", "in_free_stage"}) {
    j[key] = Json::array();
  }
  for (const Selection& s : plan.selected) {
    j["sid"].push_back(p.storages[s.tensor].id);
    j["size"].push_back(p.storages[s.tensor].bytes.value);
    j["optim"].push_back(s.optimizer ? 1 : 0);
    j["out_op"].push_back(operator_or_null(s.out_op));
    j["in_op"].push_back(operator_or_null(s.in_op));
    j["out_stage"].push_back(s.out_stage);
    j["in_stage"].push_back(s.in_stage);
    j["free_stage"].push_back(s.free_stage);
    j["in_free_stage"].push_back(s.in_free_stage);
  }
  return j;
}

Json rounds_json(const SwapPlan& plan) {
  Json rounds = Json::array();
  for (const Round& r : plan.rounds) {
    rounds.push_back({r.peak_op, r.need_before.value, r.covering, r.selected, r.with_delay ? 1 : 0});
  }
  return rounds;
}

Json result_json(const IterationProfile& p, const GeneratorParams& params, const SwapPlan& plan) {
  std::int64_t bytes = 0;
  for (const Selection& s : plan.selected) bytes += p.storages[s.tensor].bytes.value;
  if (params.version == GeneratorVersion::v2)
    return {{"n_selected", plan.selected.size()}, {"bytes_selected", bytes}};
  std::int64_t uncleared = 0, sum = 0;
  Bytes largest{0};
  for (std::size_t i = 0; i < plan.needs_left.size(); ++i) {
    const Bytes left = plan.needs_left[i];
    if (left > Bytes{0}) ++uncleared;
    sum += left.value;
    largest = i == 0 ? left : std::max(largest, left);
  }
  return {{"reached", plan.reached},
          {"uncleared", uncleared},
          {"max_need_left", largest.value},
          {"sum_needs", sum},
          {"needs_crc32", needs_checksum(plan)},
          {"n_candidates", plan.candidates.size()},
          {"n_selected", plan.selected.size()},
          {"n_rounds", plan.rounds.size()},
          {"n_delayed", std::count_if(plan.selected.begin(), plan.selected.end(),
                                      [](const Selection& s) { return s.delayed; })},
          {"bytes_selected", bytes}};
}

}  // namespace

std::string needs_checksum(const SwapPlan& plan) {
  std::string text;
  for (const Bytes left : plan.needs_left) text += (text.empty() ? "" : ",") + std::to_string(left.value);
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
  char hex[9];
  std::snprintf(hex, sizeof hex, "%08lx", static_cast<unsigned long>(crc));
  return hex;
}

std::string plan_to_json(const IterationProfile& p, const GeneratorParams& params, const SwapPlan& plan,
                         const std::string& config_json) {
  const bool v1 = params.version == GeneratorVersion::v1;
  Json j;
  j["config"] = Json::parse(config_json);
  j["n_ops"] = p.op_count();
  j["max_memory"] = plan.max_memory.value;
  j["target_memory"] = plan.target_memory.value;
  j["redundant_memory_after"] = plan.redundant_memory.value;
  j["stages"] = stages_json(plan);
  j["mrl"] = needs_json(plan);
  j["peaks"] = Json::array();
  for (const Peak& k : plan.peaks)
    j["peaks"].push_back({k.first_op, k.last_op, k.first_need_op, k.last_need_op});
  if (v1) {
    j["candidates"] = candidates_json(p, plan);
    j["rounds_cols"] = {"peak_op", "need_before", "n_unselected_covering", "n_selected", "with_delay"};
    j["rounds"] = rounds_json(plan);
  }
  j["selected"] = v1 ? selected_v1_json(p, plan) : selected_v2_json(p, plan);
  j["result"] = result_json(p, params, plan);
  if (v1) {
    j["final_sorted"] = Json::array();
    for (const std::uint32_t i : plan.emitted)
      j["final_sorted"].push_back(p.storages[plan.selected[i].tensor].id);
  }
  j["tensor_size_thresh"] = plan.tensor_size_thresh.value;
  j["fwd_op_layer_info"] = plan.forward_layers;
  j["bwd_op_layer_info"] = plan.backward_layers;
  return j.dump();
}

}  // namespace swaplab::chameleon
