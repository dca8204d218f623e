#include "experiments/sweep/rerun.hpp"

#include "experiments/sweep/results_store.hpp"
#include "experiments/sweep/sweep_engine.hpp"
#include "trace/error.hpp"

namespace swaplab {

SweepPlan plan_from(const std::string& folder) {
  SweepPlan plan = make_plan(load_sweep_config(folder + "/config.resolved.json", {}), true);
  try {
    check_manifest(folder, plan, true);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    throw Error(ErrorKind::input,
                folder + ": its traces or machines have changed since; run the sweep again");
  }
  return plan;
}

Rerun rerun_from(const std::string& folder, std::size_t index) {
  const SweepPlan plan = plan_from(folder);
  if (index >= plan.runs.size())
    throw Error(ErrorKind::usage, folder + ": has runs 0 to " + std::to_string(plan.runs.size() - 1) +
                                      ", no run " + std::to_string(index));
  const PlannedRun& planned = plan.runs[index];
  Rerun run;
  run.prepared = prepare_run(plan, planned);
  run.schedule.keep_timeline = true;
  run.row = run.prepared->run(parse_policies(planned.factor("policy"))[0],
                              parse_budgets(planned.factor("budget"))[0], &run.schedule);
  run.title = planned.factor("trace") + ", " + run.row.label + " at " + run.row.budget_text + " on " +
              planned.factor("machine");
  if (planned.factor("sample") != "nominal") run.title += ", " + planned.factor("sample");
  return run;
}

}  // namespace swaplab
