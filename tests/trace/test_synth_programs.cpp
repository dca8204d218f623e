// Properties that hold for every synthetic program.
#include <doctest/doctest.h>

#include <map>
#include <numeric>
#include <string>

#include "trace/check.hpp"
#include "trace/io.hpp"
#include "trace/synth/experts.hpp"
#include "trace/synth/synth.hpp"

namespace swaplab::synth {
namespace {

WorkloadConfig config(const std::vector<std::string>& overrides) {
  return parse_workload(
      "schema: swaplab/workload@1\nname: small\n"
      "model: {layers: 2, hidden: 64, heads: 4, vocab: 128, channels: 32, channel_factors: [1, 2], "
      "image_size: 32}\n"
      "training: {iterations: 2, batch: 2, sequence: 32}\n",
      "small.yaml", overrides);
}

const std::vector<std::vector<std::string>> kPrograms = {
    {},
    {"training.precision=fp32", "training.optimizer=adamw-loop", "model.attention=explicit",
     "model.dropout=yes"},
    {"training.precision=bf16", "training.master_weights=yes", "training.gradients=fp32"},
    {"training.precision=bf16", "training.master_weights=yes", "training.optimizer=adamw-loop"},
    {"training.precision=fp16-autocast", "training.loss_scaling=yes", "training.clip_gradients=yes",
     "training.skip_steps=1"},
    {"training.recompute=full"},
    {"training.recompute=selective", "model.attention=explicit"},
    {"training.accumulation=3", "training.validation_every=1"},
    {"model.positions=rotary", "model.activation=swiglu", "model.norm=rms", "model.kv_heads=2",
     "model.bias=no", "model.tied_head=no"},
    {"model.positions=rotary", "model.kv_heads=2", "model.attention=explicit", "training.recompute=full"},
    {"model.loss_chunks=4"},
    {"model.experts.count=4", "training.recompute=selective"},
    {"model.experts.count=4", "model.experts.capacity_percent=125", "parallel.expert=2"},
    {"parallel.tensor=2"},
    {"parallel.tensor=2", "parallel.sequence=yes", "model.dropout=yes", "training.recompute=selective"},
    {"parallel.tensor=2", "parallel.sequence=yes", "model.activation=swiglu", "training.recompute=full"},
    {"parallel.pipeline=2", "training.accumulation=4"},
    {"parallel.pipeline=2", "parallel.stage=1", "training.accumulation=4", "training.precision=bf16"},
    {"parallel.data=4"},
    {"parallel.data=4", "parallel.zero=1", "training.precision=bf16", "training.master_weights=yes"},
    {"parallel.data=4", "parallel.zero=2", "training.precision=bf16", "training.accumulation=2"},
    {"parallel.data=4", "parallel.zero=3"},
    {"parallel.data=4", "parallel.zero=3", "training.recompute=full", "training.precision=bf16",
     "training.gradients=fp32", "training.master_weights=yes"},
    {"parallel.data=3", "parallel.zero=3", "training.validation_every=1", "training.accumulation=2"},
    {"model.family=encoder", "model.dropout=yes"},
    {"model.family=encoder", "training.recompute=full", "parallel.data=2", "parallel.zero=3"},
    {"model.family=vit", "model.patch=8"},
    {"model.family=resnet", "model.depth=18", "training.precision=fp32", "training.optimizer=sgd"},
    {"model.family=resnet", "model.depth=50", "training.recompute=full"},
    {"model.family=unet", "training.precision=fp32"},
    {"model.family=unet", "training.recompute=full", "model.attention=explicit"},
};

std::string label(const std::vector<std::string>& overrides) {
  return std::accumulate(overrides.begin(), overrides.end(), std::string(),
                         [](const std::string& a, const std::string& b) { return a + " " + b; });
}

std::uint32_t ops_named(const Trace& trace, const Iteration& it, std::string_view name) {
  std::uint32_t count = 0;
  for (std::uint32_t op = it.first_op; op < it.end_op; ++op) count += trace.op_name(op) == name ? 1 : 0;
  return count;
}

TEST_CASE("a program's trace is consistent, repeats itself and leaks nothing") {
  for (const auto& overrides : kPrograms) {
    CAPTURE(label(overrides));
    std::vector<std::string> longer = overrides;
    longer.emplace_back("training.iterations=4");
    const WorkloadConfig c = config(longer);
    const Trace trace = synthesize(c);
    const TraceReport report = examine_trace(trace);
    CHECK(report.problems.empty());
    CHECK(trace_hash(trace) == trace_hash(synthesize(c)));
    // Live bytes at the end of like iterations are alike: nothing stays behind.
    std::vector<Bytes> live;
    for (const IterationSummary& it : report.iterations)
      if (it.iteration.kind == IterationKind::train && it.iteration.number > 1)
        live.push_back(it.live_at_end);
    REQUIRE(live.size() >= 2);
    for (std::size_t i = 1; i < live.size(); ++i) CHECK(live[i] == live[0]);
  }
}

TEST_CASE("every trainable parameter is stepped, in each iteration that steps") {
  for (const auto& overrides : kPrograms) {
    CAPTURE(label(overrides));
    const Trace trace = synthesize(config(overrides));
    // A parameter (or a shard) is written in phase O, directly or through its master copy.
    std::map<std::uint32_t, bool> stepped;
    for (std::uint32_t s = 0; s < trace.storages.size(); ++s)
      if (trace.storages.cls[s] == StorageClass::parameter) stepped[s] = false;
    for (std::uint32_t op = trace.iterations[0].first_op; op < trace.iterations[0].end_op; ++op)
      if (trace.ops.phase[op] == Phase::optimizer)
        for (const StorageId s : trace.written(op))
          if (stepped.count(index(s)) != 0) stepped[index(s)] = true;
    for (const auto& [storage, done] : stepped) {
      const std::string_view name = trace.names[trace.storages.name[storage]];
      // ZeRO 3's whole buffer lives from its shard; an idle expert has no gradient.
      const bool whole =
          name.starts_with("unit.") && !name.ends_with(".shard") && trace.storages.bytes[storage] == Bytes{0};
      if (!whole && name.find(".experts.") == std::string_view::npos) CHECK_MESSAGE(done, name);
    }
  }
}

TEST_CASE("a written trace reads back equal") {
  const Trace trace = synthesize(config({"parallel.data=4", "parallel.zero=3"}));
  write_trace(trace, "synth_roundtrip.jsonl.gz");
  CHECK(trace_hash(read_trace("synth_roundtrip.jsonl.gz")) == trace_hash(trace));
  std::remove("synth_roundtrip.jsonl.gz");
}

TEST_CASE("a trace that is written while it is generated is the same") {
  const WorkloadConfig c = config({"training.iterations=5", "training.recompute=full"});
  synthesize_to_swt(c, "synth_streamed.swt");
  CHECK(trace_hash(read_trace("synth_streamed.swt")) == trace_hash(synthesize(c)));
  std::remove("synth_streamed.swt");
}

TEST_CASE("expert loads add up, respect the limit and follow the seed") {
  for (const std::int64_t imbalance : {0, 50, 100}) {
    for (std::uint64_t step = 0; step < 20; ++step) {
      const auto load = route_tokens(1000, 8, 2, imbalance, 11, step);
      CHECK(std::accumulate(load.begin(), load.end(), std::int64_t{0}) == 2000);
      for (const std::int64_t rows : load) {
        CHECK(rows >= 0);
        CHECK(rows <= 1000);
      }
      CHECK(load == route_tokens(1000, 8, 2, imbalance, 11, step));
    }
  }
  CHECK(route_tokens(1000, 8, 2, 0, 1, 0) == std::vector<std::int64_t>(8, 250));
  CHECK(route_tokens(1000, 8, 2, 50, 1, 0) != route_tokens(1000, 8, 2, 50, 2, 0));
  CHECK(route_tokens(1000, 8, 2, 50, 1, 0) != route_tokens(1000, 8, 2, 50, 1, 1));
}

TEST_CASE("1F1B keeps at most p - stage micro-batches alive") {
  // Forward passes before the first backward operator: p - stage; then they alternate.
  for (const std::int64_t stage : {0, 1, 3}) {
    const Trace trace = synthesize(config({"model.layers=4", "parallel.pipeline=4", "training.accumulation=8",
                                           "parallel.stage=" + std::to_string(stage)}));
    std::int64_t forward = 0, before_backward = -1;
    const Iteration& it = trace.iterations[1];
    for (std::uint32_t op = it.first_op; op < it.end_op; ++op) {
      if (trace.op_name(op) == "aten.randint.default") ++forward;
      if (trace.ops.phase[op] == Phase::backward && before_backward < 0) before_backward = forward;
    }
    CHECK(before_backward == 4 - stage);
    CHECK(forward == 8);
    CHECK(ops_named(trace, it, "c10d.send.default") == (stage == 0 || stage == 3 ? 8 : 16));
    CHECK(ops_named(trace, it, "c10d.recv_.default") == (stage == 0 || stage == 3 ? 8 : 16));
  }
}

TEST_CASE("collectives carry bytes and ranks, one of each per layer and direction") {
  const Trace tensor = synthesize(config({"parallel.tensor=2"}));
  const Iteration& it = tensor.iterations[1];
  // Two per layer forward (attention, MLP) and backward, embedding, head's input gradient, three of the loss.
  CHECK(ops_named(tensor, it, "c10d.allreduce_.default") == 2 * 2 + 2 * 2 + 1 + 1 + 3);
  const Trace sequence = synthesize(config({"parallel.tensor=2", "parallel.sequence=yes"}));
  // Gather before and scatter after each of two layers' two parts; gathered again for the weight gradient.
  CHECK(ops_named(sequence, sequence.iterations[1], "c10d._allgather_base_.default") == 4 + 1 + 4 + 1 + 4);
  CHECK(ops_named(sequence, sequence.iterations[1], "c10d._reduce_scatter_base_.default") == 4 + 4 + 1);
  const Trace sharded = synthesize(config({"parallel.data=4", "parallel.zero=3"}));
  // Two blocks forward and backward, the rest once; a gradient shard each.
  CHECK(ops_named(sharded, sharded.iterations[1], "c10d._allgather_base_.default") == 5);
  CHECK(ops_named(sharded, sharded.iterations[1], "c10d._reduce_scatter_base_.default") == 3);
  for (std::uint32_t op = 0; op < sharded.ops.size(); ++op) {
    if (sharded.op_name(op) != "c10d._allgather_base_.default") continue;
    CHECK(sharded.ops.stream[op] == 1);
    const std::string_view detail =
        sharded.names[sharded.signatures.detail[index(sharded.ops.signature[op])]];
    CHECK(detail.find(",4,1]}") != std::string_view::npos);  // four ranks, data group
  }
}

}  // namespace
}  // namespace swaplab::synth
