// Kineto profiles: hand-made ones with known answers, and the whole corpus against its reference counts.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/shared.hpp"
#include "tests/trace/import_support.hpp"
#include "trace/import/decimal.hpp"
#include "trace/import/kineto_events.hpp"

using swaplab::Bytes;
using swaplab::ImportResult;
using swaplab::StudyKind;
using namespace swaplab::test;

namespace {

// Two operators, each with one kernel and one allocation; the first storage dies inside the second.
const std::string kSmall = R"({"schemaVersion": 1, "traceEvents": [
 {"ph":"X","cat":"user_annotation","name":"ProfilerStep#7","pid":1,"tid":1,"ts":90,"dur":400,"args":{}},
 {"ph":"X","cat":"cpu_op","name":"aten::linear","pid":1,"tid":1,"ts":100,"dur":50.5,"args":{"External id":1}},
 {"ph":"X","cat":"cpu_op","name":"aten::addmm","pid":1,"tid":1,"ts":110,"dur":30,"args":{"External id":2}},
 {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":120,"dur":5,"args":{"correlation":11,"External id":2}},
 {"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":112,"args":{"Addr":4096,"Bytes":1024,"Device Type":1,"Device Id":0,"Total Allocated":3024}},
 {"ph":"X","cat":"cpu_op","name":"aten::relu_","pid":1,"tid":1,"ts":200.125,"dur":20,"args":{"External id":3,"Input Dims":[[16,16]],"Input type":["float"]}},
 {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":210,"dur":2,"args":{"correlation":12}},
 {"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":215,"args":{"Addr":4096,"Bytes":-1024,"Device Type":1,"Device Id":0,"Total Allocated":2000}},
 {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":130,"dur":40.007,"args":{"device":0,"stream":7,"correlation":11}},
 {"ph":"X","cat":"kernel","name":"relu","pid":0,"tid":7,"ts":220,"dur":3,"args":{"device":0,"stream":7,"correlation":12}}
]})";

std::string event(const std::string& members) {
  return "[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::a\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":1," +
         members + "}]";
}

}  // namespace

TEST_CASE("import kineto: a small profile with known operators, times, storages and iteration") {
  const ImportResult r = import_text(kSmall);
  REQUIRE(r.trace);
  const swaplab::Trace& t = *r.trace;
  CHECK(r.report.format == "kineto");
  CHECK(r.report.study == StudyKind::full);
  CHECK(contains(r.report.study_reason,
                 "(1 of 1 tensor input matched); the baseline, 1.95 KiB of a peak of 2.95 KiB, "
                 "cannot move; forward only"));
  REQUIRE(t.ops.size() == 2);
  CHECK(t.op_name(0) == "aten::linear");
  CHECK(t.op_name(1) == "aten::relu_");
  CHECK(t.ops.device_time[0].value == 40007);
  CHECK(t.ops.device_time[1].value == 3000);
  CHECK(t.ops.host_time[0].value == 50500);
  CHECK(t.ops.host_gap[1].value == 49625);
  // The first call takes longer than both kernels.
  CHECK(note_count(r.report.derived, "host calls longer than all device work") == 1);
  // The baseline (3024 - 1024) is external and read by both; the block of 1024 B is read by its shape.
  REQUIRE(t.storages.size() == 2);
  CHECK(r.report.baseline == Bytes{2000});
  CHECK(t.storages.bytes[0] == Bytes{2000});
  CHECK(t.outputs(0).size() == 1);
  CHECK(t.inputs(1).size() == 2);
  CHECK(t.written(1).size() == 1);
  CHECK(t.live_bytes == Bytes{2000});
  CHECK(t.peak_bytes == Bytes{3024});
  REQUIRE(t.iterations.size() == 1);
  CHECK(t.iterations[0].number == 7);
  CHECK(swaplab::examine_trace(t).problems.empty());
}

TEST_CASE("import kineto: the same profile as a bare array, with a byte order mark, with text numbers") {
  const auto first = kSmall.find('['), last = kSmall.rfind(']');
  const ImportResult whole = import_text(kSmall), bare = import_text(kSmall.substr(first, last - first + 1));
  CHECK(swaplab::trace_hash(*whole.trace) == swaplab::trace_hash(*bare.trace));
  CHECK(bare.report.version == "bare array");
  const ImportResult marked = import_text("\xef\xbb\xbf" + kSmall);
  CHECK(swaplab::trace_hash(*whole.trace) == swaplab::trace_hash(*marked.trace));
  std::string quoted = kSmall;
  quoted.replace(quoted.find("\"ts\":100"), 8, "\"ts\":\"100\"");
  CHECK(swaplab::trace_hash(*whole.trace) == swaplab::trace_hash(*import_text(quoted).trace));
}

TEST_CASE("import kineto: times are exact decimals, never doubles") {
  using swaplab::scaled_decimal;
  CHECK(scaled_decimal("1799999999000900.151", 3) == 1799999999000900151);
  CHECK(scaled_decimal("-0.001", 3) == -1);
  CHECK(scaled_decimal("1.5e3", 3) == 1500000);
  CHECK(scaled_decimal("12e-3", 3) == 12);
  CHECK(scaled_decimal("9223372036854775807", 0) == 9223372036854775807);
  CHECK_FALSE(scaled_decimal("9223372036854775808", 0));
  CHECK_FALSE(scaled_decimal("1e400", 0));
  CHECK_FALSE(scaled_decimal("inf", 3));
  CHECK_FALSE(scaled_decimal("", 3));
  bool cut = false;
  CHECK(scaled_decimal("0.00019", 3, &cut) == 0);
  CHECK(cut);
  const auto path = shared_path("corpus/awkward/made_ns_fraction_beyond_double.json");
  if (!path) return;
  const auto events = swaplab::kineto::read_events(swaplab::ImportInput::file(*path));
  REQUIRE(events.ops.size() == 3);
  CHECK(events.ops[0].ts + events.ops[0].dur == events.ops[1].ts);
  CHECK(events.ops[1].ts + events.ops[1].dur == events.ops[2].ts);
}

TEST_CASE("import kineto: repairs what is unambiguous and says so") {
  const auto repaired = [](const std::string& members, std::string_view what) {
    return note_count(import_text(event(members)).report.repaired, what);
  };
  CHECK(repaired("\"args\":{\"x\":inf,\"y\":[1,-Infinity],\"z\":NaN}", "non-finite numbers") == 3);
  CHECK(repaired("\"args\":{\"x\":\"a\nb\"}", "control characters in texts") == 1);
  const std::string path = R"([{"ph":"X","cat":"cpu_op","name":"C:\new\q","pid":1,"tid":1,"ts":1,"dur":1}])";
  CHECK(note_count(import_text(path).report.repaired, "texts with impossible escapes") == 1);
  CHECK(repaired("\"args\":{\"x\":\"\xff\"}", "bytes that are not UTF-8") == 1);
}

TEST_CASE("import kineto: one clear error with the byte") {
  const std::string unquoted = event("tid\": 4");
  CHECK(contains(refusal(unquoted), "byte " + std::to_string(unquoted.find("tid\": 4")) +
                                        ": expected a key in quotes, found 'tid\": 4"));
  CHECK(contains(refusal(event("\"a\": \"x\"y\"")), "expected"));
  CHECK(contains(refusal("{\"schemaVersion\":1,\"traceEvents\":[{\"ph\":\"X\"} {\"ph\":\"X\"}]}"),
                 "expected ',' or ']'"));
  CHECK(contains(refusal("[{\"ph\":\"X\"}] tail"), "expected the end of the file"));
  CHECK(contains(refusal("[{\"ph\":\"X\"}, 5]"), "expected an event object"));
  CHECK(contains(refusal(""), "is empty"));
  CHECK(contains(refusal("version https://git-lfs.github.com/spec/v1\n"), "Git LFS pointer"));
  CHECK(contains(refusal("[1,2,3]"), "JSON, but neither"));
  CHECK(contains(refusal("hello"), "no format that swaplab knows"));
  CHECK(contains(refusal("\x89SWT1"), "is a swaplab trace already: use it with 'swaplab run --trace'"));
  CHECK(contains(refusal("{\"k\":\"header\",\"version\":1}\n"), "is a swaplab trace already"));
  check_truncations(kSmall, "kineto");
  std::string deep = "[{\"ph\":\"X\",\"args\":{\"x\":";
  deep += std::string(200000, '[') + std::string(200000, ']') + "}}]";
  CHECK(import_text(deep).report.found_count("events") == 1);
  CHECK(contains(refusal(deep.substr(0, 150000)), "byte 150000: expected a value, found the end"));
}

TEST_CASE("import kineto: unfinished records are dropped and counted") {
  const ImportResult r = import_text(R"([
    {"ph":"X","cat":"cpu_op","name":"aten::a","pid":1,"tid":1,"ts":1000,"dur":-1,"args":{}},
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":0,"dur":0,"args":{"correlation":1}},
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":99999999999999999999,"args":{}},
    {"ph":"B","name":"open","pid":1,"tid":1,"ts":1}, {"ph":"E","name":"x","pid":1,"tid":2,"ts":1}])");
  CHECK(note_count(r.report.dropped, "events with a negative duration") == 1);
  CHECK(note_count(r.report.dropped, "kernels at time 0 for 0 ns") == 1);
  CHECK(note_count(r.report.dropped, "events without usable numbers") == 1);
  CHECK(note_count(r.report.dropped, "slices without an end") == 1);
  CHECK(note_count(r.report.dropped, "ends without a slice") == 1);
  CHECK(r.report.study == StudyKind::none);
  CHECK_FALSE(r.trace);
}

TEST_CASE("import kineto: backward by flow and by forward thread; NCCL metadata") {
  const auto op = [](const char* name, int ts, const char* args) {
    return std::string(R"({"ph":"X","cat":"cpu_op","name":")") + name + R"(","pid":1,"tid":1,"ts":)" +
           std::to_string(ts) + R"(,"dur":5,"args":{)" + args + "}},";
  };
  const ImportResult r = import_text(
      "[" + op("aten::mm", 10, "\"Fwd thread id\":0") + op("aten::a", 20, "\"Fwd thread id\":1") +
      op("aten::b", 30, "") +
      R"({"ph":"s","cat":"fwdbwd","id":1,"pid":1,"tid":1,"ts":10},{"ph":"f","cat":"fwdbwd","id":1,"pid":1,"tid":1,"ts":30.000},
         {"ph":"X","cat":"kernel","name":"nccl","pid":0,"tid":7,"ts":40,"dur":1,"args":{"Collective name":"allreduce","dtype":"Float","In msg nelems":100}}])");
  REQUIRE(r.trace);
  CHECK(r.trace->ops.phase[0] == swaplab::Phase::forward);
  CHECK(r.trace->ops.phase[1] == swaplab::Phase::backward);
  CHECK(r.trace->ops.phase[2] == swaplab::Phase::backward);
  CHECK(note_count(r.report.derived, "backward operators by flow or thread") == 2);
  CHECK(r.report.found_count("collective kernels allreduce") == 1);
  CHECK(r.report.found_count("collective_bytes") == 400);
}

TEST_CASE("import kineto: every corpus file has the reference counts and keeps all kernel time") {
  const auto oracle_path = shared_path("corpus/oracle.json");
  if (!oracle_path) return;
  const auto oracle = nlohmann::json::parse(read_file(*oracle_path));
  int files = 0;
  for (const auto& file : oracle.items()) {
    const std::string& name = file.key();
    const nlohmann::json& want = file.value();
    if (!want.is_object() || want.value("kind", "") != "kineto") continue;
    CAPTURE(name);
    const ImportResult r = swaplab::import_files({*shared_path("corpus/" + name)});
    const auto& got = r.report;
    CHECK(got.format == "kineto");
    CHECK(got.found_count("events") == want["n"]);
    CHECK(got.found_count("events_named_backward") == want["bwd"]);
    CHECK(got.found_count("memory_events") == want["mem"]);
    CHECK(got.found_count("events_with_shapes") == want["shapes"]);
    CHECK(got.found_count("kernels") == want["kern"]);
    for (const auto& [phase, count] : want["ph"].items()) CHECK(got.found_count("phase " + phase) == count);
    for (const auto& [cat, count] : want["cats"].items()) CHECK(got.found_count("category " + cat) == count);
    if (want.contains("memory")) {
      for (const auto& [device, memory] : want["memory"].items()) {
        if (device.rfind("0:", 0) == 0) continue;
        CHECK(got.found_count("allocated_bytes") == memory["alloc_bytes"]);
        if (!memory["peak_total"].is_null()) CHECK(got.found_count("peak_bytes") == memory["peak_total"]);
      }
    }
    if (r.trace) {
      std::int64_t device_time = 0;
      for (std::size_t i = 0; i < r.trace->ops.device_time.size(); ++i)
        device_time += r.trace->ops.device_time[i].value;
      CHECK(device_time == got.found_count("device_time_ns"));
      CHECK(swaplab::examine_trace(*r.trace).problems.empty());
    }
    ++files;
  }
  CHECK(files == 32);
}
