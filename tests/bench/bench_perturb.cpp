// Speed of comparing and of perturbing traces, per operator.
#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/bench/recordings.hpp"
#include "trace/diff.hpp"
#include "trace/perturb/perturb.hpp"
#include "trace/perturb/random.hpp"

namespace swaplab {
namespace {

// Two sequences of `length` operators of 500 kinds; a tenth of them differ, spread out.
std::pair<std::vector<Token>, std::vector<Token>> similar_sequences(std::size_t length) {
  Random random(1);
  std::vector<Token> a(length), b(length);
  for (std::size_t i = 0; i < length; ++i) {
    a[i] = random.below(500);
    b[i] = random.chance(100'000) ? random.below(500) : a[i];
  }
  return {std::move(a), std::move(b)};
}

void BM_EditDistance(benchmark::State& state) {
  const auto length = static_cast<std::size_t>(state.range(0));
  const auto [a, b] = similar_sequences(length);
  for (auto _ : state) benchmark::DoNotOptimize(edit_distance(a, b));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(length));
}
BENCHMARK(BM_EditDistance)->Arg(1'000)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

void BM_Align(benchmark::State& state) {
  const auto length = static_cast<std::size_t>(state.range(0));
  const auto [a, b] = similar_sequences(length);
  for (auto _ : state) benchmark::DoNotOptimize(align_sequences(a, b));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(length));
}
BENCHMARK(BM_Align)->Arg(10'000)->Unit(benchmark::kMillisecond);

void perturb(benchmark::State& state, const std::string& request) {
  const std::vector<PerturbationRequest> requests = {parse_perturbation(request)};
  for (auto _ : state) benchmark::DoNotOptimize(perturb_trace(gpt2_medium(20), requests, 1));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(gpt2_medium(20).ops.size()));
}
void BM_PerturbNothing(benchmark::State& state) {
  perturb(state, "insert:rate=0");
}
void BM_PerturbInsert(benchmark::State& state) {
  perturb(state, "insert:rate=0.01");
}
void BM_PerturbSequenceLength(benchmark::State& state) {
  perturb(state, "sequence_length:to=768");
}
void BM_PerturbRecompute(benchmark::State& state) {
  perturb(state, "recompute");
}
BENCHMARK(BM_PerturbNothing)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_PerturbInsert)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_PerturbSequenceLength)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_PerturbRecompute)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace swaplab

BENCHMARK_MAIN();
