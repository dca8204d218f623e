// Time of plan generation on an iteration of 11,000 operators, v1 and v2, and on the recorded traces; cost
// per operator of the profilers, of matching and of the detector; time of one whole run per policy.
#include <benchmark/benchmark.h>

#include <chrono>
#include <string>

#include "policy/chameleon/fingerprint.hpp"
#include "policy/chameleon/generator.hpp"
#include "policy/chameleon/profile.hpp"
#include "policy/chameleon/profiler.hpp"
#include "policy/chameleon/sequence.hpp"
#include "policy/registry.hpp"
#include "sim/machine_io.hpp"
#include "sim/run.hpp"
#include "tests/support/shared.hpp"
#include "trace/io.hpp"

namespace {

using namespace swaplab;
using namespace swaplab::chameleon;

// A transformer of `blocks` blocks with 115 operators forward and 115 backward each, one activation per
// second forward operator, sizes of a real model in turn, and an optimizer step over its parameters.
IterationProfile transformer(std::uint32_t blocks) {
  constexpr std::uint32_t kOps = 115;
  IterationProfile p;
  for (std::uint32_t i = 0; i < kOps; ++i) p.names.push_back("aten.op" + std::to_string(i));
  p.names[40] = "aten.attention";
  const std::uint32_t activations = blocks * (kOps / 2);
  for (std::uint32_t a = 0; a < activations; ++a) {
    p.storages.push_back({static_cast<std::int64_t>(a), Bytes{(1 + a % 7 * 3LL) << 22}, TensorKind::other});
  }
  for (std::uint32_t s = 0; s < blocks; ++s) {
    p.storages.push_back(
        {static_cast<std::int64_t>(activations + s), Bytes{64LL << 20}, TensorKind::optimizer});
  }
  Bytes active{8LL << 30};
  const auto op = [&](StageType type, std::uint32_t name, std::initializer_list<std::uint32_t> tensors) {
    p.type.push_back(type);
    p.micro_batch.push_back(type == StageType::optimizer ? 0 : 1);
    p.name.push_back(name);
    p.active.push_back(active);
    p.tensors.insert(p.tensors.end(), tensors);
    p.tensor_begin.push_back(static_cast<std::uint32_t>(p.tensors.size()));
    p.duration += Nanos{40'000};
  };
  for (std::uint32_t i = 0; i < blocks * kOps; ++i) {
    const std::uint32_t a = i % kOps / 2 + i / kOps * (kOps / 2);
    if (i % 2 == 0 && a < activations) active += p.storages[a].bytes;
    op(StageType::forward, i % kOps, {std::min(a, activations - 1)});
  }
  for (std::uint32_t i = blocks * kOps; i-- > 0;) {
    const std::uint32_t a = i % kOps / 2 + i / kOps * (kOps / 2);
    op(StageType::backward, i % kOps, {std::min(a, activations - 1)});
    if (i % 2 == 0 && a < activations) active -= p.storages[a].bytes;
  }
  for (std::uint32_t s = 0; s < blocks; ++s) op(StageType::optimizer, 0, {activations + s});
  for (std::uint32_t s = 0; s < blocks; ++s) op(StageType::optimizer, 1, {activations + s});
  return p;
}

GeneratorParams half_of_peak(const IterationProfile& p) {
  GeneratorParams g;
  Bytes peak{0};
  for (const Bytes active : p.active) peak = std::max(peak, active);
  g.reduction_memory = peak / 2;
  g.n_layers = 48;
  return g;
}

void report(benchmark::State& state, const IterationProfile& p, const SwapPlan& plan) {
  state.counters["operators"] = p.op_count();
  state.counters["candidates"] = static_cast<double>(plan.candidates.size());
  state.counters["selected"] = static_cast<double>(plan.selected.size());
  state.counters["rounds"] = static_cast<double>(plan.rounds.size());
}

void generate(benchmark::State& state, const IterationProfile& p, const GeneratorParams& g) {
  SwapPlan plan;
  for (auto _ : state) {
    plan = generate_plan(p, g);
    benchmark::DoNotOptimize(plan);
  }
  report(state, p, plan);
}

void bench_v1(benchmark::State& state) {
  const IterationProfile p = transformer(48);
  GeneratorParams g = half_of_peak(p);
  if (state.range(0) != 0) g.d2h_mib_per_s = g.h2d_mib_per_s = 3000;  // most picks are delayed: many rounds
  generate(state, p, g);
}
BENCHMARK(bench_v1)->ArgName("slow_link")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void bench_v2(benchmark::State& state) {
  const IterationProfile p = transformer(48);
  GeneratorParams g = half_of_peak(p);
  g.version = GeneratorVersion::v2;
  generate(state, p, g);
}
BENCHMARK(bench_v2)->Unit(benchmark::kMillisecond);

// The recordings that the public code was timed on (reference/generator/wall.json), configuration
// v1_tight4_r40.
void bench_recorded(benchmark::State& state) {
  const char* const names[] = {"gpt_small", "gpt_small_checkpoint", "resnet50_fake_b256"};
  const auto folder = test::shared_path("recorded");
  if (!folder) {
    state.SkipWithError("no recorded traces");
    return;
  }
  const std::string name = names[state.range(0)];
  IterationProfile p =
      profile_iteration(read_trace(*folder + "/" + name + ".jsonl.gz"), -1, OperatorFilter::all).profile;
  GeneratorParams g;
  Bytes peak{0};
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    if (p.type[op] == StageType::forward || p.type[op] == StageType::backward)
      peak = std::max(peak, p.active[op]);
  }
  g.reduction_memory = Bytes{peak.value * 40 / 100};
  g.tensor_size_filter = Bytes{64 << 10};
  g.n_layers = state.range(0) == 2 ? 16 : 4;
  p.duration = Nanos{peak.value / (1 << 20) * 1'000'000'000 / 25600 / 4};
  state.SetLabel(name);
  generate(state, p, g);
}
BENCHMARK(bench_recorded)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

// ---- cost per operator of what the online system does beside the training program

struct Stream {  // operators of the transformer as hooks see them: a name and three operands
  std::vector<NameId> name;
  std::vector<std::string> text;
  std::vector<Slot> operands;
  static constexpr std::size_t kOperands = 3;
};

Stream stream_of(const IterationProfile& p) {
  Stream s;
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    s.name.push_back(NameId{p.name[op] + 1});
    s.text.push_back(p.names[p.name[op]]);
    for (std::uint32_t i = 0; i < Stream::kOperands; ++i)
      s.operands.push_back(Slot{(op * 7 + i * 13) % 3000});
  }
  return s;
}

void per_operator(benchmark::State& state, std::size_t operators) {
  state.counters["per_operator"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(operators),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void bench_profiler_light(benchmark::State& state) {
  const Stream s = stream_of(transformer(48));
  TokenTable table;
  std::vector<std::uint32_t> sequence;
  for (auto _ : state) {
    sequence.clear();
    for (const NameId name : s.name) sequence.push_back(table.token(name));
    benchmark::DoNotOptimize(sequence.data());
  }
  per_operator(state, s.name.size());
}
BENCHMARK(bench_profiler_light);

void bench_profiler_detailed(benchmark::State& state) {
  const IterationProfile p = transformer(48);
  const Stream s = stream_of(p);
  TokenTable table;
  DetailedProfiler profiler;
  for (auto _ : state) {
    profiler.begin_iteration();
    for (std::size_t op = 0; op < s.name.size(); ++op) {
      profiler.op(p.type[op], p.micro_batch[op], table.token(s.name[op]), p.active[op]);
      for (std::size_t i = 0; i < Stream::kOperands; ++i) {
        const Slot slot = s.operands[op * Stream::kOperands + i];
        profiler.tensor(slot, index(slot), Bytes{1 << 20}, StorageClass::unknown);
      }
    }
    const IterationProfile out = profiler.finish(p.duration, false, p.names);
    benchmark::DoNotOptimize(out.tensors.data());
  }
  per_operator(state, s.name.size());
}
BENCHMARK(bench_profiler_detailed);

void bench_profiler_conventional(benchmark::State& state) {
  const Stream s = stream_of(transformer(48));
  ConventionalProfiler<std::chrono::steady_clock> profiler;
  const std::vector<Bytes> operands(Stream::kOperands, Bytes{1 << 20});
  for (auto _ : state) {
    profiler.clear();
    for (std::size_t op = 0; op < s.name.size(); ++op) {
      profiler.begin(s.text[op], operands);
      profiler.end();
    }
    benchmark::DoNotOptimize(profiler.records().data());
  }
  per_operator(state, s.name.size());
}
BENCHMARK(bench_profiler_conventional);

void bench_matching(benchmark::State& state) {
  const Stream s = stream_of(transformer(48));
  TokenTable table;
  std::vector<std::uint32_t> sequence;
  for (const NameId name : s.name) sequence.push_back(table.token(name));
  Fingerprints prints;
  prints.set_operators(frequent_operators(sequence));
  std::uint64_t sum = 0;
  for (auto _ : state) {
    prints.begin_iteration();
    for (std::size_t op = 0; op < sequence.size(); ++op) {
      for (std::uint32_t i = 0; i < Stream::kOperands; ++i) {
        sum += prints.use(s.operands[op * Stream::kOperands + i], sequence[op], i).last_operators;
      }
    }
    benchmark::DoNotOptimize(sum);
  }
  per_operator(state, sequence.size());
}
BENCHMARK(bench_matching);

void bench_detector(benchmark::State& state) {
  const Stream s = stream_of(transformer(48));
  TokenTable table;
  std::vector<std::uint32_t> sequence;
  for (const NameId name : s.name) sequence.push_back(table.token(name));
  for (auto _ : state) {
    bool differs = sequences_differ(sequence, sequence, DetectorParams{});
    benchmark::DoNotOptimize(differs);
  }
  per_operator(state, sequence.size());
}
BENCHMARK(bench_detector);

// A whole run, the policy's own work included: wall time per operator of the simulated program.
void bench_run(benchmark::State& state, const char* policy_text) {
  const Machine machine = load_machine("h100-pcie5");
  const Program program = compile_program(
      read_trace(test::source_path("configs/traces/gpt2_medium.jsonl.gz")), machine, TimeSource::model);
  const auto specs = parse_policies(policy_text);
  RunOptions options;
  options.allocator = AllocatorKind::ideal;
  options.budget = Bytes{program.peak_bytes.value * 7 / 10};
  options.needs = specs[0].factory->info().needs;
  for (auto _ : state) {
    const auto policy = specs[0].factory->make(specs[0].values);
    const RunResult result = run_program(program, machine, *policy, options);
    benchmark::DoNotOptimize(result.evictions);
  }
  per_operator(state, program.op_count());
}
BENCHMARK_CAPTURE(bench_run, lru, "lru")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bench_run, passive_swap, "passive-swap")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bench_run, chameleon, "chameleon:warmup_step=0,stable_step=1")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bench_run, adaptive_one_trial, "adaptive:trials=1")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bench_run, adaptive, "adaptive")->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
