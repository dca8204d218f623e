#include "experiments/sweep/sweep_session.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "experiments/sweep/sweep_engine.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

namespace fs = std::filesystem;

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw Error(ErrorKind::output, path + ": cannot make the folder: " + error.message());
}

}  // namespace

std::vector<bool> done_marks(const SweepPlan& plan, const std::vector<RunRecord>& records) {
  std::vector<bool> done(plan.runs.size(), false);
  for (const RunRecord& record : records) done[record.index] = true;
  return done;
}

std::vector<RunRecord> open_session(const SweepPlan& plan, const SessionOptions& options,
                                    std::string& folder) {
  folder = options.output + "/" + results_folder_name(plan);
  if (!fs::exists(folder + "/manifest.json")) {
    make_folder(folder);
    write_manifest(folder, plan, options.arguments, options.overrides);
  } else {
    check_manifest(folder, plan, options.any_build);
  }
  if (plan.config.schedules) make_folder(folder + "/schedules");
  std::vector<RunRecord> records = merge_records(read_all_logs(folder, true), plan);
  if (!records.empty() && !options.resume) {
    throw Error(ErrorKind::usage, folder + ": " + std::to_string(records.size()) + " of " +
                                      std::to_string(plan.runs.size()) +
                                      " runs are finished; --resume goes on from there");
  }
  if (options.retry_failed) std::erase_if(records, is_local_failure);
  return records;
}

SessionResult finish_session(const SweepPlan& plan, const std::string& folder, std::size_t found) {
  SessionResult result;
  result.folder = folder;
  result.found = found;
  result.records = merge_records(read_all_logs(folder, true), plan);
  result.result_sha256 = write_derived(folder, result.records, plan.runs.size());
  return result;
}

SessionResult run_local_sweep(const SweepPlan& plan, const SessionOptions& options) {
  std::string folder = options.output + "/" + results_folder_name(plan);
  make_folder(folder);
  const FolderLock lock(folder);
  const std::vector<RunRecord> records = open_session(plan, options, folder);
  const std::vector<bool> done = done_marks(plan, records);
  const std::vector<WorkUnit> units = units_of(plan, done, std::numeric_limits<std::size_t>::max());
  if (!units.empty()) {
    std::size_t finished = records.size();
    DurableLog log(folder + "/runs.jsonl", [&](std::size_t lines) {
      finished += lines;
      if (options.progress) options.progress(finished, plan.runs.size());
    });
    EngineOptions engine;
    engine.jobs = options.jobs;
    if (plan.config.schedules) engine.schedule_folder = folder + "/schedules";
    engine.finished = [&](const RunRecord& record) { log.append(record_line(record, true)); };
    std::size_t next = 0;
    run_units(
        plan,
        [&]() -> std::optional<WorkUnit> {
          if (next == units.size()) return std::nullopt;
          return units[next++];
        },
        engine);
    log.close();
  }
  return finish_session(plan, folder, records.size());
}

}  // namespace swaplab
