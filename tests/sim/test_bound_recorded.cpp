// The bound on recorded traces against the published prototype's figures (shared material).
//
// The prototype solved the LP relaxation of one periodic lap over 800 sampled operators; the path bound
// equals it to 4-5 digits wherever both were computed. We compare the strongest one-lap window with all
// operators. Tolerance: a finer evaluation may be slightly higher (0.25 % allowed), and lower only by the
// rounding of the published four decimals.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "sim/bounds/steady_bound.hpp"
#include "sim/machine.hpp"
#include "tests/support/shared.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

using namespace swaplab;

namespace {

// bounds.md section 4: 400 TFLOP/s in every format, 3.9 TB/s, 4 us floor, views free.
Machine prototype_machine() {
  Machine machine;
  machine.name = "prototype";
  machine.hbm_bytes_per_second = 3'900'000'000'000;
  const std::int64_t rate = 400'000'000'000'000;
  machine.flop_rates = {rate, rate, rate, rate, rate};
  machine.kernel_floor = Nanos{4'000};
  return machine;
}

struct Row {
  std::string trace;
  std::int64_t percent;  // budget as a fraction of the peak
  double slowdown;       // negative: infeasible
};

// "resnet50_fake_b256 0.9 LP 1.3405 (t ..." or "gpt_small 0.3 LP inf (t ..."
std::vector<Row> prototype_rows(const std::string& path) {
  std::vector<Row> rows;
  std::istringstream lines(test::read_file(path));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string trace, fraction, tag, value;
    if (!(words >> trace >> fraction >> tag >> value) || tag != "LP") continue;
    rows.push_back({trace, std::int64_t{fraction.at(2) - '0'} * 10, value == "inf" ? -1 : std::stod(value)});
  }
  return rows;
}

// The prototype let operators on the optimizer's step counters run on the device; we keep these storages on
// the host. Here they take the prototype's time again, or the compute time would be 13 % too short.
Program prototype_program(const Trace& trace) {
  const Machine machine = prototype_machine();
  Program program = compile_program(trace, machine, TimeSource::model);
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    const bool view = trace.signatures.view[index(program.signature[op])] != 0;
    if (!view && (program.op_flags[op] & kKernel) == 0) program.device_time[op] = machine.kernel_floor;
  }
  return program;
}

}  // namespace

TEST_CASE("one-lap bounds of the recorded traces reproduce the prototype's") {
  std::map<std::string, Program> programs;
  std::map<std::string, std::shared_ptr<const SwapGapTable>> tables;
  const std::map<std::string, std::int64_t> rates{{"reference/bound_prototype_55gbps.txt", 55'000'000'000},
                                                  {"reference/bound_prototype_25gbps.txt", 25'000'000'000}};
  int compared = 0;
  double largest_excess = 0;
  for (const auto& prototype : rates) {
    const std::int64_t rate = prototype.second;
    const auto reference = test::shared_path(prototype.first);
    if (!reference) return;
    const auto rows = prototype_rows(*reference);
    CHECK(rows.size() == 21);
    for (const Row& row : rows) {
      if (!programs.contains(row.trace)) {
        const auto recording = test::shared_path("recorded/" + row.trace + ".jsonl.gz");
        if (!recording) return;
        const Trace trace = extend_iterations(read_trace(*recording), 6);
        programs[row.trace] = prototype_program(trace);
        tables[row.trace] = std::make_shared<const SwapGapTable>(programs[row.trace]);
      }
      const Program& program = programs[row.trace];
      const std::uint32_t lap = 2;  // the last recorded one, with two of its kind behind it
      const ProgramIteration& it = program.iterations[lap];
      const SwapRates both{rate, rate};
      const SwapPathBound window(program, tables[row.trace], it.first_op, it.end_op, both, {0, 0});
      const Bytes budget = window.required_peak() * row.percent / 100;
      const auto bound = lap_bound(program, tables[row.trace], lap, budget, both, {0, 0});
      REQUIRE(bound);
      INFO(row.trace, " at 0.", row.percent / 10, ", ", rate / 1'000'000'000, " GB/s, peak ",
           window.required_peak().value, " B, smallest budget ", bound->smallest_budget.value, " B");
      CHECK(bound->feasible == (row.slowdown > 0));
      if (!bound->feasible || row.slowdown < 0) continue;
      const double slowdown =
          static_cast<double>(bound->total.value) / static_cast<double>(bound->compute.value);
      CAPTURE(slowdown);
      CHECK(slowdown > row.slowdown - 0.0001);
      CHECK(slowdown < row.slowdown * 1.0025);
      largest_excess = std::max(largest_excess, slowdown / row.slowdown - 1);
      // The default sample is nearly as strong.
      const auto sampled = lap_bound(program, tables[row.trace], lap, budget, both);
      CHECK(sampled->total <= bound->total);
      CHECK(sampled->total.value > bound->total.value * 995 / 1000);
      ++compared;
    }
  }
  CHECK(compared == 36);
  MESSAGE(compared, " figures reproduced, ours at most ", largest_excess * 100, " % above");
}

TEST_CASE("the average over many laps approaches the strongest lap") {
  const auto recording = test::shared_path("recorded/resnet50_fake_b256.jsonl.gz");
  if (!recording) return;
  const Program program = prototype_program(extend_iterations(read_trace(*recording), 12));
  const SwapRates rates{55'000'000'000, 55'000'000'000};
  const RunBounds bounds(program, rates);
  const RunBound bound = bounds.at(bounds.required_peak() / 2);
  const auto lap =
      lap_bound(program, std::make_shared<const SwapGapTable>(program), 4, bound.steady.budget, rates);
  REQUIRE(lap);
  CHECK(bound.steady_count == 10);
  const auto average = bound.per_steady_iteration();
  MESSAGE("ResNet-50 at 0.5: strongest lap ", lap->total.value / 1000, " us, average of 10 ",
          average.value / 1000, " us, an iteration alone ", bound.iterations[5].value / 1000, " us");
  for (const std::string& line : chain_lines(program, *lap)) MESSAGE(line);
  CHECK(bound.iterations[5] <= average);
  CHECK(average.value > lap->total.value * 9 / 10);  // ten laps hold nine from the best start
}
