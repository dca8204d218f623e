#include "experiments/validate/measured_runs.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLongest = std::int64_t{1} << 52;  // 52 days in ns

class Line {
 public:
  Line(const std::string& text, std::string where) : where_(std::move(where)) {
    run_.record = parse_record(text, where_);
    run_.where = where_;
    require_possible_metrics(run_.record, where_);
    json_ = Json::parse(text);
  }

  MeasuredRun read() {
    if (!json_.contains("measured") || json_.at("measured") != Json(true))
      fail("is a simulated run; --measured takes results of 'swaplab-gpu replay' (\"measured\": true)");
    if (json_.contains("device")) {
      const Json& device = json_.at("device");
      if (!device.is_object() || !device.contains("name") || !device.at("name").is_string())
        fail("device: expected an object with a name");
      run_.device = device.at("name").get<std::string>();
    }
    if (json_.contains("bytes_divisor")) run_.bytes_divisor = integer("bytes_divisor", 1, 1 << 20);
    if (json_.contains("time_scale_ppm")) run_.time_scale = integer("time_scale_ppm", 1, 1'000'000'000);
    if (json_.contains("copies_stretched")) {
      if (!json_.at("copies_stretched").is_boolean()) fail("copies_stretched: expected true or false");
      run_.copies_stretched = json_.at("copies_stretched").get<bool>();
    }
    if (json_.contains("decisions_differ")) {
      if (!json_.at("decisions_differ").is_string()) fail("decisions_differ: expected a text");
      run_.decisions_differ = json_.at("decisions_differ").get<std::string>();
    }
    if (json_.contains("integrity")) {
      const Json& integrity = json_.at("integrity");
      if (!integrity.is_object() || !integrity.contains("wrong_words"))
        fail("integrity: expected an object with the number of wrong_words");
      run_.wrong_words = integer(integrity.at("wrong_words"), "integrity.wrong_words", 0,
                                 std::numeric_limits<std::int64_t>::max());
    }
    if (json_.contains("iterations_ns")) read_iterations();
    return std::move(run_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorKind::input, where_ + ": " + message);
  }

  std::int64_t integer(const Json& value, const std::string& name, std::int64_t low,
                       std::int64_t high) const {
    const bool wraps =
        value.is_number_unsigned() &&
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!value.is_number_integer() || wraps || value.get<std::int64_t>() < low ||
        value.get<std::int64_t>() > high)
      fail(name + ": expected an integer from " + std::to_string(low) + " to " + std::to_string(high));
    return value.get<std::int64_t>();
  }
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high) const {
    return integer(json_.at(key), key, low, high);
  }

  void read_iterations() {
    const Json& repeats = json_.at("iterations_ns");
    if (!repeats.is_array()) fail("iterations_ns: expected a list of repeats");
    for (std::size_t r = 0; r < repeats.size(); ++r) {
      const std::string at = "iterations_ns[" + std::to_string(r) + "]";
      if (!repeats[r].is_array()) fail(at + ": expected a list of times");
      std::vector<Nanos> times;
      times.reserve(repeats[r].size());
      for (const Json& time : repeats[r]) times.push_back(Nanos{integer(time, at, 0, kLongest)});
      run_.iterations.push_back(std::move(times));
    }
    if (!json_.contains("steady_iterations"))
      fail("iterations_ns needs steady_iterations: [first, one past the last]");
    const Json& steady = json_.at("steady_iterations");
    if (!steady.is_array() || steady.size() != 2)
      fail("steady_iterations: expected [first, one past the last]");
    run_.steady_first = static_cast<std::uint32_t>(integer(steady[0], "steady_iterations", 0, 1 << 30));
    run_.steady_end =
        static_cast<std::uint32_t>(integer(steady[1], "steady_iterations", run_.steady_first, 1 << 30));
    std::size_t longest = 0;
    for (const std::vector<Nanos>& repeat : run_.iterations) longest = std::max(longest, repeat.size());
    if (run_.steady_end > longest)
      fail("steady_iterations: ends at " + std::to_string(run_.steady_end) + ", no repeat has more than " +
           std::to_string(longest) + " iterations");
  }

  std::string where_;
  Json json_;
  MeasuredRun run_;
};

}  // namespace

std::vector<Nanos> MeasuredRun::steady_means() const {
  std::vector<Nanos> means;
  for (const std::vector<Nanos>& repeat : iterations) {
    // A repeat that failed ends early.
    if (steady_end <= steady_first || repeat.size() < steady_end) continue;
    Wide sum = 0;
    for (std::uint32_t i = steady_first; i < steady_end; ++i) sum += repeat[i].value;
    means.push_back(Nanos{static_cast<std::int64_t>(sum / (steady_end - steady_first))});
  }
  if (means.empty())
    if (const auto time = record.metric("iter_time_ns")) means.push_back(Nanos{*time});
  return means;
}

void require_results_file(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) throw Error(ErrorKind::input, path + ": there is no such file");
  if (!std::filesystem::is_regular_file(path, code))
    throw Error(ErrorKind::input, path + ": not a regular file");
  constexpr std::uintmax_t kLargest = std::uintmax_t{1} << 31;
  if (std::filesystem::file_size(path, code) > kLargest) throw Error(ErrorKind::input, path + ": over 2 GiB");
}

void require_possible_metrics(const RunRecord& record, const std::string& where) {
  for (const auto& [name, value] : record.metrics) {
    // What a policy reports is its own affair; what was lost against another run can be a gain.
    if (value >= 0 || name.starts_with("policy.") || name == "lost_ns") continue;
    if (name.ends_with("_ns") || name.ends_with("_bytes"))
      throw Error(ErrorKind::input, where + ": metric '" + name + "': expected an integer from 0, found " +
                                        std::to_string(value));
  }
}

std::vector<MeasuredRun> read_measured_runs(const std::string& path) {
  require_results_file(path);
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorKind::input, path + ": cannot be read");
  std::vector<MeasuredRun> runs;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty()) continue;
    runs.push_back(Line(line, path + ":" + std::to_string(number)).read());
  }
  if (runs.empty()) throw Error(ErrorKind::input, path + ": holds no run");
  return runs;
}

}  // namespace swaplab
