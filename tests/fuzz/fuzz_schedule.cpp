// Any text either parses, and then survives its canonical form and a check, or is refused with
// swaplab::Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "sim/schedule_checker.hpp"
#include "sim/schedule_io.hpp"
#include "tests/sim/schedule_cases.hpp"
#include "trace/error.hpp"

namespace {

// The seeds are schedules of this trace; hash and machine are put back so that the check gets past them.
struct Fixture {
  swaplab::Trace trace = swaplab::test::worked_trace();
  swaplab::Schedule accepted = swaplab::test::worked_schedule(trace);
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Fixture fixture;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    swaplab::Schedule schedule = swaplab::parse_schedule(text, "fuzz");
    const std::string canonical = swaplab::schedule_text(schedule);
    if (swaplab::schedule_text(swaplab::parse_schedule(canonical, "again")) != canonical) std::abort();
    schedule.trace_hash = fixture.accepted.trace_hash;
    schedule.machine_json = fixture.accepted.machine_json;
    const swaplab::ScheduleCheck check = swaplab::check_schedule(schedule, fixture.trace);
    if (check.findings.size() > check.finding_count) std::abort();
  } catch (const swaplab::Error&) {
  }
  return 0;
}
