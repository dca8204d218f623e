#include "sim/schedule_checker.hpp"

#include "sim/checker/facts.hpp"
#include "sim/checker/findings.hpp"
#include "sim/checker/occupancy.hpp"
#include "sim/checker/walk.hpp"
#include "sim/machine_io.hpp"
#include "trace/io.hpp"

namespace swaplab {

ScheduleCheck check_schedule(const Schedule& schedule, const Trace& trace) {
  using namespace checker;
  Findings findings;
  const std::uint64_t whole = schedule.entries.size();
  const std::uint64_t hash = trace_hash(trace);
  if (!findings.expect(hash == schedule.trace_hash, whole, [&] {
        return "trace: the schedule was made for hash " + std::to_string(schedule.trace_hash) +
               ", this trace has " + std::to_string(hash);
      })) {
    return std::move(findings.check());  // everything else would be noise
  }
  const Machine machine = parse_machine(schedule.machine_json, "machine of the schedule");
  const Facts facts = derive_facts(trace);
  if (schedule.result.outcome == Outcome::infeasible) {
    check_infeasible(schedule, facts, findings);
    return std::move(findings.check());
  }
  const WalkResult walk = Walk(schedule, trace, facts, machine, findings).run();
  const Bytes peak = check_occupancy(schedule, facts, walk, findings);
  check_result(schedule, facts, walk, findings);
  findings.check().peak_occupied = peak;
  return std::move(findings.check());
}

}  // namespace swaplab
