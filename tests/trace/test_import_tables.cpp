// DTR logs, G10 kernel lists and lifetime tables: small ones with known answers, and the corpus.
#include <nlohmann/json.hpp>

#include "tests/support/shared.hpp"
#include "tests/trace/import_support.hpp"

using swaplab::Bytes;
using swaplab::ImportResult;
using swaplab::StudyKind;
using namespace swaplab::test;

namespace {

const std::string kDtr =
    R"({"INSTRUCTION":"CONSTANT","NAME":"w"}
{"INSTRUCTION":"MEMORY","MEMORY":"100","NAME":"w"}
{"ARGS":["w"],"INSTRUCTION":"CALL","NAME":"mm","RESULT":["a"],"TIME":"50"}
{"INSTRUCTION":"MEMORY","MEMORY":"40","NAME":"a"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"a"}
{"ARGS":["a"],"INSTRUCTION":"CALL","NAME":"view","RESULT":["b"],"TIME":"1"}
{"INSTRUCTION":"MEMORY","MEMORY":"40","NAME":"b"}
{"ALIAS":"0","INSTRUCTION":"ALIAS","NAME":"b"}
{"INSTRUCTION":"RELEASE","NAME":"a"}
{"ANNOTATION":"BACKWARD","INSTRUCTION":"ANNOTATE"}
{"ARGS":["b"],"INSTRUCTION":"MUTATE","MUTATE":[0],"NAME":"relu_","TIME":"7"}
{"INSTRUCTION":"RELEASE","NAME":"b"}
)";

nlohmann::json oracle(const std::string& path) {
  return nlohmann::json::parse(read_file(path));
}

std::int64_t device_time(const swaplab::Trace& trace) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < trace.ops.device_time.size(); ++i) sum += trace.ops.device_time[i].value;
  return sum;
}

}  // namespace

TEST_CASE("import DTR: names, aliases, mutations, releases") {
  const ImportResult r = import_text(kDtr);
  REQUIRE(r.trace);
  const swaplab::Trace& t = *r.trace;
  CHECK(r.report.format == "dtr-simrd");
  CHECK(r.report.study == StudyKind::full);
  REQUIRE(t.ops.size() == 3);
  CHECK(t.storages.size() == 2);
  CHECK(t.outputs(1)[0] == t.outputs(0)[0]);
  CHECK(t.written(2).size() == 1);
  CHECK(t.peak_bytes == Bytes{140});
  CHECK(t.live_bytes == Bytes{100});
  CHECK(device_time(t) == 58);
  CHECK(t.ops.phase[2] == swaplab::Phase::backward);
  CHECK(contains(refusal("{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"x\"}\n"), ":1: RELEASE of 'x'"));
  CHECK(contains(refusal(kDtr + "{\"INSTRUCTION\":"), ":13: expected one JSON object"));
  CHECK(contains(refusal(kDtr + "{\"INSTRUCTION\":\"JUMP\"}"), ":13: unknown INSTRUCTION 'JUMP'"));
  CHECK(contains(refusal("{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"w\"}\n{\"INSTRUCTION\":\"MEMORY\","
                         "\"NAME\":\"w\",\"MEMORY\":\"9223372036854775808\"}"),
                 ":2: 'MEMORY' must be an integer up to 2^50"));
}

TEST_CASE("import lifetimes: order, half-open ends, faults") {
  const ImportResult r = import_text("id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\n");
  REQUIRE(r.trace);
  CHECK(r.trace->peak_bytes == Bytes{8});
  CHECK(r.trace->live_bytes == Bytes{0});
  CHECK(import_text("\xef\xbb\xbfid,lower,upper,size\r\n1,0,2,4\r\n").trace->peak_bytes == Bytes{4});
  CHECK(contains(refusal("id,lower,upper,size\n1,5,3,4\n"), ":2: 'upper' 3 lies before 'lower' 5"));
  CHECK(contains(refusal("id,lower,upper,size\n1,0,3,4\n1,0,3,4\n"), ":3: the id '1' occurs twice"));
  CHECK(contains(refusal("id,lower,upper,size\n1,0,3\n"), ":2: expected 4 fields, found 3"));
  CHECK(contains(refusal("id,lower,upper,size\n1,0,3,nan\n"), ":2: 'size' must be an integer"));
  CHECK_FALSE(import_text("id,lower,upper,size\n").trace);
}

TEST_CASE("import G10: kernels, tensors, cycles") {
  const std::string text =
      "Kernel ID: 0, Name: A_Forward\nExecution Time: 12\nInput Tensors:\ntensor1 Is weight (global)?: 1, "
      "Size in byte: 8, "
      "Range:0--8\nOutput Tensors:\ntensor0 Is weight (global)?: 0, Size in byte: 4, "
      "Range:0--4\n____\nKernel ID: 1, Name: "
      "A_Backward\nExecution Time: 7\nInput Tensors:\ntensor0 Is weight (global)?: 0, Size in byte: 4, "
      "Range:0--4\nOutput Tensors:\n";
  const ImportResult r = import_text(text);
  REQUIRE(r.trace);
  CHECK(r.report.study == StudyKind::full);
  CHECK(r.trace->ops.device_time[0].value == 10);
  CHECK(r.trace->ops.device_time[1].value == 5);
  CHECK(r.trace->peak_bytes == Bytes{12});
  CHECK(r.trace->live_bytes == Bytes{8});
  CHECK(contains(refusal("Kernel ID: 0, Name: A\nInput Tensors:\n"), "has no 'Execution Time'"));
  CHECK(contains(refusal("Kernel ID: 3, Name: A\n"), ":1: expected kernel 0"));
  // A line cut short is no smaller tensor.
  for (const char* cut : {"4", "4, Range:0--", "4, Range:0--41", "4, Range:8--4"}) {
    CHECK(contains(
        refusal("Kernel ID: 0, Name: A\nExecution Time: 1\nInput Tensors:\ntensor0 Is weight (global)?: 0, "
                "Size in byte: " +
                std::string(cut) + "\n"),
        ":4: expected 'tensorN"));
  }
}

TEST_CASE("import tables: the corpus has the reference counts") {
  const auto path = shared_path("corpus/oracle.json");
  if (!path) return;
  int files = 0;
  const nlohmann::json all = oracle(*path);
  for (const auto& file : all.items()) {
    const std::string& name = file.key();
    const nlohmann::json& want = file.value();
    if (!want.is_object()) continue;
    const bool dtr = want.contains("instr"), g10 = want.contains("cycles"),
               memplan = want.contains("buffers");
    if (!dtr && !g10 && !memplan) continue;
    CAPTURE(name);
    const ImportResult r = swaplab::import_files({*shared_path("corpus/" + name)});
    REQUIRE(r.trace);
    CHECK(swaplab::examine_trace(*r.trace).problems.empty());
    if (dtr) {
      for (const auto& [kind, count] : want["instr"].items()) CHECK(r.report.found_count(kind) == count);
      CHECK(r.report.found_count("records") == want["lines"]);
      CHECK(r.report.found_count("fresh_aliases") == want["aliases_neg1"]);
      CHECK(r.report.found_count("total_memory_bytes") == want["total_memory"]);
      CHECK(device_time(*r.trace) == want["total_time"]);
    } else if (g10) {
      CHECK(r.report.found_count("cycles") == want["cycles"]);
      CHECK(r.report.found_count("kernels") == want["kernels"]);
    } else {
      CHECK(r.report.found_count("buffers") == want["buffers"]);
      CHECK(r.trace->peak_bytes.value == want["max_load"]);
    }
    ++files;
  }
  CHECK(files == 17);
}
