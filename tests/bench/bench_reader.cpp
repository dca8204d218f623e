// Speed of every format, and memory per operator, on GPT-2 medium continued to 20 and to 200 iterations.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/bench/recordings.hpp"

namespace swaplab {
namespace {

// A folder that goes with the process.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("swaplab-bench-" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};
std::string file(const std::string& extension) {
  static const Folder folder;
  return (folder.path / ("gpt2" + extension)).string();
}

void counters(benchmark::State& state, const Trace& trace, std::uint64_t bytes) {
  const auto ops = static_cast<double>(trace.ops.size());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(trace.ops.size()));
  state.counters["memory_B_per_op"] = static_cast<double>(trace.memory_bytes()) / ops;
  state.counters["file_B_per_op"] = static_cast<double>(bytes) / ops;
}

// Bytes per second count the text, not the compressed file.
void read(benchmark::State& state, const std::string& extension, std::uint32_t iterations) {
  const std::string path = file(extension);
  write_trace(gpt2_medium(iterations), path);
  std::uint64_t bytes = 0;
  for (auto _ : state) {
    ReadReport report;
    benchmark::DoNotOptimize(read_trace(path, &report));
    bytes = report.text_bytes;
  }
  counters(state, gpt2_medium(iterations), bytes);
}

void BM_ReadJsonl(benchmark::State& state) {
  read(state, ".jsonl", 20);
}
void BM_ReadJsonlGz(benchmark::State& state) {
  read(state, ".jsonl.gz", 20);
}
void BM_ReadJsonlZst(benchmark::State& state) {
  read(state, ".jsonl.zst", 20);
}
void BM_LoadSwt(benchmark::State& state) {
  read(state, ".swt", 200);
}

void BM_WriteSwt(benchmark::State& state) {
  const Trace& trace = gpt2_medium(200);
  for (auto _ : state) write_trace(trace, file(".written.swt"));
  counters(state, trace, std::filesystem::file_size(file(".written.swt")));
}
void BM_JsonlText(benchmark::State& state) {
  const Trace& trace = gpt2_medium(20);
  std::uint64_t bytes = 0;
  for (auto _ : state) bytes = jsonl_text(trace).size();
  counters(state, trace, bytes);
}
void BM_TraceHash(benchmark::State& state) {
  const Trace& trace = gpt2_medium(200);
  for (auto _ : state) benchmark::DoNotOptimize(trace_hash(trace));
  counters(state, trace, trace.memory_bytes());
}

BENCHMARK(BM_ReadJsonl)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ReadJsonlGz)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ReadJsonlZst)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_LoadSwt)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_WriteSwt)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_JsonlText)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_TraceHash)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace swaplab

BENCHMARK_MAIN();
