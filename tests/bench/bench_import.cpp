// Bytes of JSON per second through the Kineto importer, decoding included.
#include <benchmark/benchmark.h>

#include <string>

#include "trace/import/import.hpp"

namespace {

// A profile of `operators` calls with a kernel, an allocation and a free each, as one text.
std::string profile(std::size_t operators) {
  std::string text = "{\"schemaVersion\": 1, \"traceEvents\": [\n";
  for (std::size_t i = 0; i < operators; ++i) {
    const std::string ts = std::to_string(1669783687464181 + i * 100), id = std::to_string(i + 1);
    const std::string place = "\"pid\": 783658, \"tid\": 785244, \"ts\": " + ts;
    text += (i == 0 ? "" : ",\n") +
            std::string("{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::add\", ") + place +
            ", \"dur\": 45, \"args\": {\"External id\": " + id + ", \"Ev Idx\": " + id + "}},\n";
    text += "{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\", " + place +
            ", \"args\": {\"Ev Idx\": " + id + ", \"Device Type\": 1, \"Device Id\": 0, \"Addr\": " +
            std::to_string(139926520725504 + i % 512 * 4096) + ", \"Bytes\": " + (i % 1024 < 512 ? "" : "-") +
            "4096, \"Total Allocated\": 5435638784, \"Total Reserved\": 12782141440}},\n";
    text += "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", " + place +
            ", \"dur\": 10, \"args\": {\"External id\": " + id + ", \"cbid\": 211, \"correlation\": " + id +
            "}},\n";
    text +=
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"vectorized_elementwise_kernel\", \"pid\": 1, "
        "\"tid\": 7, \"ts\": " +
        ts + ", \"dur\": 3, \"args\": {\"External id\": " + id +
        ", \"queued\": 0, \"device\": 1, \"context\": 1, \"stream\": 7, "
        "\"correlation\": " +
        id + ", \"registers per thread\": 16, \"shared memory\": 0, \"grid\": [24, 1, 1]}}";
  }
  return text + "\n]}\n";
}

void import_kineto(benchmark::State& state) {
  const std::string text = profile(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    const auto input = swaplab::ImportInput::memory("profile", text);
    benchmark::DoNotOptimize(swaplab::import_trace(std::span(&input, 1)));
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(text.size()));
}
BENCHMARK(import_kineto)->Arg(60000)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
