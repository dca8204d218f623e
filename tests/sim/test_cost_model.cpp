// Operator classes and the roofline, worked out by hand.
#include <doctest/doctest.h>

#include "sim/cost_model.hpp"
#include "sim/machine_io.hpp"
#include "trace/error.hpp"

using namespace swaplab;

namespace {

struct Signature {
  std::string name, detail;
  std::int64_t flop, read, written;
  bool view = false;
};

Trace one_signature(const Signature& s) {
  const std::string chars = s.name + s.detail;
  Trace trace;
  trace.names =
      StringTable(Column<std::uint64_t>(std::vector<std::uint64_t>{0, 0, s.name.size(), chars.size()}),
                  Column<char>(std::vector<char>(chars.begin(), chars.end())));
  trace.signatures.name = Column<NameId>(std::vector<NameId>{NameId{1}});
  trace.signatures.detail = Column<NameId>(std::vector<NameId>{NameId{2}});
  trace.signatures.flop = Column<std::int64_t>(std::vector<std::int64_t>{s.flop});
  trace.signatures.read = Column<Bytes>(std::vector<Bytes>{Bytes{s.read}});
  trace.signatures.written = Column<Bytes>(std::vector<Bytes>{Bytes{s.written}});
  trace.signatures.scratch = Column<Bytes>(std::vector<Bytes>{Bytes{-1}});
  trace.signatures.view =
      Column<std::uint8_t>(std::vector<std::uint8_t>{s.view ? std::uint8_t{1} : std::uint8_t{0}});
  return trace;
}

// Rates that are easy to divide by: 1 FLOP/ns in fp32, 2 in TF32, 4 in fp16, 8 in bf16, 1/2 in fp64; 10 B/ns.
Machine simple_machine() {
  Machine m;
  m.flop_rates = {1'000'000'000, 2'000'000'000, 4'000'000'000, 8'000'000'000, 500'000'000};
  m.hbm_bytes_per_second = 10'000'000'000;
  return m;
}

std::int64_t ns(const Signature& s, const Machine& m) {
  return model_device_time(one_signature(s), SigId{0}, m).value;
}

std::string dtype(const char* name) {
  return R"({"in":[[[4,4],")" + std::string(name) + R"("]],"out":[]})";
}

}  // namespace

TEST_CASE("operator classes by name") {
  const std::vector<std::pair<const char*, OpClass>> cases = {
      {"aten.mm.default", OpClass::matmul},
      {"aten.addmm.default", OpClass::matmul},
      {"aten.bmm.default", OpClass::matmul},
      {"aten.baddbmm.default", OpClass::matmul},
      {"aten.linear.default", OpClass::matmul},
      {"aten::linear_backward", OpClass::matmul},
      {"sim::flash_fwd", OpClass::attention},
      {"sim.flash_bwd.default", OpClass::attention},
      {"aten._scaled_dot_product_flash_attention.default", OpClass::attention},
      {"aten._scaled_dot_product_efficient_attention_backward.default", OpClass::attention},
      {"aten.convolution.default", OpClass::convolution},
      {"aten.convolution_backward.default", OpClass::convolution},
      {"aten.cudnn_convolution.default", OpClass::convolution},
      {"aten.native_batch_norm.default", OpClass::normalization},
      {"aten.native_batch_norm_backward.default", OpClass::normalization},
      {"aten._native_batch_norm_legit.default", OpClass::normalization},
      {"aten.native_layer_norm_backward.default", OpClass::normalization},
      {"aten._softmax.default", OpClass::reduction},
      {"aten._log_softmax_backward_data.default", OpClass::reduction},
      {"aten.sum.dim_IntList", OpClass::reduction},
      {"aten.mean.dim", OpClass::reduction},
      {"aten.nll_loss_forward.default", OpClass::reduction},
      {"aten.max_pool2d_with_indices_backward.default", OpClass::reduction},
      {"aten._foreach_add_.List", OpClass::optimizer},
      {"aten._foreach_sqrt.default", OpClass::optimizer},
      {"aten._fused_adamw_.default", OpClass::optimizer},
      {"aten.clone.default", OpClass::copy},
      {"aten.copy_.default", OpClass::copy},
      {"aten._to_copy.default", OpClass::copy},
      {"aten.cat.default", OpClass::copy},
      {"aten.zeros_like.default", OpClass::copy},
      {"aten.embedding.default", OpClass::copy},
      {"aten.embedding_dense_backward.default", OpClass::reduction},
      {"aten.add_.Tensor", OpClass::elementwise},
      {"aten.mul.Tensor", OpClass::elementwise},
      {"aten.addcmul_.default", OpClass::elementwise},
      {"aten.relu_.default", OpClass::elementwise},
      {"aten.threshold_backward.default", OpClass::elementwise},
      {"aten.gelu_backward.default", OpClass::elementwise},
      {"aten.masked_fill.Scalar", OpClass::elementwise},
      {"aten.bernoulli_.float", OpClass::elementwise},
      {"aten.mmm.default", OpClass::other},  // a prefix ends at a word
      {"aten.summary.default", OpClass::other},
      {"mylib::rotary", OpClass::other},
      {"", OpClass::other},
      {"aten.", OpClass::other},
      {"___", OpClass::other}};
  for (const auto& known : cases) {
    CAPTURE(known.first);
    CHECK(op_class_name(classify_operator(known.first)) == op_class_name(known.second));
  }
}

TEST_CASE("roofline: the larger of compute, memory and floor") {
  Machine m = simple_machine();
  const std::string f32 = dtype("float32");
  CHECK(ns({"aten.mm.default", f32, 1000, 500, 500}, m) == 1000);    // 1000 FLOP at 1/ns
  CHECK(ns({"aten.mm.default", f32, 1000, 9000, 5001}, m) == 1401);  // 14001 B at 10/ns = 1400.1
  m.kernel_floor = Nanos{4000};
  CHECK(ns({"aten.mm.default", f32, 1000, 500, 500}, m) == 4000);
  CHECK(ns({"aten.mm.default", f32, 4001, 500, 500}, m) == 4001);
}

TEST_CASE("roofline: number formats") {
  const Machine m = simple_machine();
  CHECK(ns({"aten.mm.default", dtype("float16"), 1001, 0, 0}, m) == 251);   // 250.25
  CHECK(ns({"aten.mm.default", dtype("bfloat16"), 1001, 0, 0}, m) == 126);  // 125.125
  CHECK(ns({"aten.mm.default", dtype("float64"), 1001, 0, 0}, m) == 2002);
  CHECK(ns({"aten.convolution.default", dtype("float32"), 1001, 0, 0}, m) == 501);  // TF32
  CHECK(ns({"aten.mm.default", dtype("int64"), 1001, 0, 0}, m) == 1001);            // no float at all: fp32
  CHECK(ns({"aten.mm.default", "", 1001, 0, 0}, m) == 1001);
  // The first floating-point input counts, not the first input; the output only when no input is one.
  CHECK(ns({"aten.mm.default", R"({"in":[[[4],"int64"],[[[4],"float16"]]],"out":[[[4],"float64"]]})", 1000, 0,
            0},
           m) == 250);
  CHECK(ns({"aten.mm.default", R"({"in":[[[4],"int64"]],"out":[[[4],"bfloat16"]]})", 1000, 0, 0}, m) == 125);
}

TEST_CASE("roofline: efficiencies are those of the class") {
  Machine m = simple_machine();
  m.efficiency[static_cast<std::size_t>(OpClass::matmul)] = {600'000, 500'000};
  CHECK(ns({"aten.mm.default", dtype("float32"), 1000, 0, 0}, m) == 1667);  // 1000 / 0.6
  CHECK(ns({"aten.mm.default", dtype("float32"), 0, 1000, 0}, m) == 200);   // 100 / 0.5
  CHECK(ns({"aten.add.Tensor", dtype("float32"), 1000, 0, 0}, m) == 1000);
}

TEST_CASE("roofline: no work, unknown work, huge work") {
  Machine m = simple_machine();
  m.kernel_floor = Nanos{4000};
  CHECK(ns({"aten.view.default", "", 0, 0, 0, true}, m) == 0);
  CHECK(ns({"aten.view.default", "", -1, -1, -1, true}, m) == 0);
  CHECK(ns({"aten.empty.memory_format", "", 0, 0, 0}, m) == 0);
  CHECK(ns({"aten.mm.default", "", -1, 100'000, -1}, m) == 10'000);
  CHECK(ns({"aten.mm.default", "", 100'000, -1, -1}, m) == 100'000);
  CHECK_THROWS_WITH_AS(
      ns({"aten.mm.default", "", -1, -1, -1}, m),
      "operator 'aten.mm.default' (signature 0) has neither FLOP nor bytes: its device time cannot be "
      "modelled; record `flop`, `rb` and `wb`, or device times",
      Error);
  CHECK(ns({"aten.mm.default", "", 1'000'000'000'000'000'001, 0, 0}, m) == 1'000'000'000'000'000'001);
}

TEST_CASE("a GPT-2 medium projection on an A100: 16-bit matmul at 72 % of 312 TFLOP/s") {
  const Machine m = load_machine("a100-80g-pcie4");
  // [8192, 1024] x [1024, 4096]: 2 * 8192 * 1024 * 4096 FLOP / (312e12 * 0.72) = 305909.4 ns
  CHECK(ns({"aten.mm.default", dtype("bfloat16"), 68'719'476'736, 25'165'824, 67'108'864}, m) == 305'910);
}
