#include "gpu_validate/program/replay_table.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "experiments/text.hpp"

namespace swaplab {
namespace {

std::string percent(Nanos measured, Nanos simulated) {
  if (measured <= Nanos{0}) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f%%",
                100.0 * (static_cast<double>(simulated.value) / static_cast<double>(measured.value) - 1.0));
  return text;
}

}  // namespace

void print_replays(const ReplayRun& run, const ReplayRequest& request, const AcceleratorInfo& device) {
  std::printf("device %s (%s), driver %s, runtime %s; machine profile %s\n", device.name.c_str(),
              device.kind.c_str(), device.driver.c_str(), device.runtime.c_str(),
              request.machine.name.c_str());
  std::string path, notes;
  std::optional<TextTable> table;
  const auto flush = [&] {
    if (table) std::fputs(table->text().c_str(), stdout);
    if (!notes.empty()) std::printf("\n%s", notes.c_str());
    notes.clear();
  };
  for (const MeasuredCell& cell : run.cells()) {
    if (cell.repeats.empty()) continue;
    if (!table || path != cell.trace.path) {
      flush();
      path = cell.trace.path;
      std::printf("\ntrace %s\n  peak %s, real bytes 1/%lld, time scale %s, %zu repeats\n\n", path.c_str(),
                  human_bytes(cell.trace.peak_bytes).c_str(), static_cast<long long>(cell.bytes_divisor),
                  format_fraction(cell.time_scale).c_str(), cell.repeats.size());
      table.emplace(std::vector<std::string>{"budget", "policy", "outcome", "measured", "fastest", "slowest",
                                             "simulated", "error", "swap-in", "memory", "out/iter", "in/iter",
                                             "checked", "wrong", "decisions"},
                    3);
    }
    const MeasuredCell::Repeat& shown = cell.median();
    const auto steady = static_cast<std::int64_t>(cell.trace.steady_end - cell.trace.steady_first);
    std::uint64_t checked = 0, wrong = 0;
    std::string difference;
    Nanos fastest = steady_sum(cell.trace, shown.result), slowest = fastest;
    for (const MeasuredCell::Repeat& repeat : cell.repeats) {
      checked += repeat.integrity.counts.operands + repeat.integrity.counts.swap_ins;
      wrong += repeat.integrity.counts.wrong_words;
      for (const std::string& finding : repeat.integrity.findings)
        notes += "  wrong data, " + cell.factors[6].second + " " + cell.label + ": " + finding + "\n";
      if (difference.empty()) difference = repeat.difference;
      const Nanos total = steady_sum(cell.trace, repeat.result);
      fastest = std::min(fastest, total);
      slowest = std::max(slowest, total);
    }
    if (!difference.empty())
      notes += "  " + cell.factors[6].second + " " + cell.label + ": differs from the simulator at " +
               difference + "\n";
    const std::string decisions = difference.empty() ? "as simulated" : "differ";
    if (shown.result.outcome != Outcome::ok) {
      table->add({cell.factors[6].second, cell.label, std::string(outcome_name(shown.result.outcome)), "-",
                  "-", "-", "-", "-", "-", "-", "-", "-", std::to_string(checked), std::to_string(wrong),
                  decisions});
      notes += "  " + cell.factors[6].second + " " + cell.label + ": " + shown.result.explanation + "\n";
      continue;
    }
    Bytes out{0}, in{0};
    Nanos swap_in{0}, memory{0};
    for (std::uint32_t i = cell.trace.steady_first; i < cell.trace.steady_end; ++i) {
      const IterationMetrics& iteration = shown.result.iterations[i];
      out += iteration.bytes_out;
      in += iteration.bytes_in;
      swap_in += iteration.stalls[static_cast<std::size_t>(Stall::swap_in)];
      memory += iteration.stalls[static_cast<std::size_t>(Stall::memory)];
    }
    const Nanos measured = steady_sum(cell.trace, shown.result);
    table->add({cell.factors[6].second, cell.label, "ok", human_time(measured / steady),
                human_time(fastest / steady), human_time(slowest / steady),
                human_time(cell.simulated_total / steady), percent(measured, cell.simulated_total),
                human_time(swap_in / steady), human_time(memory / steady), human_bytes(out / steady),
                human_bytes(in / steady), std::to_string(checked), std::to_string(wrong), decisions});
  }
  flush();
}

}  // namespace swaplab
