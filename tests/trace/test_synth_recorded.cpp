// Synthetic programs against recordings of the same programs: operator names, work, peak memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/shared.hpp"
#include "trace/io.hpp"
#include "trace/synth/synth.hpp"

namespace swaplab {
namespace {

std::vector<std::string_view> names_of(const Trace& trace) {
  std::vector<std::string_view> names;
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op) names.push_back(trace.op_name(op));
  return names;
}

// 1 - Levenshtein distance of the operator names / the longer length.
double name_similarity(const Trace& a, const Trace& b) {
  const auto x = names_of(a), y = names_of(b);
  const std::size_t common =
      static_cast<std::size_t>(std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin());
  std::vector<std::size_t> row(y.size() - common + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = common; i < x.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = common; j < y.size(); ++j) {
      const std::size_t above = row[j - common + 1];
      row[j - common + 1] = std::min({diagonal + (x[i] == y[j] ? 0 : 1), above + 1, row[j - common] + 1});
      diagonal = above;
    }
  }
  return 1.0 - static_cast<double>(row.back()) / static_cast<double>(std::max(x.size(), y.size()));
}

double peak_error(const Trace& a, const Trace& b) {
  return std::abs(static_cast<double>(a.peak_bytes.value - b.peak_bytes.value)) /
         static_cast<double>(b.peak_bytes.value);
}

Trace synthetic(const std::string& workload, const std::vector<std::string>& overrides = {}) {
  return synth::synthesize(
      synth::load_workload(test::source_path("configs/workloads/" + workload + ".yaml"), overrides));
}

Trace recorded(const std::string& file) {
  return read_trace(test::source_path("configs/traces/" + file));
}

// FLOP and bytes of the two operators, where both state them.
void check_work(const Trace& a, const Trace& b) {
  REQUIRE(a.ops.size() == b.ops.size());
  for (std::uint32_t op = 0; op < a.ops.size(); ++op) {
    const auto s = index(a.ops.signature[op]), r = index(b.ops.signature[op]);
    const std::string_view name = a.op_name(op);
    // Batch norm also writes its running statistics; fake lift_fresh is no view there.
    if (name == "aten.native_batch_norm.default" || name == "aten.lift_fresh.default") continue;
    if (a.signatures.flop[s] != b.signatures.flop[r] || a.signatures.read[s] != b.signatures.read[r] ||
        a.signatures.written[s] != b.signatures.written[r]) {
      FAIL_CHECK(std::string(name) << " at operator " << op << ": flop " << a.signatures.flop[s]
                                   << " against " << b.signatures.flop[r]);
      return;
    }
    REQUIRE(a.ops.phase[op] == b.ops.phase[op]);
  }
}

TEST_CASE("GPT-2 medium: every operator of the recording, the same work, the same peak") {
  const Trace made = synthetic("gpt2-medium"), real = recorded("gpt2_medium.jsonl.gz");
  CHECK(name_similarity(made, real) == 1.0);
  CHECK(made.peak_bytes == real.peak_bytes);
  CHECK(made.live_bytes == real.live_bytes);
  check_work(made, real);
}

TEST_CASE("ResNet-50: every operator of the recording and its peak") {
  const Trace made = synthetic("resnet50"), real = recorded("resnet50_b256.jsonl.gz");
  CHECK(name_similarity(made, real) == 1.0);
  CHECK(made.peak_bytes == real.peak_bytes);
  check_work(made, real);
}

TEST_CASE("a small GPT with explicit attention and an AdamW loop") {
  const Trace made = synthetic("gpt-small"), real = recorded("gpt_small.jsonl.gz");
  CHECK(name_similarity(made, real) == 1.0);
  CHECK(peak_error(made, real) < 1e-6);  // the recording has four constants of 8 B more
  check_work(made, real);
}

TEST_CASE("accumulation, changing lengths, validation and a skipped step") {
  const Trace made = synthetic(
      "gpt-small", {"model.layers=3", "training.accumulation=2", "training.validation_every=2",
                    "training.skip_steps=3", "training.sequence=64,128,96", "training.iterations=6"});
  const Trace real = recorded("gpt_varied.jsonl.gz");
  CHECK(name_similarity(made, real) == 1.0);
  CHECK(peak_error(made, real) < 1e-6);
  REQUIRE(made.iterations.size() == real.iterations.size());
  for (std::size_t i = 0; i < made.iterations.size(); ++i) {
    CHECK(made.iterations[i].kind == real.iterations[i].kind);
    CHECK(made.iterations[i].step_skipped == real.iterations[i].step_skipped);
    CHECK(made.iterations[i].end_op == real.iterations[i].end_op);
  }
}

// Another recorder's program: its framework noise (record_function, is_same_size) is not modelled.
const std::vector<std::string> kOtherProgram = {
    "model.dropout=yes",      "model.dropout_kernel=composite", "model.mask=buffer",
    "training.data=separate", "training.loss_division=always",  "training.iterations=3"};

TEST_CASE("the shared recording of another small GPT") {
  const auto path = test::shared_path("recorded/gpt_small.jsonl.gz");
  if (!path) return;
  const Trace made = synthetic("gpt-small", kOtherProgram), real = read_trace(*path);
  const double similarity = name_similarity(made, real);
  MESSAGE("name similarity " << similarity << ", peak error " << peak_error(made, real));
  CHECK(similarity >= 0.95);
  CHECK(peak_error(made, real) <= 0.02);
}

TEST_CASE("the same with reentrant checkpointing of whole blocks") {
  const auto path = test::shared_path("recorded/gpt_small_checkpoint.jsonl.gz");
  if (!path) return;
  auto overrides = kOtherProgram;
  overrides.emplace_back("training.recompute=full");
  const Trace made = synthetic("gpt-small", overrides), real = read_trace(*path);
  const double similarity = name_similarity(made, real);
  MESSAGE("name similarity " << similarity << ", peak error " << peak_error(made, real));
  CHECK(similarity >= 0.95);
  CHECK(peak_error(made, real) <= 0.02);
}

TEST_CASE("the shared ResNet-50 recording") {
  const auto path = test::shared_path("recorded/resnet50_fake_b256.jsonl.gz");
  if (!path) return;
  const Trace made = synthetic("resnet50", {"training.iterations=2"}), real = read_trace(*path);
  MESSAGE("name similarity " << name_similarity(made, real) << ", peak error " << peak_error(made, real));
  CHECK(peak_error(made, real) <= 0.03);
}

TEST_CASE("mixture of experts: the recording's operators, up to which experts are idle") {
  const Trace made = synthetic(
      "gpt-small", {"model.layers=3", "model.hidden=128", "model.vocab=2048", "model.ffn=256",
                    "training.batch=32", "model.experts.count=8", "model.experts.imbalance_percent=100"});
  const Trace real = recorded("moe.jsonl.gz");
  const double similarity = name_similarity(made, real);
  MESSAGE("name similarity " << similarity << ", peak error " << peak_error(made, real));
  CHECK(similarity >= 0.90);
  CHECK(peak_error(made, real) <= 0.10);
}

}  // namespace
}  // namespace swaplab
