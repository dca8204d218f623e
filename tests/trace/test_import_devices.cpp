// Nsight Systems exports and memory timelines: small ones with known answers, and the corpus.
#include <map>

#include "tests/support/shared.hpp"
#include "tests/trace/import_samples.hpp"

using swaplab::Bytes;
using swaplab::ImportResult;
using swaplab::StudyKind;
using namespace swaplab::test;

TEST_CASE("import nsys: kernels in the order of their launches, waits, kernels without launch") {
  const ImportResult r = import_text(nsys_sample());
  REQUIRE(r.trace);
  const swaplab::Trace& t = *r.trace;
  CHECK(r.report.format == "nsys-sqlite");
  CHECK(r.report.study == StudyKind::times_only);
  REQUIRE(t.ops.size() == 3);
  CHECK(t.op_name(0) == "gemm");
  CHECK(t.ops.device_time[0].value == 30);
  CHECK(t.ops.device_time[1].value == 85);
  CHECK(t.ops.device_time[2].value == 10);
  CHECK(t.ops.host_time[0].value == 10);
  CHECK(t.ops.host_gap[1].value == 90);
  CHECK(t.ops.sync[0] == swaplab::SyncKind::none);
  CHECK(t.ops.sync[1] == swaplab::SyncKind::explicit_sync);
  CHECK(t.ops.stream[1] == 0);
  CHECK(t.ops.stream[2] == 1);
  CHECK(note_count(r.report.derived, "operators without launch") == 1);
}

TEST_CASE("import nsys: with memory usage also storages") {
  const ImportResult r = import_text(
      database(kNsysTables + "CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS(start INTEGER, address INTEGER, "
                             "bytes INTEGER, memKind INTEGER, "
                             "memoryOperationType INTEGER, deviceId INTEGER);"
                             "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS "
                             "VALUES(50,4096,1000,2,0,0),(60,8192,10,2,0,0),(320,4096,1000,2,1,0),"
                             "(330,1,5,2,1,0),(70,3,5,1,0,0);"));
  REQUIRE(r.trace);
  CHECK(r.report.study == StudyKind::memory_only);
  CHECK(r.trace->ops.size() == 5);
  CHECK(r.trace->peak_bytes == Bytes{1010});
  CHECK(r.trace->live_bytes == Bytes{10});
  CHECK(note_count(r.report.dropped, "frees without an allocation") == 1);
  CHECK(note_count(r.report.dropped, "memory events of the host") == 1);
}

TEST_CASE("import nsys: what is no number is dropped and counted, never taken as 0") {
  const ImportResult r = import_text(
      database(kNsysTables +
               "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(NULL,290,0,7,8,16777216,2),"
               "(500,'soon',0,7,8,16777216,2),(500,510.5,0,7,8,16777216,2),(500,510,x'00',7,8,16777216,2),"
               "(500,505,0,7,NULL,16777216,2);"
               "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(NULL,NULL,16777217,99,1);"));
  REQUIRE(r.trace);
  CHECK(r.report.found_count("kernels") == 8);
  CHECK(note_count(r.report.dropped, "records without usable numbers") == 5);
  // Without a correlation a kernel keeps its time and stands where it ran.
  CHECK(note_count(r.report.derived, "operators without launch") == 2);
  REQUIRE(r.trace->ops.size() == 4);
  CHECK(r.report.found_count("device_time_ns") == 30 + 85 + 10 + 5);
}

TEST_CASE("import nsys: what is no report is refused") {
  CHECK(contains(refusal(database("CREATE TABLE a(b)")), "no export of Nsight Systems"));
  CHECK(contains(refusal(database("CREATE TABLE StringIds(id INTEGER, value TEXT); CREATE TABLE "
                                  "CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER)")),
                 "expected a column 'end' in the table CUPTI_ACTIVITY_KIND_KERNEL"));
  // A view cannot stand for a table: nothing of the file's schema runs.
  CHECK(contains(refusal(database("CREATE VIEW StringIds AS SELECT 1 AS id, 'x' AS value")),
                 "no export of Nsight Systems"));
  CHECK(contains(refusal("SQLite format 3" + std::string(500, '\0')), "the SQLite database cannot be read"));
}

TEST_CASE("import memory timeline: creations, versions, ends") {
  const ImportResult r = import_text(kTimeline);
  REQUIRE(r.trace);
  const swaplab::Trace& t = *r.trace;
  CHECK(r.report.format == "memory-timeline");
  CHECK(r.report.study == StudyKind::memory_only);
  REQUIRE(t.ops.size() == 2);
  CHECK(t.op_name(1) == "memory::write");
  CHECK(t.written(1).size() == 1);
  CHECK(t.written(1)[0] == t.outputs(0)[0]);
  CHECK(t.ops.host_gap[1].value == 500);
  CHECK(t.peak_bytes == Bytes{150});
  CHECK(t.live_bytes == Bytes{100});
  CHECK(t.storages.cls[0] == swaplab::StorageClass::parameter);
  CHECK(r.report.baseline == Bytes{100});
  CHECK(r.report.found_count("new_versions") == 1);
  const auto dropped = [](const std::string& rows, const char* what) {
    return note_count(import_text("[[1, 2, 8, 7], " + rows + "]").report.dropped, what);
  };
  CHECK(dropped("[2, 4, -9, 7]", "rows that end no live storage") == 1);
  CHECK(dropped("[2, 3, -8, 7], [3, 2, 8, 1]", "halves of new versions") == 1);
  CHECK(dropped("[2, 3, 8, 7]", "halves of new versions") == 1);
  const auto refused = [](const std::string& row) { return refusal("[[1, 2, 8, 7], " + row + "]"); };
  CHECK(contains(refused("[2, 5, 8, 7]"), "byte 15: expected an action from 1 to 4"));
  CHECK(contains(refused("[2, 2, -8, 7]"), "expected bytes that are negative where storages end"));
  CHECK(contains(refused("[2, 2, 8, 8]"), "a category from 0 to 7"));
  CHECK(contains(refused("[2, 2, 9223372036854775808, 1]"), "four integers of 64 bits"));
  CHECK(contains(refused("[2, 2, NaN, 1]"), "byte "));
  CHECK(contains(refused("[2, 2, 8]"), "a row [time, action, bytes, category]"));
}

TEST_CASE("import memory timeline, nsys: the corpus as its index counts it") {
  const auto timeline = shared_path("corpus/optrace/torch_memory_timeline_raw.json.gz");
  if (!timeline) return;
  const auto& t = swaplab::import_files({*timeline}).report;
  CHECK(t.found_count("rows") == 16845);
  CHECK(t.found_count("created") == t.found_count("destroyed"));
  CHECK(t.found_count("preexisting") + t.found_count("created") + t.found_count("destroyed") +
            2 * t.found_count("new_versions") ==
        16845);
  CHECK(note_count(t.dropped, "rows that end no live storage") == 0);
  const auto& n = swaplab::import_files({*shared_path("corpus/optrace/nsys_export_a.sqlite")}).report;
  CHECK(n.found_count("kernels") == 19);
  CHECK(n.found_count("runtime_calls") == 968);
  CHECK(n.found_count("nvtx_events") == 652);
  CHECK(n.found_count("device_time_ns") == 396259);
}
