// The bound at the scale of GPT-2 medium: about 7,000 operators and 4,800 gaps an iteration.
#include <benchmark/benchmark.h>

#include <map>
#include <memory>

#include "sim/bounds/steady_bound.hpp"
#include "tests/sim/bound_programs.hpp"

using namespace swaplab;

namespace {

constexpr SwapRates kRates{55'000'000'000, 55'000'000'000};

// 24 layers of 145 saved activations of about 4 MiB each, as many backward operators, 24 optimizer steps.
const Program& program_of(int iterations) {
  static std::map<int, Program> programs;  // made once per process
  auto it = programs.find(iterations);
  if (it == programs.end()) {
    it = programs.emplace(iterations, test::training_program(24, 145, iterations, 4 << 20, 20'000, 1)).first;
  }
  return it->second;
}

void prepare(benchmark::State& state) {
  const Program& program = program_of(static_cast<int>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(RunBounds(program, kRates));
  state.counters["operators"] = static_cast<double>(program.op_count());
}

void one_budget(benchmark::State& state) {
  const Program& program = program_of(static_cast<int>(state.range(0)));
  const RunBounds bounds(program, kRates, {static_cast<std::uint32_t>(state.range(1)), 0});
  const Bytes budget = bounds.required_peak() / 2;
  for (auto _ : state) benchmark::DoNotOptimize(bounds.at(budget));
  state.counters["operators"] = static_cast<double>(program.op_count());
}

}  // namespace

BENCHMARK(prepare)->Arg(4)->Arg(10)->Unit(benchmark::kMillisecond);
BENCHMARK(one_budget)
    ->ArgNames({"iterations", "samples"})
    ->Args({4, 400})
    ->Args({4, 800})
    ->Args({10, 800})
    ->Args({10, 1600})
    ->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();  // the test library that is linked for its helpers has a main of its own
