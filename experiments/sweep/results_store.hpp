// A results folder: manifest, resolved configuration, the append-only log of finished runs, and the
// files derived from it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "experiments/sweep/run_record.hpp"
#include "experiments/sweep/sweep_plan.hpp"

namespace swaplab {

// Appends lines to a file. A line counts as finished only when it is on disk: lines that arrive while
// the disk is busy share one fsync.
class DurableLog {
 public:
  // `durable(lines)` is called from the log's own thread after each fsync. Throws Error(output).
  DurableLog(const std::string& path, std::function<void(std::size_t lines)> durable);
  ~DurableLog();  // waits for the disk; errors are lost, so call close() first
  DurableLog(const DurableLog&) = delete;
  DurableLog& operator=(const DurableLog&) = delete;

  void append(std::string line);
  // Writes what is left. Throws Error(output) when anything could not be written.
  void close();

 private:
  void write_lines();
  std::string path_;
  std::function<void(std::size_t)> durable_;
  int file_ = -1;
  std::mutex lock_;
  std::condition_variable wake_;
  std::vector<std::string> waiting_;
  bool closing_ = false;
  std::string failure_;
  std::thread writer_;
};

// Holds the folder against a second sweep until it is destroyed (or the process dies).
class FolderLock {
 public:
  // Throws Error(usage) when another process holds it.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_ = -1;
};

// Writes manifest.json, config.resolved.json, metrics.json and overrides.txt of a new folder.
void write_manifest(const std::string& folder, const SweepPlan& plan,
                    const std::vector<std::string>& arguments, const std::vector<std::string>& overrides);
// Throws Error(usage) when the folder holds results of another configuration or of another build of the
// program (`allow_other_build`: only of another configuration).
void check_manifest(const std::string& folder, const SweepPlan& plan, bool allow_other_build);

// The records of a log. A torn last line (the process died while writing it) is cut off when `repair`,
// else ignored; anything else that cannot be read is Error(input) with file and line. Missing file: none.
std::vector<RunRecord> read_run_log(const std::string& path, bool repair);
// All logs of a folder: runs.jsonl and shards/*.jsonl, in the order of their names.
std::vector<RunRecord> read_all_logs(const std::string& folder, bool repair);
// error, timeout, memory_limit or crashed: says something about this machine, not about the run.
bool is_local_failure(const RunRecord& record);
// By index; of equal runs one; two records of one run that differ are Error(invariant).
std::vector<RunRecord> merge_records(std::vector<RunRecord> records, const SweepPlan& plan);

// A results folder, or its runs.jsonl, or any such file, for reading. Throws Error(input).
struct Results {
  std::string folder;  // "" when a single file was given
  std::vector<RunRecord> records;
  SweepConfig config;                      // baseline, metric and threshold; defaults without a folder
  std::string manifest_json, config_json;  // texts, "" without a folder
};
Results load_results(const std::string& path);

// Derived files, from the records in canonical order: results.jsonl (no wall times), failures.jsonl,
// results.csv, results.sqlite and summary.json. Returns the hash of results.jsonl.
std::string write_derived(const std::string& folder, const std::vector<RunRecord>& records,
                          std::size_t planned);
std::string records_csv(const std::vector<RunRecord>& records);
void write_sqlite(const std::vector<RunRecord>& records, const std::string& path);

}  // namespace swaplab
