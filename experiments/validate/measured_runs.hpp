// Measured runs: lines as `swaplab sweep` writes them, with what `swaplab-gpu replay` adds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/sweep/run_record.hpp"

namespace swaplab {

struct MeasuredRun {
  RunRecord record;                            // figures of the median repeat
  std::string where;                           // file and line
  std::string device;                          // name; "" when the line does not say
  std::vector<std::vector<Nanos>> iterations;  // every iteration of every repeat; may be empty
  std::uint32_t steady_first = 0, steady_end = 0;
  // The replay's real bytes are simulated bytes / divisor, its real times trace times x scale; all figures
  // are stated in simulated bytes and trace times.
  std::int64_t bytes_divisor = 1;
  Ppm time_scale = kUnchanged;
  bool copies_stretched = false;  // to the profile's time of all simulated bytes: links are as simulated
  std::string decisions_differ;   // first decision that was not the simulator's; "" when there is none
  std::int64_t wrong_words = 0;   // found by the integrity checks
  // Mean time of a steady iteration of each repeat; the record's own figure when there are no repeats.
  std::vector<Nanos> steady_means() const;
};

// Throws Error(input) when the path is no regular file, or one too large to be results.
void require_results_file(const std::string& path);

// Throws Error(input) when a time or an amount of bytes is negative; `where` names the record.
void require_possible_metrics(const RunRecord& record, const std::string& where);

// Throws Error(input) naming file and line: no run record, a line that is not marked "measured": true, a
// metric that cannot be, or one of the fields above of a wrong kind.
std::vector<MeasuredRun> read_measured_runs(const std::string& path);

}  // namespace swaplab
