// The workload description: defaults, strictness, overrides, reference.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/shared.hpp"
#include "trace/error.hpp"
#include "trace/synth/config.hpp"
#include "trace/synth/synth.hpp"

namespace swaplab::synth {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::string parse_error(const std::string& body, const std::vector<std::string>& overrides = {}) {
  return message_of(
      [&] { parse_workload("schema: swaplab/workload@1\nname: w\n" + body, "w.yaml", overrides); });
}

TEST_CASE("defaults follow from what is given") {
  const WorkloadConfig c = parse_workload(
      "schema: swaplab/workload@1\nname: w\nmodel: {hidden: 512, heads: 8}\ntraining: {sequence: [64, "
      "256]}\n",
      "w");
  CHECK(c.model.ffn == 2048);
  CHECK(c.model.kv_heads == 8);
  CHECK(c.model.max_positions == 256);
  CHECK(c.training.sequence == std::vector<std::int64_t>{64, 256});
}

TEST_CASE("errors name file, line and key, and suggest") {
  CHECK(parse_error("model:\n  layerz: 3\n") ==
        "w.yaml:4: model.layerz: unknown key (did you mean 'layers'?)");
  CHECK(parse_error("modle: {layers: 3}\n") == "w.yaml:3: modle: unknown key (did you mean 'model'?)");
  CHECK(parse_error("model: {layers: many}\n") ==
        "w.yaml:3: model.layers: 'many' is not an integer >= 1 and <= 10000");
  CHECK(parse_error("model: {family: decodr}\n").find("(did you mean 'decoder'?)") != std::string::npos);
  CHECK(parse_error("model: {layers: 2, layers: 3}\n") == "w.yaml:3: model.layers: duplicate key");
  CHECK(parse_error("model: 3\n") == "w.yaml:3: model: expected a mapping (key: value)");
  CHECK(parse_error("model: {experts: {cuont: 3}}\n").find("did you mean 'count'") != std::string::npos);
  CHECK(parse_error("model: {layers: [1]}\n") ==
        "w.yaml:3: model.layers: expected integer >= 1 and <= 10000");
  CHECK(parse_error("a: [\n").find("not readable as YAML") != std::string::npos);
  CHECK(message_of([] { parse_workload("name: w\n", "w.yaml"); }) == "w.yaml:1: missing key 'schema'");
  CHECK(message_of([] { parse_workload("schema: swaplab/workload@9\nname: w\n", "w.yaml"); }) ==
        "w.yaml:1: schema: 'swaplab/workload@9' is not supported; expected swaplab/workload@1");
}

TEST_CASE("combinations that no program has") {
  const auto refused = [](const std::vector<std::string>& overrides) { return parse_error("", overrides); };
  CHECK(refused({"model.heads=7"}) == "w.yaml: model.hidden must be a multiple of model.heads");
  CHECK(refused({"parallel.sequence=yes"}) == "w.yaml: parallel.sequence needs parallel.tensor > 1");
  CHECK(refused({"parallel.tensor=8"}) ==
        "w.yaml: model.heads and model.kv_heads must be multiples of parallel.tensor");
  CHECK(refused({"parallel.stage=1"}) == "w.yaml: parallel.stage must be below parallel.pipeline");
  CHECK(refused({"parallel.zero=1"}) == "w.yaml: parallel.zero needs parallel.data > 1");
  CHECK(refused({"training.skip_steps=9"}) ==
        "w.yaml: training.skip_steps names iteration 9, beyond the last");
  CHECK(refused({"training.validation_every=1", "training.skip_steps=1"}) ==
        "w.yaml: training.skip_steps names iteration 1, a validation");
  CHECK(refused({"training.master_weights=yes"}) ==
        "w.yaml: training.master_weights needs training.precision bf16");
}

TEST_CASE("overrides are as strict as the file") {
  CHECK(parse_error("", {"model.layer=3"}) ==
        "unknown workload key 'model.layer' (did you mean 'model.layers'?)");
  CHECK(parse_error("", {"model.layers"}).find("write KEY=VALUE") != std::string::npos);
  CHECK(parse_error("", {"training.sequence=1,,2"}).find("separated by commas") != std::string::npos);
}

TEST_CASE("the resolved description is read back equal") {
  const std::vector<std::string> overrides = {"model.experts.count=4", "training.skip_steps=1,2", "seed=7"};
  const WorkloadConfig c = parse_workload("schema: swaplab/workload@1\nname: w\n", "w", overrides);
  std::string json = workload_json(c);
  json.insert(1, "\"schema\":\"swaplab/workload@1\",");
  CHECK(workload_json(parse_workload(json, "json")) == workload_json(c));
}

TEST_CASE("every bundled workload is readable and listed") {
  const auto listed = list_workloads();
  REQUIRE(listed.size() >= 3);
  for (const WorkloadListing& w : listed) {
    CHECK_MESSAGE(!w.summary.empty(), w.name);
    CHECK(load_workload(w.name).name == w.name);
  }
  CHECK(message_of([] { load_workload("gpt2-medum"); }).find("did you mean 'gpt2-medium'") !=
        std::string::npos);
}

TEST_CASE("a workload of more operators than a trace holds is refused after its first micro-batch") {
  const std::string message = message_of([] {
    const std::vector<std::string> many{"training.iterations=9000000000", "training.accumulation=1000000"};
    synthesize(load_workload("gpt-small", many));
  });
  CHECK(message.find("a trace holds 4.29 billion") != std::string::npos);
}

}  // namespace
}  // namespace swaplab::synth
