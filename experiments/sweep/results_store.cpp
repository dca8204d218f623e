#include "experiments/sweep/results_store.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/build_info.hpp"
#include "experiments/sweep/digest.hpp"
#include "trace/byte_source.hpp"
#include "trace/error.hpp"
#include "trace/import/json_elements.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorKind::input, path + ": cannot be read");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string first_match(const char* path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t from = line.find_first_not_of(" \t", colon + 1);
    return from == std::string::npos ? "" : line.substr(from);
  }
  return "";
}

Json host_json() {
  utsname name{};
  ::uname(&name);
  Json j;
  j["system"] = std::string(name.sysname) + " " + name.release;
  j["architecture"] = name.machine;
  j["processor"] = first_match("/proc/cpuinfo", "model name");
  j["hardware_threads"] = std::thread::hardware_concurrency();
  j["memory"] = first_match("/proc/meminfo", "MemTotal");
  return j;
}

Json tool_json() {
  Json j;
  j["version"] = kToolVersion;
  j["commit"] = build_commit();
  j["dirty"] = build_dirty();
  j["compiler"] = build_compiler();
  j["flags"] = build_flags();
  return j;
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

// ---- the log

DurableLog::DurableLog(const std::string& path, std::function<void(std::size_t)> durable)
    : path_(path), durable_(std::move(durable)) {
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) throw Error(ErrorKind::output, path + ": cannot write: " + std::strerror(errno));
  writer_ = std::thread([this] { write_lines(); });
}

DurableLog::~DurableLog() {
  try {
    close();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): close() was there to report it
  }
}

void DurableLog::append(std::string line) {
  const std::lock_guard guard(lock_);
  if (!failure_.empty()) throw Error(ErrorKind::output, failure_);
  waiting_.push_back(std::move(line));
  wake_.notify_one();
}

void DurableLog::close() {
  {
    const std::lock_guard guard(lock_);
    closing_ = true;
    wake_.notify_one();
  }
  if (writer_.joinable()) writer_.join();
  if (file_ >= 0) ::close(file_);
  file_ = -1;
  if (!failure_.empty()) throw Error(ErrorKind::output, failure_);
}

void DurableLog::write_lines() {
  std::unique_lock guard(lock_);
  while (true) {
    wake_.wait(guard, [&] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::vector<std::string> lines;
    lines.swap(waiting_);
    guard.unlock();
    std::string text;
    for (const std::string& line : lines) text += line + '\n';
    std::string wrong;
    for (std::size_t done = 0; done < text.size() && wrong.empty();) {
      const ssize_t count = ::write(file_, text.data() + done, text.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        wrong = std::strerror(errno);
      } else {
        done += static_cast<std::size_t>(count);
      }
    }
    if (wrong.empty() && ::fsync(file_) != 0 && errno != EINVAL && errno != EROFS)
      wrong = std::strerror(errno);
    if (wrong.empty() && durable_) durable_(lines.size());
    guard.lock();
    if (!wrong.empty()) {
      failure_ = path_ + ": cannot write: " + wrong;
      return;
    }
  }
}

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = folder + "/lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) throw Error(ErrorKind::output, path + ": cannot write: " + std::strerror(errno));
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    ::close(file_);
    throw Error(ErrorKind::usage, folder + ": another sweep is writing here");
  }
}

FolderLock::~FolderLock() {
  ::close(file_);
}

// ---- manifest

void write_manifest(const std::string& folder, const SweepPlan& plan,
                    const std::vector<std::string>& arguments, const std::vector<std::string>& overrides) {
  Json j;
  j["schema"] = "swaplab/manifest@1";
  j["name"] = plan.config.name;
  j["identity"] = plan.identity;
  j["runs"] = plan.runs.size();
  j["excluded"] = plan.excluded;
  j["started"] = now_text();
  j["tool"] = tool_json();
  j["host"] = host_json();
  j["arguments"] = arguments;
  for (const char* kind : {"traces", "machines"}) {
    j["inputs"][kind] = Json::array();
    for (const InputFile& input : std::string_view(kind) == "traces" ? plan.traces : plan.machines)
      j["inputs"][kind].push_back({{"name", input.path}, {"sha256", input.sha256}});
  }
  std::string typed;
  for (const std::string& line : overrides) typed += line + "\n";
  write_file_atomically(folder + "/config.resolved.json", resolved_config_json(plan.config));
  write_file_atomically(folder + "/overrides.txt", typed);
  write_file_atomically(folder + "/metrics.json", metric_table_json());
  write_file_atomically(folder + "/manifest.json", j.dump(2) + "\n");
}

void check_manifest(const std::string& folder, const SweepPlan& plan, bool allow_other_build) {
  const std::string path = folder + "/manifest.json";
  try {
    const Json j = Json::parse(read_text(path));
    if (j.at("identity").get<std::string>() != plan.identity)
      throw Error(ErrorKind::usage, folder + ": holds results of another configuration or of other inputs");
    const Json& tool = j.at("tool");
    const std::string commit = tool.at("commit").get<std::string>();
    if (!allow_other_build &&
        (commit != build_commit() || tool.at("version").get<std::string>() != kToolVersion))
      throw Error(ErrorKind::usage, folder + ": was begun by swaplab " +
                                        tool.at("version").get<std::string>() + " (" + commit +
                                        "), this is " + kToolVersion + " (" + build_commit() +
                                        "), whose results may differ; use another --output, or --any-build");
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorKind::input, path + ": not a manifest: " + e.what());
  }
}

// ---- reading

std::vector<RunRecord> read_run_log(const std::string& path, bool repair) {
  std::vector<RunRecord> records;
  if (!fs::exists(path)) return records;
  const std::string text = read_text(path);
  std::size_t from = 0, number = 0;
  while (from < text.size()) {
    const std::size_t end = text.find('\n', from);
    ++number;
    if (end == std::string::npos) break;  // torn: no newline
    records.push_back(
        parse_record(std::string_view(text).substr(from, end - from), path + ":" + std::to_string(number)));
    from = end + 1;
  }
  if (from < text.size() && repair) {
    std::error_code error;
    fs::resize_file(path, from, error);
    if (error) throw Error(ErrorKind::output, path + ": cannot cut the torn last line: " + error.message());
  }
  return records;
}

std::vector<RunRecord> read_all_logs(const std::string& folder, bool repair) {
  std::vector<RunRecord> records = read_run_log(folder + "/runs.jsonl", repair);
  std::vector<std::string> shards;
  if (fs::is_directory(folder + "/shards")) {
    for (const auto& entry : fs::directory_iterator(folder + "/shards")) {
      if (entry.path().extension() == ".jsonl") shards.push_back(entry.path().string());
    }
  }
  std::sort(shards.begin(), shards.end());
  for (const std::string& shard : shards) {
    for (RunRecord& record : read_run_log(shard, repair)) records.push_back(std::move(record));
  }
  return records;
}

bool is_local_failure(const RunRecord& record) {
  return record.status == "error" || record.status == "timeout" || record.status == "memory_limit" ||
         record.status == "crashed";
}

std::vector<RunRecord> merge_records(std::vector<RunRecord> records, const SweepPlan& plan) {
  std::map<std::string, std::size_t> index_of;
  for (const PlannedRun& run : plan.runs) index_of[run.key] = run.index;
  std::map<std::size_t, RunRecord> by_index;
  for (RunRecord& record : records) {
    const auto planned = index_of.find(record.key);
    if (planned == index_of.end() || planned->second != record.index)
      throw Error(ErrorKind::input, "run " + record.key + " (number " + std::to_string(record.index) +
                                        ") does not belong to this sweep");
    const auto at = by_index.find(record.index);
    if (at == by_index.end()) {
      by_index.emplace(record.index, std::move(record));
      continue;
    }
    // A run repeated after a local failure replaces it.
    if (is_local_failure(at->second)) {
      at->second = std::move(record);
    } else if (!is_local_failure(record) && record_line(at->second, false) != record_line(record, false)) {
      throw Error(ErrorKind::invariant, "run " + record.key + " was recorded twice with different results");
    }
  }
  std::vector<RunRecord> merged;
  merged.reserve(by_index.size());
  for (auto& [index, record] : by_index) merged.push_back(std::move(record));
  return merged;
}

Results load_results(const std::string& path) {
  Results results;
  if (!fs::exists(path)) throw Error(ErrorKind::input, path + ": does not exist");
  if (!fs::is_directory(path)) {
    results.records = read_run_log(path, false);
  } else {
    results.folder = path;
    const std::string config = path + "/config.resolved.json";
    if (!fs::exists(config))
      throw Error(ErrorKind::input, path + ": is no results folder (config.resolved.json is missing)");
    results.manifest_json = read_text(path + "/manifest.json");
    try {
      results.config_json = read_text(config);
      if (const std::string fault = json_error(results.config_json, 0); !fault.empty())
        throw Error(ErrorKind::input, config + ": " + fault);
      const Json j = Json::parse(results.config_json);
      results.config.name = j.at("name").get<std::string>();
      results.config.baseline = j.at("baseline").get<std::string>();
      results.config.metric = j.at("metric").get<std::string>();
      const std::string problem =
          parse_fraction(j.at("threshold").get<std::string>(), 0, kUnchanged, results.config.threshold_ppm);
      if (!problem.empty()) throw Error(ErrorKind::input, config + ": threshold: " + problem);
    } catch (const nlohmann::json::exception&) {
      throw Error(
          ErrorKind::input,
          config +
              ": expected the texts name, baseline, metric and threshold, as 'swaplab sweep' writes them");
    }
    // From the logs, which are the source of truth: an interrupted sweep can be looked at, too.
    std::map<std::size_t, RunRecord> by_index;
    for (RunRecord& record : read_all_logs(path, false)) {
      const auto at = by_index.find(record.index);
      if (at == by_index.end()) {
        by_index.emplace(record.index, std::move(record));
      } else if (is_local_failure(at->second)) {
        at->second = std::move(record);
      }
    }
    for (auto& [index, record] : by_index) results.records.push_back(std::move(record));
    if (results.records.empty()) results.records = read_run_log(path + "/results.jsonl", false);
  }
  if (results.records.empty()) throw Error(ErrorKind::input, path + ": holds no finished run");
  std::stable_sort(results.records.begin(), results.records.end(),
                   [](const RunRecord& a, const RunRecord& b) { return a.index < b.index; });
  return results;
}

// ---- derived files

std::string write_derived(const std::string& folder, const std::vector<RunRecord>& records,
                          std::size_t planned) {
  std::string lines, failures;
  std::map<std::string, std::size_t> counts;
  for (const RunRecord& record : records) {
    const std::string line = record_line(record, false) + "\n";
    lines += line;
    if (!record.ok()) failures += line;
    ++counts[record.status];
  }
  const std::string hash = sha256_hex(lines);
  write_file_atomically(folder + "/results.jsonl", lines);
  write_file_atomically(folder + "/failures.jsonl", failures);
  write_file_atomically(folder + "/results.csv", records_csv(records));
  write_sqlite(records, folder + "/results.sqlite");
  Json j;
  j["schema"] = "swaplab/summary@1";
  j["runs"] = planned;
  j["finished"] = records.size();
  j["status"] = Json::object();
  for (const auto& [status, count] : counts) j["status"][status] = count;
  j["result_sha256"] = hash;
  write_file_atomically(folder + "/summary.json", j.dump(2) + "\n");
  return hash;
}

}  // namespace swaplab
