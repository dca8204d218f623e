// Programs for replays.
#pragma once

#include <string>
#include <vector>

#include "policy/registry.hpp"
#include "sim/machine_io.hpp"
#include "sim/run.hpp"
#include "tests/support/shared.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace swaplab::test {

// It makes everything many times slower, and ends the program at a planted race, which is a data race.
#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

inline Program bundled_program(const std::string& trace, std::uint32_t iterations, const Machine& machine) {
  Trace t = read_trace(source_path("configs/traces/" + trace));
  if (iterations != 0) t = extend_iterations(t, iterations);
  return compile_program(t, machine, TimeSource::model);
}

inline Bytes share_of_peak(const Program& program, std::int64_t percent) {
  return Bytes{program.peak_bytes.value / 100 * percent};
}

// What the simulator decides.
inline Schedule simulate(const Program& program, const Machine& machine, const PolicySpec& spec,
                         Bytes budget) {
  Schedule schedule;
  RunOptions options;
  options.budget = budget;
  options.needs = spec.factory->info().needs;
  options.schedule = &schedule;
  const auto policy = spec.factory->make(spec.values);
  run_program(program, machine, *policy, options);
  return schedule;
}

}  // namespace swaplab::test
