#include "experiments/sweep/sweep_slurm.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "experiments/sweep/process.hpp"
#include "experiments/sweep/rerun.hpp"
#include "experiments/sweep/trace_source.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kUnitsPerTask = 8;
constexpr unsigned kMostDefaultTasks = 64;

std::string generation_folder(const std::string& folder, unsigned generation) {
  return folder + "/slurm/" + std::to_string(generation);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorKind::input, path + ": cannot be read");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Runs x size of the trace's files x iterations: right to a factor, which is all that balance needs.
std::uint64_t estimate(const SweepPlan& plan, const WorkUnit& unit) {
  const PlannedRun& run = plan.runs[unit[0]];
  std::uint64_t bytes = 1;
  std::error_code error;
  const auto size = fs::file_size(trace_source_origin(run.factor("trace")), error);
  if (!error) bytes += size;
  const std::uint64_t iterations =
      run.factor("iterations") == "recorded" ? 4 : std::stoull(run.factor("iterations"));
  return bytes * iterations * unit.size();
}

void write_units(const std::string& path, const std::vector<ShardedUnit>& units) {
  Json all = Json::array();
  for (const ShardedUnit& unit : units)
    all.push_back({{"task", unit.task}, {"size", unit.size}, {"runs", unit.runs}});
  write_file_atomically(path, all.dump() + "\n");
}

std::vector<ShardedUnit> read_units(const std::string& path, const SweepPlan& plan) {
  std::vector<ShardedUnit> units;
  try {
    const Json all = Json::parse(read_text(path));
    for (const Json& one : all) {
      ShardedUnit unit;
      unit.task = one.at("task").get<unsigned>();
      unit.size = one.at("size").get<std::uint64_t>();
      unit.runs = one.at("runs").get<WorkUnit>();
      for (const std::size_t run : unit.runs) {
        if (run >= plan.runs.size())
          throw Error(ErrorKind::input, path + ": names a run that the plan does not have");
      }
      units.push_back(std::move(unit));
    }
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorKind::input, path + ": not a list of units: " + e.what());
  }
  return units;
}

unsigned last_generation(const std::string& folder) {
  unsigned last = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder + "/slurm", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos)
      last = std::max(last, static_cast<unsigned>(std::stoul(name)));
  }
  return last;
}

// Whether a job has tasks that wait or run. A job that Slurm has forgotten has none.
bool job_active(const std::string& job) {
  const ProcessResult result = run_process({"squeue", "-h", "-j", job, "-o", "%T"});
  if (result.code == 127) throw Error(ErrorKind::usage, "squeue is not installed; is this a Slurm cluster?");
  if (result.code != 0 && result.errors.find("Invalid job id") == std::string::npos)
    throw Error(ErrorKind::output, "squeue fails: " + result.errors);
  return result.output.find_first_not_of(" \n") != std::string::npos;
}

std::string submit(const std::string& folder, unsigned generation, unsigned tasks,
                   const SlurmOptions& slurm) {
  const std::string own = generation_folder(folder, generation);
  const std::string script = own + "/task.sh";
  const auto quoted = [](const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
  };
  write_file_atomically(script,
                        "#!/bin/sh\nexec " + quoted(own_program()) + " sweep-task " + quoted(folder) +
                            " --generation " + std::to_string(generation) +
                            " --task \"$SLURM_ARRAY_TASK_ID\" --jobs \"${SLURM_CPUS_PER_TASK:-1}\"\n");
  std::vector<std::string> command{"sbatch", "--parsable", "--array=0-" + std::to_string(tasks - 1),
                                   "--job-name=swaplab-sweep", "--output=" + own + "/task-%a.log"};
  command.insert(command.end(), slurm.options.begin(), slurm.options.end());
  command.push_back(script);
  const ProcessResult result = run_process(command);
  if (result.code == 127) throw Error(ErrorKind::usage, "sbatch is not installed; is this a Slurm cluster?");
  if (result.code != 0) throw Error(ErrorKind::usage, "sbatch refuses the job: " + result.errors);
  std::string job = result.output.substr(0, result.output.find_first_of(";\n"));
  write_file_atomically(own + "/job", job + "\n");
  return job;
}

std::size_t finished_lines(const std::string& folder) {
  std::size_t lines = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder + "/shards", error)) {
    std::ifstream in(entry.path(), std::ios::binary);
    lines += static_cast<std::size_t>(
        std::count(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>(), '\n'));
  }
  return lines;
}

}  // namespace

std::vector<ShardedUnit> assign_units(std::vector<WorkUnit> units, const std::vector<std::uint64_t>& sizes,
                                      unsigned tasks) {
  std::vector<ShardedUnit> sharded;
  for (std::size_t i = 0; i < units.size(); ++i) sharded.push_back({std::move(units[i]), 0, sizes[i]});
  std::stable_sort(sharded.begin(), sharded.end(),
                   [](const ShardedUnit& a, const ShardedUnit& b) { return a.size > b.size; });
  std::vector<std::uint64_t> load(tasks, 0);
  for (ShardedUnit& unit : sharded) {
    unit.task = static_cast<unsigned>(std::min_element(load.begin(), load.end()) - load.begin());
    load[unit.task] += unit.size;
  }
  return sharded;
}

std::optional<std::size_t> claim_next(const std::string& folder, const std::vector<ShardedUnit>& units,
                                      unsigned task) {
  for (const bool own : {true, false}) {
    for (std::size_t i = 0; i < units.size(); ++i) {
      if ((units[i].task == task) != own) continue;
      const std::string path = folder + "/" + std::to_string(i);
      const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (file < 0 && errno == EEXIST) continue;
      if (file < 0) throw Error(ErrorKind::output, path + ": cannot claim: " + std::strerror(errno));
      ::close(file);
      return i;
    }
  }
  return std::nullopt;
}

SessionResult run_slurm_sweep(const SweepPlan& plan, const SessionOptions& options,
                              const SlurmOptions& slurm) {
  std::string folder = options.output + "/" + results_folder_name(plan);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(ErrorKind::output, folder + ": cannot make the folder: " + error.message());
  const FolderLock lock(folder);
  const unsigned before = last_generation(folder);
  if (before > 0 && fs::exists(generation_folder(folder, before) + "/job")) {
    std::string job = read_text(generation_folder(folder, before) + "/job");
    job.erase(job.find_last_not_of('\n') + 1);
    if (job_active(job))
      throw Error(ErrorKind::usage,
                  folder + ": job " + job + " of this sweep still waits or runs; wait or scancel it");
  }
  const std::vector<RunRecord> records = open_session(plan, options, folder);
  const std::vector<bool> done = done_marks(plan, records);
  const std::size_t left = static_cast<std::size_t>(std::count(done.begin(), done.end(), false));
  if (left == 0) return finish_session(plan, folder, records.size());

  const unsigned wanted =
      slurm.shards > 0
          ? slurm.shards
          : static_cast<unsigned>(std::clamp<std::size_t>(left / kUnitsPerTask, 1, kMostDefaultTasks));
  const std::size_t longest = std::max<std::size_t>(1, left / (std::size_t{wanted} * kUnitsPerTask));
  std::vector<WorkUnit> units = units_of(plan, done, longest);
  const unsigned tasks = static_cast<unsigned>(std::min<std::size_t>(wanted, units.size()));
  std::vector<std::uint64_t> sizes;
  sizes.reserve(units.size());
  for (const WorkUnit& unit : units) sizes.push_back(estimate(plan, unit));
  const std::vector<ShardedUnit> sharded = assign_units(std::move(units), sizes, tasks);
  const unsigned generation = before + 1;
  const std::string own = generation_folder(folder, generation);
  fs::create_directories(own + "/claims", error);
  fs::create_directories(folder + "/shards", error);
  if (error) throw Error(ErrorKind::output, own + ": cannot make the folder: " + error.message());
  write_units(own + "/units.json", sharded);
  const std::string job = submit(fs::absolute(folder).lexically_normal().string(), generation, tasks, slurm);
  const std::size_t log_lines_before = finished_lines(folder);
  if (slurm.detach) {
    SessionResult result;
    result.folder = folder;
    result.records = records;
    result.found = records.size();
    return result;
  }
  if (options.progress) options.progress(records.size(), plan.runs.size());
  auto pause = std::chrono::milliseconds(200);
  while (job_active(job)) {
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(5'000));
    if (options.progress)
      options.progress(std::min(plan.runs.size(), records.size() + finished_lines(folder) - log_lines_before),
                       plan.runs.size());
  }
  SessionResult result = finish_session(plan, folder, records.size());
  if (result.records.size() < plan.runs.size()) {
    throw Error(ErrorKind::output, folder + ": " + std::to_string(plan.runs.size() - result.records.size()) +
                                       " of " + std::to_string(plan.runs.size()) +
                                       " runs did not finish in job " + job + "; " + own +
                                       "/task-*.log say why, --resume submits the rest");
  }
  return result;
}

void run_slurm_task(const std::string& folder, unsigned generation, unsigned task, unsigned jobs) {
  const SweepPlan plan = plan_from(folder);
  const std::string own = generation_folder(folder, generation);
  const std::vector<ShardedUnit> units = read_units(own + "/units.json", plan);
  DurableLog log(folder + "/shards/" + std::to_string(generation) + "-" + std::to_string(task) + ".jsonl",
                 nullptr);
  EngineOptions engine;
  engine.jobs = jobs;
  if (plan.config.schedules) engine.schedule_folder = folder + "/schedules";
  engine.finished = [&](const RunRecord& record) { log.append(record_line(record, true)); };
  run_units(
      plan,
      [&]() -> std::optional<WorkUnit> {
        const auto next = claim_next(own + "/claims", units, task);
        if (!next) return std::nullopt;
        return units[*next].runs;
      },
      engine);
  log.close();
}

}  // namespace swaplab
