// Speed of replay, per operator.
#include <benchmark/benchmark.h>

#include <string>

#include "policy/registry.hpp"
#include "sim/machine_io.hpp"
#include "sim/run.hpp"
#include "tests/bench/recordings.hpp"

namespace swaplab {
namespace {

void replay(benchmark::State& state, const std::string& policy, std::int64_t tenths,
            AllocatorKind allocator) {
  const Machine machine = load_machine("a100-40g-pcie4");
  const Program program = compile_program(gpt2_medium(10), machine, TimeSource::model);
  const auto spec = parse_policies(policy)[0];
  RunOptions options;
  options.allocator = allocator;
  options.budget = Bytes{program.peak_bytes.value / 10 * tenths};
  options.needs = spec.factory->info().needs;
  for (auto _ : state) {
    const auto instance = spec.factory->make(spec.values);
    const RunResult result = run_program(program, machine, *instance, options);
    if (result.outcome != Outcome::ok) state.SkipWithError(result.explanation.c_str());
  }
  state.SetItemsProcessed(state.iterations() * program.op_count());
}

void BM_ReplayLruCaching(benchmark::State& state) {
  replay(state, "lru", 6, AllocatorKind::caching);
}
void BM_ReplayLruIdeal(benchmark::State& state) {
  replay(state, "lru", 6, AllocatorKind::ideal);
}
void BM_ReplayNoneCaching(benchmark::State& state) {
  replay(state, "none", 12, AllocatorKind::caching);
}
BENCHMARK(BM_ReplayLruCaching)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ReplayLruIdeal)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ReplayNoneCaching)->Unit(benchmark::kMillisecond);

void BM_CompileProgram(benchmark::State& state) {
  const Machine machine = load_machine("a100-40g-pcie4");
  for (auto _ : state) benchmark::DoNotOptimize(compile_program(gpt2_medium(10), machine, TimeSource::model));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(gpt2_medium(10).ops.size()));
}
BENCHMARK(BM_CompileProgram)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace swaplab

BENCHMARK_MAIN();  // the test library that is linked for its helpers has a main of its own
