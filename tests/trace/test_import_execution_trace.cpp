// ExecutionTraces: both layouts, faults, the corpus against its counts, and pairs linked with Kineto.
#include <nlohmann/json.hpp>

#include "tests/support/shared.hpp"
#include "tests/trace/import_support.hpp"

using swaplab::Bytes;
using swaplab::ImportResult;
using swaplab::StudyKind;
using namespace swaplab::test;

namespace {

// y = mm(x, w); z = relu_(y): x and w live from before.
const std::string kFlat = R"json({"schema": "1.0.1", "nodes": [
 {"name":"root","id":1,"parent":1,"rf_id":0,"inputs":[],"outputs":[]},
 {"name":"aten::mm","id":2,"parent":1,"rf_id":1,"op_schema":"aten::mm(Tensor self, Tensor mat2) -> Tensor",
  "inputs":[[10,20,0,16,4,"cuda:0"],[11,21,0,16,4,"cuda:0"]],"outputs":[[12,22,0,8,4,"cuda:0"]]},
 {"name":"aten::relu_","id":3,"parent":1,"rf_id":2,"op_schema":"aten::relu_(Tensor(a!) self) -> Tensor(a!)",
  "inputs":[[12,22,0,8,4,"cuda:0"]],"outputs":[[12,22,0,8,4,"cuda:0"]]}]})json";
const std::string kNested = R"json({"schema": "1.1.0-chakra.0.0.4", "nodes": [
 {"name":"root","id":1,"ctrl_deps":1,"inputs":{"values":[]},"outputs":{"values":[]},"attrs":[]},
 {"name":"aten::relu_","id":3,"ctrl_deps":1,"inputs":{"values":[[12,22,0,8,4,"cuda:0"]]},
  "outputs":{"values":[[12,22,0,8,4,"cuda:0"]]},"attrs":[{"name":"rf_id","type":"uint64","value":2},
  {"name":"op_schema","type":"string","value":"aten::relu_(Tensor(a!) self) -> Tensor(a!)"}]},
 {"name":"aten::mm","id":2,"ctrl_deps":1,"inputs":{"values":[[10,20,0,16,4,"cuda:0"],[11,21,0,16,4,"cuda:0"]]},
  "outputs":{"values":[[12,22,0,8,4,"cuda:0"]]},"attrs":[{"name":"rf_id","type":"uint64","value":1}]}]})json";

}  // namespace

TEST_CASE("import execution trace: both layouts say the same") {
  const ImportResult flat = import_text(kFlat), nested = import_text(kNested);
  REQUIRE(flat.trace);
  REQUIRE(nested.trace);
  CHECK(flat.report.format == "execution-trace");
  CHECK(flat.report.study == StudyKind::memory_only);
  CHECK(swaplab::trace_hash(*flat.trace) == swaplab::trace_hash(*nested.trace));
  const swaplab::Trace& t = *flat.trace;
  REQUIRE(t.ops.size() == 2);
  CHECK(t.inputs(0).size() == 2);
  CHECK(t.outputs(0).size() == 1);
  CHECK(t.written(1).size() == 1);
  CHECK(t.peak_bytes == Bytes{160});
  CHECK(t.live_bytes == Bytes{128});
}

TEST_CASE("import execution trace: faults") {
  const std::string twice = R"json({"schema":"1.0.1","nodes":[{"id":1,"parent":1},{"id":1,"parent":1}]})json";
  CHECK(contains(refusal(twice), "node id 1 occurs twice"));
  const std::string cycle = R"json({"schema":"1.0.1","nodes":[{"id":1,"parent":2},{"id":2,"parent":1}]})json";
  CHECK(contains(refusal(cycle), "form a cycle"));
  CHECK(contains(refusal(R"json({"schema":"1.0.1","nodes":[{"name":"x"}]})json"),
                 "byte 27: expected a node with an integer 'id'"));
  CHECK(contains(refusal(R"json({"schema":"1.0.1","nodes":[{"id":1 "parent":1}]})json"),
                 "expected ',' or '}'"));
  const ImportResult orphan = import_text(R"json({"schema":"1.0.1","nodes":[{"id":5,"parent":77}]})json");
  CHECK(note_count(orphan.report.dropped, "parents outside the file") == 1);
  CHECK_FALSE(orphan.trace);
  check_truncations(kFlat, "execution-trace");
}

TEST_CASE("import execution trace: the corpus has the reference counts") {
  const auto path = shared_path("corpus/oracle.json");
  if (!path) return;
  const auto oracle = nlohmann::json::parse(read_file(*path));
  int files = 0;
  for (const auto& file : oracle.items()) {
    const std::string& name = file.key();
    const nlohmann::json& want = file.value();
    if (!want.is_object() || want.value("kind", "") != "ET") continue;
    CAPTURE(name);
    const ImportResult r = swaplab::import_files({*shared_path("corpus/" + name)});
    CHECK(r.report.found_count("nodes") == want["nodes"]);
    CHECK(r.report.found_count("tensors") == want["tensors"]);
    CHECK(r.report.found_count("storage_ids") == want["storages"]);
    CHECK(r.report.found_count("storage_bytes") == want["bytes"]);
    CHECK(r.report.found_count("nodes_named_backward") == want["bwd"]);
    CHECK(r.report.found_count("largest_id") == want["maxid"]);
    REQUIRE(r.trace);
    CHECK(swaplab::examine_trace(*r.trace).problems.empty());
    ++files;
  }
  CHECK(files == 8);
}

namespace {

// A profile of two operators with a kernel each, with the Record function ids of kFlat.
std::string kineto_half(const char* first, const char* second) {
  const auto op = [](const char* name, int id) {
    const std::string at = std::to_string(100 * id), number = std::to_string(id);
    return R"({"ph":"X","cat":"cpu_op","name":")" + std::string(name) + R"(","pid":1,"tid":1,"ts":)" + at +
           R"(,"dur":50,"args":{"External id":)" + number + R"(,"Record function id":)" + number +
           R"(}},{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":)" + at +
           R"(,"dur":5,"args":{"correlation":)" + number +
           R"(}},{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":)" + at +
           R"(,"dur":30,"args":{"device":0,"stream":7,"correlation":)" + number + "}}";
  };
  return R"({"schemaVersion": 1, "traceEvents": [)" + op(first, 1) + "," + op(second, 2) + "]}";
}

ImportResult import_pair(const std::string& profile) {
  const swaplab::ImportInput files[] = {swaplab::ImportInput::memory("et.json", kFlat),
                                        swaplab::ImportInput::memory("profile.json", profile)};
  return swaplab::import_trace(files);
}

}  // namespace

TEST_CASE("import execution trace: halves of different recordings are refused") {
  const ImportResult whole = import_pair(kineto_half("aten::mm", "aten::relu_"));
  CHECK(whole.report.study == StudyKind::full);
  CHECK(contains(whole.report.study_reason, "2 of 2 operators linked, 100.0 % of the profile's device time"));
  CHECK(contains(whole.report.study_reason, "forward only"));
  CHECK_FALSE(contains(whole.report.study_reason, "other iterations"));
  const ImportResult half = import_pair(kineto_half("aten::mm", "aten::softmax"));
  CHECK(contains(half.report.study_reason, "1 of 2 operators linked, 50.0 % of the profile's device time"));
  CHECK_THROWS_WITH_AS(import_pair(kineto_half("aten::add", "aten::softmax")),
                       "et.json: only 0 of its 2 operators have a counterpart in profile.json: these are not "
                       "halves of one recording",
                       swaplab::Error);
}

TEST_CASE("import execution trace: no corpus file links with another recording's profile") {
  const char* const traces[] = {"pair_simple_add_et.json.gz", "pair_dlrm_r0_et_1.0.1.json",
                                "pair_linear_et_1.0.1.json.gz"};
  const char* const profiles[] = {"pair_simple_add_kineto.json.gz", "pair_dlrm_r0_kineto.json",
                                  "pair_linear_kineto.json.gz"};
  for (std::size_t t = 0; t < 3; ++t) {
    for (std::size_t p = 0; p < 3; ++p) {
      const auto trace = shared_path(std::string("corpus/et/") + traces[t]),
                 profile = shared_path(std::string("corpus/kineto/") + profiles[p]);
      if (!trace || !profile) return;
      CAPTURE(traces[t]);
      CAPTURE(profiles[p]);
      std::string message;
      try {
        const ImportResult r = swaplab::import_files({*trace, *profile});
        CHECK(contains(r.report.study_reason, "of the profile's device time"));
      } catch (const swaplab::Error& error) {
        CHECK(error.kind() == swaplab::ErrorKind::input);
        message = error.what();
      }
      CHECK((t == p) == message.empty());
      CHECK((t == p || contains(message, "these are not halves of one recording")));
    }
  }
}

TEST_CASE("import execution trace: with the Kineto half no device time is lost") {
  struct Pair {
    const char *trace, *kineto;
  };
  for (const Pair& pair : {Pair{"et/pair_simple_add_et.json.gz", "kineto/pair_simple_add_kineto.json.gz"},
                           Pair{"et/pair_dlrm_r0_et_1.0.1.json", "kineto/pair_dlrm_r0_kineto.json"},
                           Pair{"et/pair_linear_et_1.0.1.json.gz", "kineto/pair_linear_kineto.json.gz"}}) {
    const auto trace = shared_path(std::string("corpus/") + pair.trace),
               kineto = shared_path(std::string("corpus/") + pair.kineto);
    if (!trace || !kineto) return;
    CAPTURE(pair.trace);
    const ImportResult alone = swaplab::import_files({*kineto});
    const ImportResult r = swaplab::import_files({*kineto, *trace});  // in either order
    CHECK(r.report.format == "execution-trace");
    CHECK(r.report.study == StudyKind::full);
    CHECK(r.report.found_count("kineto_device_time_ns") == alone.report.found_count("device_time_ns"));
    std::int64_t in_trace = 0;
    for (std::size_t i = 0; i < r.trace->ops.device_time.size(); ++i)
      in_trace += std::max<std::int64_t>(r.trace->ops.device_time[i].value, 0);
    CHECK(in_trace ==
          r.report.found_count("linked_device_time_ns") + r.report.found_count("unclaimed_device_time_ns"));
    const std::int64_t outside =
        note_count(r.report.dropped, "device time outside of the execution trace, ns");
    CHECK(in_trace + outside == alone.report.found_count("device_time_ns"));
    CHECK(r.report.found_count("linked_operators") * 10 >= r.report.found_count("trace_operators") * 9);
  }
}
