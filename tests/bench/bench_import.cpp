// Bytes of a file per second through the importers, decoding included.
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

// An execution trace of `operators` nodes; each reads what the one before it made.
std::string execution_trace(std::size_t operators) {
  std::string text = "{\"schema\": \"1.0.1\", \"nodes\": [{\"name\": \"root\", \"id\": 1, \"parent\": 1}";
  for (std::size_t i = 2; i < operators + 2; ++i) {
    const auto tensor = [&](std::size_t id) {
      return "[[" + std::to_string(3 * id) + ", " + std::to_string(3 * id + 1) +
             ", 0, 65536, 4, \"cuda:0\"]]";
    };
    text +=
        ",\n{\"name\": \"aten::relu\", \"id\": " + std::to_string(i) + ", \"rf_id\": " + std::to_string(i) +
        ", \"parent\": 1, \"fw_parent\": 0, \"seq_id\": -1, \"scope\": 0, \"tid\": 1, \"fw_tid\": 0, "
        "\"op_schema\": \"aten::relu(Tensor self) -> Tensor\", \"inputs\": " +
        tensor(i - 1) +
        ", \"input_shapes\": [[256, 256]], \"input_types\": [\"Tensor(float)\"], \"outputs\": " + tensor(i) +
        ", \"output_shapes\": [[256, 256]], \"output_types\": [\"Tensor(float)\"]}";
  }
  return text + "]}\n";
}

std::string lifetimes(std::size_t buffers) {
  std::string text = "id,lower,upper,size\n";
  for (std::size_t i = 0; i < buffers; ++i)
    text += std::to_string(i) + "," + std::to_string(i) + "," + std::to_string(i + 1 + i * 7 % 97) + "," +
            std::to_string(512 * (1 + i % 31)) + "\n";
  return text;
}

void import_all(benchmark::State& state, const std::string& text) {
  for (auto _ : state) {
    const auto input = swaplab::ImportInput::memory("memory", text);
    benchmark::DoNotOptimize(swaplab::import_trace(std::span(&input, 1)));
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(text.size()));
}
void import_kineto(benchmark::State& state) {
  import_all(state, profile(static_cast<std::size_t>(state.range(0))));
}
BENCHMARK(import_kineto)->Arg(60000)->Unit(benchmark::kMillisecond);

void import_execution_trace(benchmark::State& state) {
  import_all(state, execution_trace(static_cast<std::size_t>(state.range(0))));
}
BENCHMARK(import_execution_trace)->Arg(60000)->Unit(benchmark::kMillisecond);

void import_lifetimes(benchmark::State& state) {
  import_all(state, lifetimes(static_cast<std::size_t>(state.range(0))));
}
BENCHMARK(import_lifetimes)->Arg(500000)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
