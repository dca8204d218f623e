// Synthetic programs against published formulas: activation memory, model state, FLOP.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "trace/synth/synth.hpp"

namespace swaplab::synth {
namespace {

using Overrides = std::vector<std::string>;

Trace program(std::int64_t layers, const Overrides& overrides) {
  Overrides all = {"model.layers=" + std::to_string(layers)};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return synthesize(parse_workload("schema: swaplab/workload@1\nname: w\n", "w", all));
}

// Bytes that the graph holds when the backward pass begins: all but parameters, gradients, optimizer state.
std::int64_t activations_at_backward(const Trace& trace) {
  std::uint32_t op = trace.iterations[0].first_op;
  while (trace.ops.phase[op] != Phase::backward) ++op;
  std::int64_t bytes = 0;
  for (std::uint32_t s = 0; s < trace.storages.size(); ++s) {
    const StorageClass cls = trace.storages.cls[s];
    if (cls != StorageClass::unknown && cls != StorageClass::data) continue;
    if (trace.storages.birth_gap[s] < op && trace.storages.death_gap[s] > op)
      bytes += trace.storages.bytes[s].value;
  }
  return bytes;
}

double per_layer(const Overrides& overrides) {
  return static_cast<double>(activations_at_backward(program(2, overrides)) -
                             activations_at_backward(program(1, overrides)));
}

// Megatron's 22 B model: h 6144, a 64, s 2048, b 4.
const Overrides k22B = {"model.hidden=6144",      "model.heads=64",           "model.vocab=51200",
                        "model.dropout=yes",      "model.attention=explicit", "training.precision=bf16",
                        "training.sequence=2048", "training.batch=4",         "training.iterations=1"};
constexpr double s = 2048, b = 4, h = 6144, a = 64, t = 8;

TEST_CASE("activation bytes per layer: Korthikanti et al., table 2") {
  struct Row {
    const char* name;
    Overrides more;
    double formula;
  };
  const double core = 5 * a * s / h;
  const std::vector<Row> rows = {
      {"no parallelism", {}, s * b * h * (34 + core)},
      {"tensor", {"parallel.tensor=8"}, s * b * h * (10 + 24 / t + core / t)},
      {"tensor + sequence", {"parallel.tensor=8", "parallel.sequence=yes"}, s * b * h / t * (34 + core)},
      {"tensor, selective", {"parallel.tensor=8", "training.recompute=selective"}, s * b * h * (10 + 24 / t)},
      {"tensor + sequence, selective",
       {"parallel.tensor=8", "parallel.sequence=yes", "training.recompute=selective"},
       s * b * h * 34 / t},
      {"selective", {"training.recompute=selective"}, s * b * h * 34},
      {"fused attention", {"model.attention=fused"}, s * b * h * 34},
      {"full", {"training.recompute=full"}, s * b * h * 2},
      {"tensor + sequence, full",
       {"parallel.tensor=8", "parallel.sequence=yes", "training.recompute=full"},
       s * b * h * 2 / t},
  };
  for (const Row& row : rows) {
    Overrides all = k22B;
    all.insert(all.end(), row.more.begin(), row.more.end());
    const double bytes = per_layer(all);
    MESSAGE(std::string(row.name) << ": " << bytes / 1048576 << " MiB, formula " << row.formula / 1048576
                                  << " MiB, " << 100 * (bytes / row.formula - 1) << " %");
    CHECK(std::abs(bytes / row.formula - 1) < 0.01);
  }
}

struct StateBytes {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
};

StateBytes state_at_end(const Trace& trace) {
  StateBytes sum;
  for (std::uint32_t i = 0; i < trace.storages.size(); ++i) {
    if (trace.storages.death_gap[i] != kNever) continue;
    const std::string_view name = trace.names[trace.storages.name[i]];
    const std::int64_t bytes = trace.storages.bytes[i].value;
    if (trace.storages.cls[i] == StorageClass::parameter) sum.parameters += bytes;
    if (trace.storages.cls[i] == StorageClass::gradient) sum.gradients += bytes;
    // One counter per tensor, four bytes that the formulas leave out.
    if (trace.storages.cls[i] == StorageClass::optimizer_state && !name.ends_with(".step"))
      sum.optimizer += bytes;
  }
  return sum;
}

TEST_CASE("model state is exact, byte for byte") {
  // GPT with hidden h, L layers, V rows, s positions: 12 h^2 + 13 h a layer, (V + s) h, 2 h of the last norm.
  constexpr std::int64_t width = 512, layers = 4, vocab = 4096, places = 256;
  constexpr std::int64_t n =
      layers * (12 * width * width + 13 * width) + (vocab + places) * width + 2 * width;
  struct Row {
    const char* name;
    Overrides more;
    std::int64_t parameters, gradients, optimizer;  // bytes
  };
  const Overrides mixed = {"training.precision=bf16", "training.master_weights=yes"};
  const auto with = [&](Overrides more) {
    more.insert(more.end(), mixed.begin(), mixed.end());
    return more;
  };
  constexpr std::int64_t ranks = 8;
  const std::vector<Row> rows = {
      {"fp32 AdamW, 16 B", {"training.precision=fp32"}, 4 * n, 4 * n, 8 * n},
      {"autocast, 16 B", {}, 4 * n, 4 * n, 8 * n},
      {"fp32 SGD with momentum, 12 B",
       {"training.precision=fp32", "training.optimizer=sgd"},
       4 * n,
       4 * n,
       4 * n},
      {"pure bf16 AdamW, 8 B", {"training.precision=bf16"}, 2 * n, 2 * n, 4 * n},
      {"mixed precision of ZeRO, 16 B", with({}), 2 * n, 2 * n, 12 * n},
      {"Megatron bf16 + fp32 gradients, 18 B", with({"training.gradients=fp32"}), 2 * n, 4 * n, 12 * n},
      {"Megatron distributed optimizer, 6 + 12/8 B",
       with({"training.gradients=fp32", "parallel.data=8", "parallel.zero=1"}), 2 * n, 4 * n, 12 * n / ranks},
      {"ZeRO 1, 4 + 12/8 B", with({"parallel.data=8", "parallel.zero=1"}), 2 * n, 2 * n, 12 * n / ranks},
      {"ZeRO 2, 2 + 14/8 B", with({"parallel.data=8", "parallel.zero=2"}), 2 * n, 2 * n / ranks,
       12 * n / ranks},
      {"ZeRO 3, 16/8 B", with({"parallel.data=8", "parallel.zero=3"}), 2 * n / ranks, 2 * n / ranks,
       12 * n / ranks},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    Overrides all = {"model.hidden=512", "model.heads=8",         "model.vocab=4096",
                     "training.batch=1", "training.sequence=256", "training.iterations=2"};
    all.insert(all.end(), row.more.begin(), row.more.end());
    const StateBytes state = state_at_end(program(layers, all));
    CHECK(state.parameters == row.parameters);
    CHECK(state.gradients == row.gradients);
    CHECK(state.optimizer == row.optimizer);
  }
}

TEST_CASE("tensor and pipeline parallelism divide the parameters") {
  constexpr std::int64_t width = 512, vocab = 4096, places = 256;
  const Overrides common = {"model.hidden=512",      "model.heads=8",          "model.vocab=4096",
                            "training.batch=1",      "training.sequence=256",  "training.precision=bf16",
                            "training.iterations=1", "training.accumulation=2"};
  const auto bytes = [&](const Overrides& more) {
    Overrides all = common;
    all.insert(all.end(), more.begin(), more.end());
    return state_at_end(program(4, all)).parameters;
  };
  // Per layer with t ranks: products 12 h^2 / t and biases (3 h + 4 h) / t; row biases 2 h and norms 4 h
  // whole.
  const auto layer = [](std::int64_t ranks) {
    return 12 * width * width / ranks + 7 * width / ranks + 6 * width;
  };
  CHECK(bytes({"parallel.tensor=4"}) == 2 * (4 * layer(4) + vocab / 4 * width + places * width + 2 * width));
  CHECK(bytes({"parallel.pipeline=2"}) == 2 * (2 * layer(1) + (vocab + places) * width));
  CHECK(bytes({"parallel.pipeline=2", "parallel.stage=1"}) == 2 * (2 * layer(1) + vocab * width + 2 * width));
}

// FLOP of matrix products in one training iteration. Flash attention's backward kernel does five products for
// four gradients' worth: the fifth is recomputation, which model FLOP leave out.
double product_flop(const Trace& trace, bool recomputation = true) {
  double sum = 0;
  const Iteration& it = trace.iterations[0];
  for (std::uint32_t op = it.first_op; op < it.end_op; ++op) {
    const std::string_view name = trace.op_name(op);
    if (!recomputation && trace.ops.phase[op] == Phase::recompute) continue;
    const auto flop = static_cast<double>(trace.signatures.flop[index(trace.ops.signature[op])]);
    if (name == "aten.mm.default" || name == "aten.addmm.default" || name == "aten.bmm.default" ||
        name == "sim.flash_fwd.default")
      sum += flop;
    if (name == "sim.flash_bwd.default") sum += flop * 4 / 5;
  }
  return sum;
}

TEST_CASE("FLOP of an iteration: Narayanan et al. and Megatron's training.py") {
  const double layers = 4, vocab = 51200;
  const double narayanan = 72 * b * s * layers * h * h * (1 + s / (6 * h) + vocab / (12 * layers * h));
  const double plain = product_flop(program(4, k22B));
  MESSAGE("GPT 22B, 4 layers: " << plain / 1e12 << " TFLOP, formula " << narayanan / 1e12 << " TFLOP, "
                                << 100 * (plain / narayanan - 1) << " %");
  CHECK(std::abs(plain / narayanan - 1) < 0.01);

  Overrides full = k22B;
  full.emplace_back("training.recompute=full");
  const double recomputed = 96 * b * s * layers * h * h * (1 + s / (6 * h) + vocab / (16 * layers * h));
  const double again = product_flop(program(4, full));
  MESSAGE("the same, full recomputation: " << 100 * (again / recomputed - 1) << " %");
  CHECK(std::abs(again / recomputed - 1) < 0.01);

  // Llama-3 8B: grouped queries, SwiGLU, causal: 3 x (4 T h (h + h g/n) + 2 L^2 h + 6 T h f + 2 T h V).
  const double T = 8192, width = 4096, ffn = 14336, words = 128256, n = 4;
  const double megatron =
      3 * (n * (4 * T * width * (width + width * 8 / 32) + 2 * T * T * width + 6 * T * width * ffn) +
           2 * T * width * words);
  const double llama = product_flop(
      program(4, {"model.hidden=4096", "model.heads=32", "model.kv_heads=8", "model.ffn=14336",
                  "model.vocab=128256", "model.positions=rotary", "model.activation=swiglu", "model.norm=rms",
                  "model.bias=no", "model.tied_head=no", "training.batch=1", "training.sequence=8192",
                  "training.iterations=1", "training.precision=bf16"}));
  MESSAGE("Llama-3 8B, 4 layers: " << 100 * (llama / megatron - 1) << " %");
  CHECK(std::abs(llama / megatron - 1) < 0.01);

  // One tensor-parallel rank does its share.
  Overrides divided = k22B;
  divided.insert(divided.end(), {"parallel.tensor=8", "parallel.sequence=yes"});
  CHECK(std::abs(product_flop(program(4, divided)) * t / narayanan - 1) < 0.01);
}

}  // namespace
}  // namespace swaplab::synth
