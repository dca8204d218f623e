#include "sim/analysis/reuse.hpp"

#include <algorithm>
#include <bit>

namespace swaplab {
namespace {

// Prefix sums over positions (Fenwick, 1994).
class PrefixSums {
 public:
  explicit PrefixSums(std::size_t size) : sums_(size + 1, 0) {}
  void add(std::size_t at, std::int64_t value) {
    for (std::size_t i = at + 1; i < sums_.size(); i += i & (~i + 1)) sums_[i] += value;
  }
  std::int64_t before(std::size_t end) const {
    std::int64_t sum = 0;
    for (std::size_t i = end; i > 0; i -= i & (~i + 1)) sum += sums_[i];
    return sum;
  }

 private:
  std::vector<std::int64_t> sums_;
};

}  // namespace

ReuseDistances reuse_distances(const Program& program) {
  ReuseDistances result;
  // Every live storage's bytes stand at the position of its last access.
  PrefixSums recent(program.accesses.size());
  std::vector<std::uint32_t> last(program.slot_count(), kNever);
  std::array<ReuseDistances::Bucket, 64> buckets{};
  std::vector<std::pair<std::int64_t, std::int64_t>> distances;  // distance, bytes
  std::uint32_t position = 0;
  const auto forget = [&](Slot slot) {
    if (last[index(slot)] != kNever) recent.add(last[index(slot)], -program.bytes[index(slot)].value);
    last[index(slot)] = kNever;
  };
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    for (const GapEvent& event : program.gap(op)) {
      if (event.is_free) forget(event.slot);
    }
    for (const Access& access : program.accesses_of(op)) {
      const std::uint32_t s = index(access.slot);
      const std::int64_t bytes = program.bytes[s].value;
      if (last[s] == kNever) {
        ++result.first_accesses;
      } else {
        const std::int64_t distance = recent.before(position) - recent.before(last[s]);
        recent.add(last[s], -bytes);
        ++result.reuses;
        const auto bucket = static_cast<std::size_t>(
            distance <= 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(distance) - 1));
        ++buckets[bucket].accesses;
        buckets[bucket].bytes += Bytes{bytes};
        distances.emplace_back(distance, bytes);
      }
      recent.add(position, bytes);
      last[s] = position++;
    }
  }
  std::size_t first = 0, end = buckets.size();
  while (first < end && buckets[first].accesses == 0) ++first;
  while (end > first && buckets[end - 1].accesses == 0) --end;
  for (std::size_t b = first; b < end; ++b) {
    buckets[b].up_to = Bytes{std::int64_t{1} << std::min<std::size_t>(b, 62)};
    result.buckets.push_back(buckets[b]);
  }
  std::sort(distances.begin(), distances.end());
  std::int64_t total = 0;
  for (const auto& [distance, bytes] : distances) total += bytes;
  static constexpr std::int64_t kPerMille[] = {500, 900, 990, 1000};
  std::size_t quantile = 0;
  std::int64_t seen = 0;
  for (const auto& [distance, bytes] : distances) {
    seen += bytes;
    while (quantile < 4 &&
           seen >= total / 1000 * kPerMille[quantile] + total % 1000 * kPerMille[quantile] / 1000)
      result.quantiles[quantile++] = Bytes{distance};
  }
  return result;
}

std::vector<IdleInterval> idle_intervals(const Program& program, const Machine& machine) {
  std::vector<Nanos> elapsed(program.op_count() + 1);  // device time before the operator
  for (std::uint32_t op = 0; op < program.op_count(); ++op)
    elapsed[op + 1] = elapsed[op] + program.device_time[op];
  const TransferTable& out = machine.link(Direction::device_to_host);
  const TransferTable& in = machine.link(Direction::host_to_device);
  std::vector<std::uint32_t> last(program.slot_count(), kNever);
  std::vector<std::uint8_t> on_host(program.slot_count(), 0);
  std::vector<IdleInterval> intervals;
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    for (const Access& access : program.accesses_of(op)) {
      const std::uint32_t s = index(access.slot);
      if (last[s] != kNever && op > last[s] + 1) {
        const Bytes bytes = program.bytes[s];
        IdleInterval interval{access.slot,   last[s], op, bytes, elapsed[op] - elapsed[last[s] + 1],
                              in.time(bytes)};
        if (on_host[s] == 0) interval.transfer += out.time(bytes);
        if (interval.hideable()) on_host[s] = 1;
        intervals.push_back(interval);
      }
      if ((access.flags & kWrite) != 0) on_host[s] = 0;
      last[s] = op;
    }
  }
  std::sort(intervals.begin(), intervals.end(), [](const IdleInterval& a, const IdleInterval& b) {
    return a.from != b.from ? a.from < b.from : a.slot < b.slot;
  });
  return intervals;
}

IdleSummary summarise(const std::vector<IdleInterval>& intervals, std::uint32_t peak_op) {
  IdleSummary summary;
  for (const IdleInterval& interval : intervals) {
    ++summary.intervals;
    summary.hideable += interval.hideable() ? 1 : 0;
    if (interval.from >= peak_op || interval.to <= peak_op) continue;
    summary.at_peak += interval.bytes;
    if (interval.hideable()) summary.hideable_at_peak += interval.bytes;
  }
  return summary;
}

}  // namespace swaplab
