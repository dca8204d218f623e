#include "sim/checker/occupancy.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace swaplab::checker {

Bytes check_occupancy(const Schedule& schedule, const Facts& facts, const WalkResult& walk,
                      Findings& findings) {
  struct Change {
    Nanos time;
    bool takes;  // at equal times bytes are given up first: intervals are half-open
    std::uint32_t residency;
  };
  constexpr Nanos kForever{std::numeric_limits<std::int64_t>::max()};
  std::vector<Change> changes;
  for (std::uint32_t i = 0; i < walk.residencies.size(); ++i) {
    const Residency& r = walk.residencies[i];
    if (!r.active && !r.from_start) continue;
    const Nanos first = r.from_start ? Nanos{0} : r.first;
    const Nanos last = r.released ? (r.active ? r.last : Nanos{0}) : kForever;
    if (first >= last) continue;
    changes.push_back({first, true, i});
    changes.push_back({last, false, i});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    if (a.time != b.time) return a.time < b.time;
    if (a.takes != b.takes) return b.takes;
    return a.residency < b.residency;
  });
  Bytes occupied{0}, peak{0};
  for (const Change& change : changes) {
    const Residency& r = walk.residencies[change.residency];
    if (!change.takes) {
      occupied -= r.bytes;
      continue;
    }
    occupied += r.bytes;
    peak = std::max(peak, occupied);
    findings.expect(occupied <= schedule.budget, r.acquired, [&] {
      return "occupancy: storage " + std::to_string(facts.lives[r.life].storage) + " comes into use at " +
             ns(change.time) + " and makes it " + bytes_text(occupied) + ", more than the budget of " +
             bytes_text(schedule.budget);
    });
  }
  return peak;
}

namespace {

// Disjoint intervals during which at least one kernel runs, ascending.
std::vector<KernelTime> busy_intervals(std::vector<KernelTime> kernels) {
  std::sort(kernels.begin(), kernels.end(),
            [](const KernelTime& a, const KernelTime& b) { return a.start < b.start; });
  std::vector<KernelTime> busy;
  for (const KernelTime& kernel : kernels) {
    if (!busy.empty() && kernel.start <= busy.back().end) {
      busy.back().end = std::max(busy.back().end, kernel.end);
    } else {
      busy.push_back(kernel);
    }
  }
  return busy;
}

Nanos overlap(const std::vector<KernelTime>& busy, Nanos begin, Nanos end) {
  auto it = std::partition_point(busy.begin(), busy.end(),
                                 [begin](const KernelTime& interval) { return interval.end <= begin; });
  Nanos sum{0};
  for (; it != busy.end() && it->start < end; ++it) {
    sum += std::min(it->end, end) - std::max(it->start, begin);
  }
  return sum;
}

class ResultCheck {
 public:
  ResultCheck(const Schedule& schedule, Findings& findings)
      : findings_(findings), whole_(schedule.entries.size()) {}

  template <class Value>
  void equal(const std::string& what, Value claimed, Value recomputed) {
    findings_.expect(claimed == recomputed, whole_, [&] {
      return "result: " + what + " is " + text(recomputed) + " by the entries, claimed " + text(claimed);
    });
  }
  template <class Value>
  void at_least(const std::string& what, Value claimed, Value recomputed) {
    findings_.expect(claimed >= recomputed, whole_, [&] {
      return "result: " + what + " is at least " + text(recomputed) + " by the entries, claimed " +
             text(claimed);
    });
  }

  void iteration(const IterationMetrics& it, const std::string& name) {
    // Unsigned, so that absurd claims wrap round instead of overflowing.
    std::uint64_t sum = static_cast<std::uint64_t>(it.compute_busy.value);
    for (std::size_t s = 0; s < kStallCount; ++s) {
      sum += static_cast<std::uint64_t>(it.stalls[s].value);
      findings_.expect(it.stalls[s] >= Nanos{0}, whole_, [&] {
        return "result: " + name + "stall " + std::string(stall_name(static_cast<Stall>(s))) +
               " is negative: " + ns(it.stalls[s]);
      });
    }
    const std::uint64_t time =
        static_cast<std::uint64_t>(it.end.value) - static_cast<std::uint64_t>(it.begin.value);
    findings_.expect(sum == time, whole_, [&] {
      return "result: " + name + "busy and stalls sum to " + std::to_string(sum) +
             " ns, the iteration takes " + std::to_string(time) + " ns";
    });
    findings_.expect(it.passive_in <= it.copies_in, whole_, [&] {
      return "result: " + name + std::to_string(it.passive_in) + " passive copies to the device of " +
             std::to_string(it.copies_in) + " in all";
    });
  }

 private:
  static std::string text(Nanos value) { return ns(value); }
  static std::string text(Bytes value) { return bytes_text(value); }
  static std::string text(std::int64_t value) { return std::to_string(value); }
  static std::string text(std::uint64_t value) { return std::to_string(value); }

  Findings& findings_;
  std::uint64_t whole_;
};

}  // namespace

void check_result(const Schedule& schedule, const Facts& facts, const WalkResult& walk, Findings& findings) {
  const RunResult& result = schedule.result;
  ResultCheck check(schedule, findings);
  const auto complete = static_cast<std::uint64_t>(std::count_if(
      walk.iterations.begin(), walk.iterations.end(), [](const auto& it) { return it.complete; }));
  check.equal("the number of complete iterations", std::uint64_t{result.iterations.size()}, complete);

  const bool ideal = schedule.allocator == "ideal";
  const std::vector<KernelTime> busy = busy_intervals(walk.kernels);
  Nanos begin{0};
  Bytes peak{0};
  Bytes bytes_out{0}, bytes_in{0}, claimed_peak{0};
  std::uint64_t copies_out = 0, copies_in = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(complete, result.iterations.size()); ++i) {
    const IterationMetrics& claimed = result.iterations[i];
    const IterationFigures& found = walk.iterations[i];
    const std::string name = "iteration " + std::to_string(facts.iterations[i].number) + ": ";
    check.equal(name + "number", claimed.number, facts.iterations[i].number);
    check.equal(name + "kind", static_cast<std::uint64_t>(claimed.kind),
                static_cast<std::uint64_t>(facts.iterations[i].kind));
    check.equal(name + "begin", claimed.begin, begin);
    check.equal(name + "end", claimed.end, found.last_kernel_end);
    check.equal(name + "compute busy", claimed.compute_busy, overlap(busy, begin, found.last_kernel_end));
    check.iteration(claimed, name);
    // What happens between two operators may count to iterations without operators between them.
    bytes_out += claimed.bytes_out;
    bytes_in += claimed.bytes_in;
    copies_out += claimed.copies_out;
    copies_in += claimed.copies_in;
    claimed_peak = std::max(claimed_peak, claimed.peak_allocated);
    if (facts.iterations[i].first < facts.iterations[i].end) {
      check.equal(name + "bytes to the host", bytes_out, found.bytes_out);
      check.equal(name + "bytes to the device", bytes_in, found.bytes_in);
      check.equal(name + "copies to the host", copies_out, std::uint64_t{found.copies_out});
      check.equal(name + "copies to the device", copies_in, std::uint64_t{found.copies_in});
      if (ideal) {
        check.equal(name + "peak of allocated bytes", claimed_peak, found.peak_acquired);
      } else {  // other allocators round sizes up
        check.at_least(name + "peak of allocated bytes", claimed_peak, found.peak_acquired);
      }
      bytes_out = bytes_in = claimed_peak = Bytes{0};
      copies_out = copies_in = 0;
    }
    check.at_least(name + "peak of reserved bytes", claimed.peak_reserved, claimed.peak_allocated);
    peak = std::max(peak, found.peak_acquired);
    begin = found.last_kernel_end;
  }
  if (ideal) {
    check.equal("peak of allocated bytes", result.allocator.peak_allocated, peak);
  } else {
    check.at_least("peak of allocated bytes", result.allocator.peak_allocated, peak);
  }
  check.at_least("peak of reserved bytes", result.allocator.peak_reserved, result.allocator.peak_allocated);
  check.at_least("the budget", schedule.budget, result.allocator.peak_reserved);
  check.at_least("peak of pinned host bytes", result.peak_host_pinned, walk.peak_only_on_host);
}

void check_infeasible(const Schedule& schedule, const Facts& facts, Findings& findings) {
  const std::uint64_t whole = schedule.entries.size();
  findings.expect(schedule.entries.empty() && schedule.result.iterations.empty(), whole, [] {
    return std::string("infeasible: such a run does nothing, but there are entries or iterations");
  });
  Bytes largest{0};
  for (std::uint32_t op = 0; op < facts.op_count(); ++op) {
    Bytes sum{0};
    for (const Use& use : facts.uses_of(op)) sum += facts.lives[use.life].bytes;
    largest = std::max(largest, sum);
  }
  findings.expect(largest > schedule.budget, whole, [&] {
    return "infeasible: no operator accesses more than " + bytes_text(largest) + ", which the budget of " +
           bytes_text(schedule.budget) + " holds";
  });
  findings.expect(schedule.result.smallest_budget == largest, whole, [&] {
    return "infeasible: the largest working set is " + bytes_text(largest) +
           ", the claimed smallest budget " + bytes_text(schedule.result.smallest_budget);
  });
}

}  // namespace swaplab::checker
