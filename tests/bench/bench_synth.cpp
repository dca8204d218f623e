// Speed of generating synthetic traces, per operator.
#include <benchmark/benchmark.h>

#include "trace/synth/synth.hpp"

namespace swaplab::synth {
namespace {

WorkloadConfig program(const std::vector<std::string>& overrides) {
  return parse_workload(
      "schema: swaplab/workload@1\nname: bench\nmodel: {layers: 24, hidden: 1024, heads: 16}\n"
      "training: {iterations: 20, optimizer: adamw-fused}\n",
      "bench", overrides);
}

// Counts and forgets: the program's own cost.
class CountingSink final : public OperatorSink {
 public:
  SigId add_signature(const TraceBuilder::Signature&) override { return SigId{signatures_++}; }
  StorageId alloc(Bytes, std::string_view, bool) override { return StorageId{storages_++}; }
  void tag(StorageId, StorageClass, std::string_view) override {}
  void resize(StorageId, Bytes, Bytes) override {}
  void free(StorageId) override {}
  void mark(MarkKind, std::string_view, std::int64_t) override {}
  void saved(std::span<const StorageId>, std::int64_t, std::int64_t) override {}
  void op(const TraceBuilder::Op&) override { ++operators; }
  std::int64_t operators = 0;

 private:
  std::uint32_t signatures_ = 0, storages_ = 0;
};

void generate(benchmark::State& state, const std::vector<std::string>& overrides) {
  const WorkloadConfig config = program(overrides);
  std::int64_t operators = 0;
  for (auto _ : state) operators += static_cast<std::int64_t>(synthesize(config).ops.size());
  state.SetItemsProcessed(operators);
}

void stream(benchmark::State& state, const std::vector<std::string>& overrides) {
  const WorkloadConfig config = program(overrides);
  CountingSink sink;
  for (auto _ : state) run_workload(config, sink);
  state.SetItemsProcessed(sink.operators);
}

BENCHMARK_CAPTURE(generate, gpt2_medium, {})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, explicit_adamw_loop,
                  {"model.attention=explicit", "training.optimizer=adamw-loop", "training.precision=fp32"})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, llama_recompute,
                  {"model.positions=rotary", "model.activation=swiglu", "model.norm=rms",
                   "training.recompute=full"})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(stream, gpt2_medium, {})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace swaplab::synth

BENCHMARK_MAIN();  // the test library that is linked for its helpers has a main of its own
