// `swaplab trace synth`, through the command's own entry.
#include <doctest/doctest.h>

#include <cstdio>
#include <functional>
#include <string>

#include "experiments/commands.hpp"
#include "policy/registry.hpp"
#include "sim/cost_model.hpp"
#include "sim/machine_io.hpp"
#include "sim/run.hpp"
#include "tests/support/shared.hpp"
#include "trace/error.hpp"
#include "trace/io.hpp"
#include "trace/synth/synth.hpp"

namespace swaplab {
namespace {

std::string message_of(const Arguments& arguments) {
  try {
    trace_synth_command(arguments);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST_CASE("wrong use is explained") {
  CHECK(message_of({}).find("needs a CONFIG") != std::string::npos);
  CHECK(message_of({"gpt-small", "resnet50"}).find("one CONFIG at a time") != std::string::npos);
  CHECK(message_of({"gpt-small", "model.layres=2"}).find("did you mean 'model.layers'") != std::string::npos);
  CHECK(message_of({"gpt-small", "--jsn"}).find("did you mean") != std::string::npos);
  CHECK(message_of({"gpt-small", "-o", "trace.txt"}) != "no error");
}

TEST_CASE("a machine's times are those that the cost model gives the trace") {
  REQUIRE(trace_synth_command({"gpt-small", "model.layers=1", "training.iterations=2", "--machine",
                               "h100-pcie5", "-o", "synth_times.jsonl.gz"}) == kExitOk);
  const Trace timed = read_trace("synth_times.jsonl.gz");
  std::remove("synth_times.jsonl.gz");
  REQUIRE(timed.has_device_times());
  const Machine machine = load_machine("h100-pcie5");
  const Program in_trace = compile_program(timed, machine, TimeSource::trace);
  const Program modelled = compile_program(timed, machine, TimeSource::model);
  REQUIRE(in_trace.op_count() == modelled.op_count());
  for (std::uint32_t op = 0; op < timed.ops.size(); ++op)
    REQUIRE(timed.ops.device_time[op] == model_device_time(timed, timed.ops.signature[op], machine));
}

// Every kind of program replays under a policy: dependences, resizes, streams and host reads are real.
TEST_CASE("synthetic programs replay at a budget") {
  const Machine machine = load_machine("a100-40g-pcie4");
  const std::string base =
      "schema: swaplab/workload@1\nname: small\n"
      "model: {layers: 4, hidden: 256, heads: 4, vocab: 1024, channels: 32, channel_factors: [1, 2], "
      "image_size: "
      "64}\ntraining: {iterations: 2, batch: 8, sequence: 128}\n";
  const std::vector<std::vector<std::string>> programs = {
      {"model.attention=explicit"},
      {"training.recompute=full"},
      {"model.experts.count=4"},
      {"parallel.tensor=2", "parallel.sequence=yes"},
      {"parallel.pipeline=2", "training.accumulation=4"},
      {"parallel.data=4", "parallel.zero=3"},
      {"parallel.data=4", "parallel.zero=2", "training.precision=bf16"},
      {"model.family=resnet", "training.precision=fp32", "training.optimizer=sgd"},
      {"model.family=unet"},
  };
  for (const auto& overrides : programs) {
    CAPTURE(overrides[0]);
    const Trace trace = synth::synthesize(synth::parse_workload(base, "small.yaml", overrides));
    const Program program = compile_program(trace, machine, TimeSource::model);
    for (const char* name : {"none", "lru"}) {
      const auto spec = parse_policies(name)[0];
      RunOptions options;
      options.allocator = AllocatorKind::ideal;
      const std::int64_t percent = std::string(name) == "none" ? 101 : 90;
      options.budget = Bytes{program.peak_bytes.value / 100 * percent};
      options.needs = spec.factory->info().needs;
      const auto policy = spec.factory->make(spec.values);
      const RunResult result = run_program(program, machine, *policy, options);
      CHECK_MESSAGE(result.outcome == Outcome::ok, name << ": " << result.explanation);
    }
  }
}

}  // namespace
}  // namespace swaplab
