// A small file of every format with known content: for tests of the importers, of faults and of fuzzing.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/trace/import_support.hpp"

namespace swaplab::test {

// --- protobuf wire format -------------------------------------------------------------------------------
inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128u);
  return bytes + static_cast<char>(value);
}
inline std::string number_field(unsigned field, std::uint64_t value) {
  return varint(field << 3) + varint(value);
}
inline std::string bytes_field(unsigned field, const std::string& bytes) {
  return varint(field << 3 | 2u) + varint(bytes.size()) + bytes;
}
inline std::string delimited(const std::string& message) {
  return varint(message.size()) + message;
}
inline std::string attribute(const std::string& name, unsigned field, std::uint64_t value) {
  return bytes_field(10, bytes_field(1, name) + number_field(field, value));
}
inline std::string chakra_node(std::uint64_t id, const std::string& name, std::uint64_t duration,
                               const std::string& dependencies, bool host, std::uint64_t thread,
                               const std::string& inputs, const std::string& outputs) {
  std::string node =
      (id != 0 ? number_field(1, id) : "") + bytes_field(2, name) + number_field(3, 4) + dependencies;
  if (duration != 0) node += number_field(7, duration);
  node += bytes_field(8, bytes_field(1, inputs)) + bytes_field(9, bytes_field(1, outputs));
  node += attribute("is_cpu_op", 27, host ? 1 : 0) + attribute("tid", 9, thread) + attribute("rf_id", 9, 9);
  if (name == "aten::relu_")
    node += bytes_field(
        10, bytes_field(1, "op_schema") + bytes_field(29, "aten::relu_(Tensor(a!) self) -> Tensor(a!)"));
  return delimited(node);
}

// mm in two pieces with one kernel, then relu_ in place; dependency 3 is not in the file.
inline const std::string kChakra = [] {
  const std::string in = "[[10, 20, 0, 16, 4, 'cuda:0'], [11, 21, 0, 16, 4, 'cuda:0']]",
                    out = "[[12, 22, 0, 8, 4, 'cuda:0']]";
  return delimited(bytes_field(1, "0.0.4")) +
         chakra_node(5, "aten::mm(0)", 3, bytes_field(4, varint(3)), true, 1, in, out) +
         chakra_node(6, "aten::mm(1)", 2, bytes_field(5, varint(5)), true, 1, in, out) +
         chakra_node(7, "gemm", 40, number_field(4, 6), false, 7, in, out) +
         chakra_node(8, "aten::relu_", 1, bytes_field(5, varint(5) + varint(6)), true, 1, out, out);
}();

inline std::string chakra_json(const std::string& nodes) {
  return "{\"workload_graph\": [" + nodes + "], \"workload_name\": \"x\"}";
}
inline const std::string kChakraJson = chakra_json(
    R"({"Id": 1, "Name": "a", "NodeType": 4, "ctrlDeps": [], "data_deps": [], "runtime": 318, "is_cpu_op": true},
 {"Id": 2, "Name": "b", "NodeType": 7, "ctrlDeps": [1], "data_deps": [1, 9], "is_cpu_op": false})");

inline const std::string kPipedream =
    "node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=8.0, "
    "parameter_size=0.000\n"
    "node2 -- LSTM(2, 2) -- forward_compute_time=1.500, backward_compute_time=2.250, activation_size=[16.0; "
    "4.0], "
    "parameter_size=100.000\n"
    "node3 -- ReLU(inplace) -- forward_compute_time=0.500, backward_compute_time=0.250, "
    "activation_size=20.000, "
    "parameter_size=0.000\n"
    "\tnode1 -- node2\n"
    "\tnode2 -- node3\n";

inline const std::string kSimai =
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ga: 24\n2\n"
    "a\t-1\t10\tNONE\t0\t11\tALLREDUCE\t100\t12\tNONE\t0\t7\n"
    "b\t-1\t20\tALLGATHER\t4000\t21\tNONE\t0\t0\tNONE\t0\t0\n";

inline const std::string kTimeline =
    "[[-1, 1, 100, 0], [1000, 2, 50, 7], [1500, 3, -50, 7], [1500, 3, 50, 4], [2000, 4, -50, 4]]";

inline const std::string kKineto = R"({"schemaVersion": 1, "traceEvents": [
 {"ph":"X","cat":"cpu_op","name":"aten::linear","pid":1,"tid":1,"ts":100,"dur":50.5,"args":{"External id":1}},
 {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":120,"dur":5,"args":{"correlation":11}},
 {"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":112,"args":{"Addr":4096,"Bytes":1024,"Device Type":1,"Device Id":0,"Total Allocated":3024}},
 {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":130,"dur":40.007,"args":{"device":0,"stream":7,"correlation":11}}
]})";

inline const std::string kExecutionTrace = R"json({"schema": "1.0.1", "nodes": [
 {"name":"root","id":1,"parent":1,"rf_id":0,"inputs":[],"outputs":[]},
 {"name":"aten::mm","id":2,"parent":1,"rf_id":1,"inputs":[[10,20,0,16,4,"cuda:0"],[11,21,0,16,4,"cuda:0"]],
  "outputs":[[12,22,0,8,4,"cuda:0"]]}]})json";

inline const std::string kDtr =
    R"({"INSTRUCTION":"CONSTANT","NAME":"w"}
{"INSTRUCTION":"MEMORY","MEMORY":"100","NAME":"w"}
{"ARGS":["w"],"INSTRUCTION":"CALL","NAME":"mm","RESULT":["a"],"TIME":"50"}
{"INSTRUCTION":"MEMORY","MEMORY":"40","NAME":"a"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"a"}
{"INSTRUCTION":"RELEASE","NAME":"a"}
)";

inline const std::string kG10 =
    "Kernel ID: 0, Name: A_Forward\nExecution Time: 12\nInput Tensors:\ntensor1 Is weight (global)?: 1, Size "
    "in "
    "byte: 8, Range:0--8\nOutput Tensors:\ntensor0 Is weight (global)?: 0, Size in byte: 4, Range:0--4\n";
inline const std::string kG10Table = "0000 1.5 ms\n0001 2.25 ms\n";
inline const std::string kG10Tensors =
    "tensor0 Is weight (global)?: 0, Size in byte: 4, Range:0--4\n"
    "tensor1 Is weight (global)?: 1, Size in byte: 8, Range:0--8\n";
inline const std::string kLifetimes = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\n";

// One device with an allocation that stays and one that is freed, in protocol 0 (text).
inline const std::string kSnapshot = [] {
  const auto event = [](const char* action, int address, int size) {
    return std::string("(dVaction\nV") + action + "\nsVaddr\nI" + std::to_string(address) + "\nsVsize\nI" +
           std::to_string(size) + "\nsVstream\nI0\nsVtime_us\nI5\ns";
  };
  return "\x80\x02" + std::string("(dVsegments\n(lsVdevice_traces\n(l(l") + event("alloc", 512, 100) + "a" +
         event("alloc", 1024, 50) + "a" + event("free_requested", 512, 100) + "a" +
         event("free_completed", 512, 100) + "aas.";
}();

// An SQLite database that the statements make, as bytes.
inline std::string database(const std::string& sql) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(":memory:", &db) == SQLITE_OK);
  char* message = nullptr;
  const int code = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message);
  REQUIRE_MESSAGE(code == SQLITE_OK, (message == nullptr ? "" : message));
  sqlite3_int64 size = 0;
  unsigned char* bytes = sqlite3_serialize(db, "main", &size, 0);
  const std::string copy(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  sqlite3_free(bytes);
  sqlite3_close(db);
  return copy;
}
inline const std::string kNsysTables =
    "PRAGMA page_size = 512; CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);"
    "INSERT INTO StringIds VALUES(1,'cudaLaunchKernel'),(2,'gemm'),(3,'cudaDeviceSynchronize');"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, \"end\" INTEGER, globalTid INTEGER, "
    "correlationId "
    "INTEGER, nameId INTEGER);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(100,110,16777217,7,1),(200,220,16777217,8,1),"
    "(230,300,16777217,9,3);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, \"end\" INTEGER, deviceId INTEGER, streamId "
    "INTEGER, "
    "correlationId INTEGER, globalPid INTEGER, shortName INTEGER);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(205,290,0,7,8,16777216,2),(120,150,0,7,7,16777216,2),"
    "(400,410,0,9,99,16777216,2);";
inline std::string nsys_sample() {
  return database(kNsysTables);
}

struct ImportSample {
  std::string_view format;
  std::string bytes;
  bool whole;  // no proper part of the file is a file of the format
};
inline std::vector<ImportSample> import_samples() {
  return {{"kineto", kKineto, true},
          {"execution-trace", kExecutionTrace, true},
          {"chakra", kChakra, false},
          {"chakra-json", kChakraJson, true},
          {"torch-snapshot", kSnapshot, true},
          {"memory-timeline", kTimeline, true},
          {"nsys-sqlite", nsys_sample(), true},
          {"dtr-simrd", kDtr, false},
          {"g10", kG10, false},
          {"g10-table", kG10Table, false},
          {"g10-tensors", kG10Tensors, false},
          {"lifetimes-csv", kLifetimes, false},
          {"pipedream", kPipedream, false},
          {"simai", kSimai, true}};
}

}  // namespace swaplab::test
