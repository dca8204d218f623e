#include "sim/bounds/swap_gaps.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kLargestSum = std::int64_t{1} << 62;

void check_size(const Program& program) {
  if (program.op_count() > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max() - 1)) {
    throw Error(ErrorKind::input, "bound: " + std::to_string(program.op_count()) +
                                      " operators, at most 2^31 - 2 are supported");
  }
  std::int64_t bytes = 0, time = 0;
  for (const Bytes b : program.bytes) {
    if (b < Bytes{0} || __builtin_add_overflow(bytes, b.value, &bytes) || bytes > kLargestSum) {
      throw Error(ErrorKind::input, "bound: storages of negative size or of more than 2^62 bytes in all");
    }
  }
  for (const Nanos t : program.device_time) {
    if (t < Nanos{0} || __builtin_add_overflow(time, t.value, &time) || time > kLargestSum) {
      throw Error(ErrorKind::input, "bound: device times negative or of more than 2^62 ns in all");
    }
  }
}

}  // namespace

SwapGapTable::SwapGapTable(const Program& program) {
  check_size(program);
  const std::uint32_t n = program.op_count();
  elapsed.resize(n + 1, Nanos{0});
  required.assign(n + 2, Bytes{0});  // differences first; one spare row behind the last operator
  for (std::uint32_t op = 0; op < n; ++op) {
    elapsed[op + 1] = elapsed[op] + program.device_time[op];
    Bytes working_set{0};
    for (const Access& access : program.accesses_of(op)) working_set += program.bytes[index(access.slot)];
    if (working_set > largest_working_set) {
      largest_working_set = working_set;
      largest_working_set_op = op;
    }
    if (!program.accesses_of(op).empty() || program.device_time[op] > Nanos{0}) kernels.push_back(op);
  }

  const AccessIndex accesses = index_accesses(program);
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
    const Bytes bytes = program.bytes[s];
    const bool initial = program.initial[s] != 0;
    std::int32_t previous = kBeforeRun, version = kBeforeRun;
    bool exists = initial;
    for (std::uint32_t i = accesses.begin[s]; i < accesses.begin[s + 1]; ++i) {
      const auto op = static_cast<std::int32_t>(accesses.ops[i]);
      const bool kept = exists && (accesses.flags[i] & kRead) != 0;
      // Required at `op` itself, and all through the gap before it when its content must survive.
      const std::int32_t from = kept ? previous + 1 : op;
      required[static_cast<std::size_t>(from + 1)] += bytes;
      required[static_cast<std::size_t>(op + 2)] -= bytes;
      if (kept && op > previous + 1) {
        gaps.push_back({previous, op, version, Slot{s}, bytes});
        longest = std::max(longest, op - previous);
      }
      if ((accesses.flags[i] & kWrite) != 0) version = op;
      previous = op;
      exists = true;
    }
  }
  for (std::uint32_t k = 0; k + 1 < required.size(); ++k) required[k + 1] += required[k];
  required.pop_back();
  std::sort(gaps.begin(), gaps.end(), [](const SwapGap& a, const SwapGap& b) {
    return std::tuple(a.open, a.close, a.slot) < std::tuple(b.open, b.close, b.slot);
  });
}

}  // namespace swaplab
