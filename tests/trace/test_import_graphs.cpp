// Chakra, PipeDream, SimAI, G10 tables: small files with known answers, and the corpus.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/shared.hpp"
#include "tests/trace/import_samples.hpp"
#include "trace/import/chakra.hpp"

using swaplab::Bytes;
using swaplab::ImportResult;
using swaplab::StudyKind;
using namespace swaplab::test;

TEST_CASE("import Chakra: pieces and kernels become operators with storages and times") {
  const ImportResult r = import_text(kChakra);
  REQUIRE(r.trace);
  const swaplab::Trace& t = *r.trace;
  CHECK(r.report.format == "chakra");
  CHECK(r.report.version == "0.0.4");
  CHECK(r.report.study == StudyKind::full);
  CHECK(r.report.found_count("nodes") == 4);
  REQUIRE(t.ops.size() == 2);
  CHECK(t.op_name(0) == "aten::mm");
  CHECK(t.ops.device_time[0].value == 40000);
  CHECK(t.ops.host_time[0].value == 5000);
  CHECK(t.op_name(1) == "aten::relu_");
  CHECK(t.ops.device_time[1].value == 0);
  CHECK(t.inputs(0).size() == 2);
  CHECK(t.outputs(0).size() == 1);
  CHECK(t.written(1).size() == 1);
  CHECK(t.live_bytes == Bytes{128});
  CHECK(t.peak_bytes == Bytes{160});
  CHECK(note_count(r.report.derived, "pieces joined") == 1);
  CHECK(note_count(r.report.dropped, "dependencies on nodes that are not in the file") == 1);
}

TEST_CASE("import Chakra: argument lists as text") {
  std::vector<swaplab::TensorUse> uses;
  std::int64_t bad = 0;
  swaplab::chakra::tensors_of_text(
      "[[[1, 2, 0, 64, 4, 'cuda:0'], [3, 4, 8, 8, 2, 'cpu']], '<None>', 5, [1, 1], [7, 8, 0, 1, 4, "
      "\"cuda:1\"], "
      "[9, 9, 0, 4611686018427387904, 4, 'cuda:0'], [1, 2, 3, 4, 'cuda:0']]",
      uses, bad);
  REQUIRE(uses.size() == 3);
  CHECK(uses[0].storage == 2);
  CHECK(uses[0].extent == 256);
  CHECK(uses[0].argument == 0);
  CHECK(uses[0].on_device);
  CHECK(uses[1].extent == 32);
  CHECK_FALSE(uses[1].on_device);
  CHECK(uses[2].argument == 4);
  CHECK(bad == 1);
}

TEST_CASE("import Chakra: order, cycles, ids") {
  // Node 1 waits for node 2: dependencies come before ids.
  const ImportResult ordered = import_text(chakra_json(R"({"id":1,"name":"b","data_deps":[2],"runtime":1},
                                                          {"id":2,"name":"a","runtime":2})"));
  REQUIRE(ordered.trace);
  CHECK(ordered.trace->op_name(0) == "a");
  const ImportResult cycle = import_text(chakra_json(R"({"id":1,"name":"b","data_deps":[2],"runtime":1},
                                                        {"id":2,"name":"a","ctrlDeps":[1],"runtime":2})"));
  REQUIRE(cycle.trace);
  CHECK(cycle.trace->op_name(0) == "b");
  CHECK(note_count(cycle.report.derived, "order by id") == 2);
  CHECK(note_count(import_text(chakra_json(R"({"Id":4,"NodeType":4,"data_deps":[4]})")).report.dropped,
                   "dependencies of a node on itself") == 1);
  CHECK(contains(refusal(chakra_json(R"({"id":1},{"id":1})")), "node id 1 occurs twice"));
  CHECK(contains(refusal(chakra_json(R"({"name":"x"})")), "expected a node with an integer 'id'"));
  CHECK(contains(refusal(chakra_json(R"({"id":9223372036854775808})")), "integer from 0 to 2^63-1"));
  CHECK(contains(refusal(chakra_json(R"({"id":1,"type":"COMP"})")), "a node type of Chakra"));
  CHECK(import_text(chakra_json(R"({"id":"7","type":"COMP_NODE","durationMicros":"3"})"))
            .report.found_count("device_time_ns") == 3000);
}

TEST_CASE("import Chakra: the corpus as its index counts it") {
  const auto path = shared_path("corpus/chakra_pb/feeder_chakra.0.et");
  if (!path) return;
  const auto& feeder = swaplab::import_files({*path}).report;
  CHECK(feeder.found_count("nodes") == 3664);
  CHECK(feeder.found_count("compute_nodes") == 3643);
  CHECK(feeder.found_count("collective_nodes") == 21);
  CHECK(feeder.found_count("duration_us") == 381795);
  bool distinct = false;
  for (const auto& note : feeder.dropped) distinct |= note.how == "210 distinct ids";
  CHECK(distinct);
  const auto& ring =
      swaplab::import_files({*shared_path("corpus/chakra_pb/custom_ring_allreduce.0.et")}).report;
  CHECK(ring.found_count("nodes") == 35);
  CHECK(note_count(ring.dropped, "dependencies on nodes that are not in the file") == 0);  // node 0 is found
  const auto& small = swaplab::import_files({*shared_path("corpus/chakra_pb/small_chakra.0.json")}).report;
  CHECK(small.found_count("nodes") == 7);
}

TEST_CASE("import PipeDream: a training step from the layer graph") {
  const ImportResult r = import_text(kPipedream);
  REQUIRE(r.trace);
  const swaplab::Trace& t = *r.trace;
  CHECK(r.report.format == "pipedream");
  CHECK(r.report.study == StudyKind::full);
  REQUIRE(t.ops.size() == 6);
  CHECK(t.op_name(0) == "Input0");
  CHECK(t.op_name(1) == "LSTM(2, 2)");
  CHECK(t.op_name(3) == "ReLU(inplace) backward");
  CHECK(t.ops.device_time[1].value == 1500000);
  CHECK(t.ops.device_time[4].value == 2250000);
  CHECK(t.outputs(1).size() == 2);
  // Backward of the LSTM: input 8, parameter 100, outputs 16 + 4 and their gradients; it makes the gradients
  // of the input and of the parameters.
  CHECK(t.inputs(4).size() == 6);
  CHECK(t.outputs(4).size() == 2);
  CHECK(t.live_bytes == Bytes{200});
  CHECK(r.report.baseline == Bytes{100});
  CHECK(contains(refusal(kPipedream + "\tnode3 -- node1\n"), "the edges form a cycle"));
  CHECK(contains(refusal(kPipedream + "\tnode3 -- node9\n"), ":6: the edge names 'node9'"));
  std::string twice = kPipedream;
  twice.replace(twice.find("node3"), 5, "node1");
  CHECK(contains(refusal(twice), "the layer 'node1' occurs twice"));
  std::string nan = kPipedream;
  nan.replace(nan.find("1.500"), 5, "  nan");
  CHECK(contains(refusal(nan), ":2: expected ms as a number"));
}

TEST_CASE("import SimAI: passes with times, communication apart") {
  const ImportResult r = import_text(kSimai);
  REQUIRE(r.trace);
  CHECK(r.report.format == "simai");
  CHECK(r.report.study == StudyKind::times_only);
  CHECK(r.report.found_count("ga") == 24);
  CHECK(r.report.found_count("communicated_bytes") == 4100);
  REQUIRE(r.trace->ops.size() == 6);
  CHECK(r.trace->op_name(0) == "a forward");
  CHECK(r.trace->op_name(2) == "b input gradient");
  CHECK(r.trace->ops.phase[5] == swaplab::Phase::optimizer);
  CHECK(r.report.found_count("device_time_ns") == 10 + 20 + 21 + 11 + 12 + 7);
  std::string more = kSimai;
  more.replace(more.find("\n2\n"), 3, "\n3\n");
  CHECK(contains(refusal(more), "expected 3 layers, found 2"));
  std::string wide = kSimai;
  wide.replace(wide.find("4000"), 4, "9223372036854775808");
  CHECK(contains(refusal(wide), ":4: expected bytes, found '9223372036854775808'"));
}

TEST_CASE("import G10: tables alone and with their kernels") {
  CHECK(import_text("0000 1.5 ms\n0001 2 ms\n").report.found_count("device_time_ns") == 3500000);
  CHECK(contains(refusal("0000 1.5 ms\n0002 2 ms\n"), ":2: expected the row of kernel 1, found '0002'"));
  CHECK(contains(refusal("0000 1.5 ms\n0001 2 B\n"), ":2: expected the unit ms"));
  CHECK(contains(refusal("0000 -1 ms\n"), ":1: expected a value that is not negative"));
  // Only a network with convolutions has the caveat of CNNs; a table of zeros is no table of workspaces.
  const auto kernels = [](const std::string& name) {
    return "Kernel ID: 0, Name: " + name +
           "\nExecution Time: 1200\nOutput Tensors:\ntensor0 Is weight (global)?: 0, Size in byte: 64, "
           "Range:0--64\n";
  };
  CHECK(import_text(kernels("Linear_Forward")).report.study_reason == "kernels, tensors and times");
  CHECK(contains(import_text(kernels("Conv2d_Forward")).report.study_reason, "CNN totals"));
  const std::string linear = kernels("Linear_Forward");
  const swaplab::ImportInput files[] = {swaplab::ImportInput::memory("kernels", linear),
                                        swaplab::ImportInput::memory("table", "0000 0 B\n")};
  const auto zeros = swaplab::import_trace(files).report;
  CHECK(std::count(zeros.missing.begin(), zeros.missing.end(),
                   "workspaces: the table of bytes per kernel holds only 0 (workspace_bytes 0)") == 1);
  const auto path = shared_path("corpus/oracle.json");
  if (!path) return;
  const auto oracle = nlohmann::json::parse(read_file(*path));
  int tables = 0;
  for (const auto& file : oracle.items()) {
    const std::string& name = file.key();
    const nlohmann::json& want = file.value();
    if (!want.is_object() || !want.contains("ms")) continue;
    CAPTURE(name);
    const auto r = swaplab::import_files({*shared_path("corpus/" + name)}).report;
    CHECK(r.found_count("rows") == want["rows"]);
    // The oracle has whole microseconds, rounded.
    CHECK((r.found_count("device_time_ns") + 500) / 1000 == std::llround(want["ms"].get<double>() * 1000));
    ++tables;
  }
  CHECK(tables == 2);
  const std::string bert = *shared_path("corpus/g10") + "/BERT_Base-256.";
  const auto linked =
      swaplab::import_files({bert + "cudnnPF.txt", bert + "tensors.config", bert + "cudnnTime.txt",
                             bert + "kernels.config", bert + "cudnnWorkspace.txt"});
  CHECK(linked.report.format == "g10");
  CHECK(note_count(linked.report.derived, "times of the table") == 1369);
  CHECK(note_count(linked.report.derived, "tensors checked") == 1463);
  CHECK(note_count(linked.report.dropped, "times under page faults") == 1369);
  const auto alone = swaplab::import_files({bert + "cudnnTime.txt"});
  CHECK(linked.report.found_count("device_time_ns") == alone.report.found_count("device_time_ns"));
}
