// One trace of every format that can allow full studies, from the shared corpus, replayed under three
// policies with less memory than its peak; an independent checker replays what each did.
#include <doctest/doctest.h>

#include "policy/registry.hpp"
#include "sim/machine_io.hpp"
#include "sim/run.hpp"
#include "sim/schedule_checker.hpp"
#include "tests/support/shared.hpp"
#include "trace/extend.hpp"
#include "trace/import/import.hpp"

using namespace swaplab;

namespace {

struct Case {
  const char* format;
  std::vector<const char*> files;
};
// Never full: lifetimes-csv, torch-snapshot and memory-timeline know no operators and no times; nsys-sqlite
// knows no tensors; simai, g10-table and chakra-json files have times without storages; g10-tensors has sizes
// only.
const Case kCases[] = {
    {"kineto", {"kineto/pt_gpu_forward_mem_flops.json"}},
    {"kineto", {"kineto/tl_hip_norm_layers_fwd_bwd_mem.json.gz"}},
    {"execution-trace", {"et/pair_linear_et_1.0.1.json.gz", "kineto/pair_linear_kineto.json.gz"}},
    {"execution-trace", {"et/pair_dlrm_r0_et_1.0.1.json", "kineto/pair_dlrm_r0_kineto.json"}},
    {"chakra", {"chakra_pb/feeder_chakra.0.et"}},
    {"dtr-simrd", {"dtr_simrd/unet.log"}},
    {"g10", {"g10/BERT_Base-256.kernels.config", "g10/BERT_Base-256.cudnnTime.txt"}},
    {"pipedream", {"optrace/pipedream_gnmt.graph.txt"}},
};

}  // namespace

TEST_CASE("imported traces: each full format replays under three policies and passes the checker") {
  const Machine machine = load_machine(test::source_path("configs/machines/a100-80g-pcie4.yaml"));
  for (const Case& c : kCases) {
    std::vector<std::string> files;
    for (const char* file : c.files) {
      const auto path = test::shared_path(std::string("corpus/") + file);
      if (!path) return;
      files.push_back(*path);
    }
    CAPTURE(c.files[0]);
    const ImportResult imported = import_files(files);
    CHECK(imported.report.format == c.format);
    REQUIRE(imported.report.study == StudyKind::full);
    REQUIRE(imported.trace);
    const Program program = compile_program(*imported.trace, machine, TimeSource::trace);
    // All device work of the file is replayed, that on host tensors and views included, and what lived before
    // is there once, however often the iteration comes.
    Nanos in_file{0}, replayed{0};
    for (const Nanos time : imported.trace->ops.device_time) in_file += std::max(time, Nanos{0});
    for (const Nanos time : program.device_time) replayed += time;
    CHECK(replayed == in_file);
    const auto recorded = static_cast<std::uint32_t>(imported.trace->iterations.size());
    for (const std::uint32_t more : {1u, 2u, 6u}) {
      const Trace longer = extend_iterations(*imported.trace, recorded + more);
      CHECK(compile_program(longer, machine, TimeSource::trace).peak_bytes == program.peak_bytes);
    }
    // Half way between the least that any policy needs and the peak.
    const Bytes budget = program.largest_working_set + (program.peak_bytes - program.largest_working_set) / 2;
    for (const char* name : {"lru", "size", "next-use"}) {
      CAPTURE(name);
      const auto specs = parse_policies(name);
      const auto policy = specs.at(0).factory->make(specs[0].values);
      Schedule schedule;
      schedule.trace_hash = trace_hash(*imported.trace);
      schedule.times = program.times;
      schedule.machine_json = machine_json(machine);
      schedule.allocator = "ideal";
      schedule.budget = budget;
      schedule.policy = name;
      RunOptions options;
      options.budget = budget;
      options.allocator = AllocatorKind::ideal;
      options.needs = specs[0].factory->info().needs;
      options.schedule = &schedule;
      const RunResult result = run_program(program, machine, *policy, options);
      CHECK_MESSAGE(result.outcome == Outcome::ok, result.explanation);
      CHECK(result.evictions > 0);
      CHECK(result.allocator.peak_allocated <= budget);
      const ScheduleCheck check = check_schedule(schedule, *imported.trace);
      CHECK_MESSAGE(check.findings.empty(), (check.findings.empty() ? "" : check.findings[0].message));
    }
  }
}
