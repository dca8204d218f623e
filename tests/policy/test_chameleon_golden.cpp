// The generator against every output of the public code: three recordings x about 30 configurations, and
// 400 synthetic cases, in every field.
#include <doctest/doctest.h>
#include <zlib.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "policy/chameleon/generator.hpp"
#include "policy/chameleon/plan_json.hpp"
#include "policy/chameleon/profile.hpp"
#include "tests/support/shared.hpp"
#include "trace/error.hpp"
#include "trace/io.hpp"

using namespace swaplab;
using namespace swaplab::chameleon;
using Json = nlohmann::json;

namespace {

TensorKind kind_of(const std::string& name) {
  for (const TensorKind kind :
       {TensorKind::model, TensorKind::optimizer, TensorKind::shared, TensorKind::other}) {
    if (tensor_kind_name(kind) == name) return kind;
  }
  throw std::runtime_error("unknown tensor type " + name);
}

StageType type_of(const std::string& name) {
  for (const StageType type :
       {StageType::init, StageType::forward, StageType::backward, StageType::optimizer}) {
    if (stage_type_name(type) == name) return type;
  }
  throw std::runtime_error("unknown stage " + name);
}

void read_swaps(const Json& records, IterationProfile& p) {
  for (const Json& r : records) {
    p.swaps.push_back({r.at("op"), r.at("name") == "swapOut", Bytes{r.at("size")},
                       r.at("is_oom").get<int>() != 0, r.at("src"), r.at("dst")});
  }
  std::stable_sort(p.swaps.begin(), p.swaps.end(), [](const auto& a, const auto& b) { return a.op < b.op; });
}

void read_config(const Json& config, IterationProfile& p, GeneratorParams& params) {
  params.version = config.at("policy") == "v2" ? GeneratorVersion::v2 : GeneratorVersion::v1;
  params.n_layers = config.at("n_layers");
  params.d2h_mib_per_s = static_cast<std::int64_t>(config.at("D2H_bandwidth").get<double>());
  params.h2d_mib_per_s = static_cast<std::int64_t>(config.at("H2D_bandwidth").get<double>());
  params.tensor_size_filter = Bytes{config.at("tensor_size_filter")};
  params.target_mode = config.value("target_mode", false);
  params.target_memory = Bytes{config.value("target_memory", std::int64_t{40} << 30)};
  params.reduction_memory = Bytes{config.value("reduction_memory", std::int64_t{3} << 30)};
  params.redundant_memory = Bytes{config.value("redundant_memory", std::int64_t{2} << 30)};
  params.adjust_memory = Bytes{config.value("adjust_memory", std::int64_t{300} << 20)};
  params.attention_per_stage = config.value("attn_per_stage", 1);
  params.swap_bucket = Bytes{config.value("bucket", std::int64_t{-1})};
  params.memory_saving = config.value("pref", std::string()) == "BETTER_MEMORY_SAVING";
  p.step_out_of_memory = config.value("is_oom", false);
  p.duration = Nanos{std::llround(config.at("duration_s").get<double>() * 1e9)};
}

// Where two JSON values differ; "" when equal. Numbers: equal, or to one unit in the 12th digit.
std::string difference(const Json& ours, const Json& theirs, const std::string& where) {
  if (theirs.is_object()) {
    for (const auto& [key, value] : theirs.items()) {
      if (!ours.contains(key)) return where + "." + key + ": missing";
      std::string d = difference(ours.at(key), value, where + "." + key);
      if (!d.empty()) return d;
    }
    return "";
  }
  if (theirs.is_array()) {
    if (!ours.is_array() || ours.size() != theirs.size()) {
      return where + ": " + std::to_string(ours.size()) + " entries, expected " +
             std::to_string(theirs.size());
    }
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      std::string d = difference(ours[i], theirs[i], where + "[" + std::to_string(i) + "]");
      if (!d.empty()) return d;
    }
    return "";
  }
  if (theirs.is_number_float() && ours.is_number()) {
    const double a = ours.get<double>(), b = theirs.get<double>();
    if (a == b || std::abs(a - b) <= 2e-12 * std::abs(b)) return "";
  } else if (ours == theirs) {
    return "";
  }
  return where + ": " + ours.dump() + ", expected " + theirs.dump();
}

// The fields of the file that the generator answers for.
Json answers(const Json& golden) {
  Json part;
  for (const char* key : {"n_ops", "max_memory", "target_memory", "stages", "mrl", "peaks", "candidates",
                          "rounds_cols", "rounds", "selected", "result", "final_sorted", "tensor_size_thresh",
                          "fwd_op_layer_info", "bwd_op_layer_info", "redundant_memory_after"}) {
    if (golden.contains(key)) part[key] = golden[key];
  }
  if (part.contains("selected") && part["selected"].value("own_validity_check", Json()).is_null()) {
    part["selected"].erase("own_validity_check");  // not recorded in this file
  }
  for (const char* key :
       {"fwd_op_layer_info", "bwd_op_layer_info"}) {  // newer revisions: by model and micro-batch
    if (!part.contains(key) || !part[key].is_object()) continue;
    const Json first = part[key].value("0", Json::object()).value("1", Json::array());
    part[key] = first;
  }
  return part;
}

// The definition's checksum of an input. A tensor that was swapped back in has a new identity from then on.
std::string input_checksum(const TraceProfile& input) {
  const IterationProfile& p = input.profile;
  std::map<std::int64_t, std::pair<std::uint32_t, std::int64_t>> returned;  // id -> operator, new id
  for (const SwapRecord& s : p.swaps) {
    if (!s.out) returned[s.from % 10000000] = {s.op, s.into};
  }
  std::string text;
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    if (op > 0) text += ';';
    text += std::to_string(op) + "," + std::string(stage_type_name(p.type[op])) + "," +
            std::to_string(p.micro_batch[op]) + "," + std::to_string(input.trace_op[op]) + "," +
            std::to_string(p.active[op].value) + ",";
    bool first = true;
    for (const std::uint32_t t : p.tensors_of(op)) {
      std::int64_t id = p.storages[t].id;
      const auto back = returned.find(id);
      if (back != returned.end() && op > back->second.first) id = back->second.second;
      text += (first ? "" : " ") + std::to_string(id) + ":" + std::to_string(p.storages[t].bytes.value);
      first = false;
    }
  }
  char hex[9];
  std::snprintf(hex, sizeof hex, "%08lx",
                static_cast<unsigned long>(
                    crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()))));
  return hex;
}

void rename_attention(IterationProfile& p) {
  const std::map<std::string, std::string> renamed{
      {"sim.flash_fwd.default", "sim.flash_attention_fwd.default"},
      {"sim.flash_bwd.default", "sim.flash_attention_bwd.default"},
      {"aten._softmax.default", "aten._softmax_attention.default"},
      {"aten._softmax_backward_data.default", "aten._softmax_backward_data_attention.default"}};
  for (std::string& name : p.names) {
    const auto found = renamed.find(name);
    if (found != renamed.end()) name = found->second;
  }
}

// A profiled step in which the swaps of an earlier plan already happened (section 7 of the definition).
void apply_swaps(IterationProfile& p, const SwapPlan& plan, std::int64_t never_every) {
  std::vector<std::uint32_t> last_use(p.storages.size(), 0);
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    for (const std::uint32_t t : p.tensors_of(op)) last_use[t] = op;
  }
  std::int64_t j = 0;
  for (const Selection& s : plan.selected) {
    if (s.optimizer || s.in_op - 1 <= s.out_op) continue;
    const auto out = static_cast<std::uint32_t>(s.out_op), use = static_cast<std::uint32_t>(s.in_op);
    const ProfiledTensor& t = p.storages[s.tensor];
    const bool returns = never_every == 0 || j % never_every != never_every - 1;
    p.swaps.push_back({out, true, t.bytes, j % 2 == 0, t.id, t.id + 10000000});
    if (returns) p.swaps.push_back({use - 1, false, t.bytes, false, t.id + 10000000, t.id + 20000000});
    const std::uint32_t end = returns ? use - 1 : last_use[s.tensor];
    for (std::uint32_t op = out + 1; op <= end; ++op) p.active[op] -= t.bytes;
    ++j;
  }
  std::stable_sort(p.swaps.begin(), p.swaps.end(), [](const auto& a, const auto& b) { return a.op < b.op; });
}

}  // namespace

TEST_CASE("generator: every golden file of three recorded traces") {
  const auto folder = test::shared_path("reference/generator");
  const auto recorded = test::shared_path("recorded");
  if (!folder || !recorded) return;
  int compared = 0, refused = 0;
  for (const std::string name : {"gpt_small", "gpt_small_checkpoint", "resnet50_fake_b256"}) {
    const Trace trace = read_trace(*recorded + "/" + name + ".jsonl.gz");
    const Json input = Json::parse(test::read_file(*folder + "/" + name + "/input.json.gz"));
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(*folder + "/" + name)) {
      if (entry.path().extension() == ".json") files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    REQUIRE(files.size() >= 30);
    for (const std::string& file : files) {
      CAPTURE(file);
      const Json golden = Json::parse(test::read_file(file));
      const bool all = golden.at("ops_filter") == "all";
      TraceProfile from =
          profile_iteration(trace, -1, all ? OperatorFilter::all : OperatorFilter::without_views);
      IterationProfile& p = from.profile;
      CHECK(from.iteration == input.at("iteration"));
      CHECK(from.trace_op.front() == input.at("base_i").get<std::uint32_t>());
      if (all) CHECK(p.op_count() == input.at("n_ops").get<std::uint32_t>());
      if (name == "gpt_small" && all)
        CHECK(p.duration.value == input.at("measured_ns_sum").get<std::int64_t>());
      GeneratorParams params;
      const std::string swapped_from = golden.at("config").value("swapped_from", std::string());
      if (!swapped_from.empty()) {
        const std::string path = *folder + "/" + name + "/" + swapped_from + ".json";
        const Json first = Json::parse(test::read_file(path)).at("config");
        read_config(first, p, params);
        apply_swaps(p, generate_plan(p, params), golden.at("config").value("never_every", 0));
        REQUIRE(p.swaps.size() == golden.at("swap_records").size());
        for (std::size_t i = 0; i < p.swaps.size(); ++i) {
          const SwapRecord& s = p.swaps[i];
          CHECK(Json({s.op, s.out ? "swapOut" : "swapIn", s.bytes.value, s.out_of_memory ? 1 : 0, s.from,
                      s.into}) == golden.at("swap_records")[i]);
        }
        params = GeneratorParams{};
      }
      read_config(golden.at("config"), p, params);
      if (golden.at("rev") == "HEAD" && params.version == GeneratorVersion::v1)
        params.layer_rule = LayerRule::single;
      if (golden.at("renamed_ops") == true) rename_attention(p);
      CHECK(input_checksum(from) == golden.at("input_crc32"));
      if (golden.contains("error")) {
        CHECK_THROWS_AS(generate_plan(p, params), Error);
        ++refused;
        continue;
      }
      const Json ours = Json::parse(plan_to_json(p, params, generate_plan(p, params), "{}"));
      CHECK(difference(ours, answers(golden), "") == "");
      ++compared;
    }
  }
  CHECK(compared == 90);
  CHECK(refused == 8);
}

TEST_CASE("generator: 400 synthetic cases of the public code") {
  const auto file = test::shared_path("reference/generator/synthetic/cases.json.gz");
  if (!file) return;
  const Json cases = Json::parse(test::read_file(*file));
  REQUIRE(cases.size() == 400);
  for (const Json& golden : cases) {
    CAPTURE(golden.at("case"));
    const Json& input = golden.at("input");
    IterationProfile p;
    std::map<std::int64_t, std::uint32_t> row;
    for (const auto& [id, storage] : input.at("storages").items()) row[std::stoll(id)] = 0;
    for (auto& [id, r] : row) {
      r = static_cast<std::uint32_t>(p.storages.size());
      const Json& storage = input.at("storages").at(std::to_string(id));
      p.storages.push_back({id, Bytes{storage[0]}, kind_of(storage[1])});
    }
    p.names = {"op"};
    for (std::size_t op = 0; op < input.at("stage").size(); ++op) {
      p.type.push_back(type_of(input.at("stage")[op][0]));
      p.micro_batch.push_back(input.at("stage")[op][1]);
      p.name.push_back(0);
      p.active.push_back(Bytes{input.at("active")[op]});
      for (const Json& t : input.at("tensors")[op]) p.tensors.push_back(row.at(t));
      p.tensor_begin.push_back(static_cast<std::uint32_t>(p.tensors.size()));
    }
    GeneratorParams params;
    read_swaps(input.at("swaps"), p);
    read_config(golden.at("config"), p, params);
    const Json ours = Json::parse(plan_to_json(p, params, generate_plan(p, params), "{}"));
    CHECK(difference(ours, answers(golden), "") == "");
  }
}
