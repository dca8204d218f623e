#include "trace/check.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace swaplab {

TraceReport examine_trace(const Trace& trace, const std::function<void()>& passed) {
  TraceReport report;
  const auto n = static_cast<std::uint32_t>(trace.ops.size());
  report.operators = n;
  report.storages = trace.storages.size();
  const auto problem = [&](const std::string& text) {
    if (report.problems.size() < 20) report.problems.push_back(text);
  };
  enum : std::uint8_t { unborn, live, dead };
  std::vector<std::uint8_t> state(trace.storages.size(), unborn);
  std::unordered_map<std::uint32_t, Bytes> resized;
  const auto size = [&](std::uint32_t s) {
    if (resized.empty()) return trace.storages.bytes[s];
    const auto found = resized.find(s);
    return found == resized.end() ? trace.storages.bytes[s] : found->second;
  };
  std::array<Bytes, 6> by_class{};
  Bytes live_bytes{0};
  std::map<std::uint32_t, std::uint64_t> name_counts;
  std::size_t iteration = 0, ended = 0;
  for (const Iteration& it : trace.iterations) {
    IterationSummary summary;
    summary.iteration = it;
    report.iterations.push_back(summary);
  }
  const auto add = [&](std::uint32_t s, Bytes bytes, std::uint32_t gap) {
    live_bytes += bytes;
    by_class[static_cast<std::size_t>(trace.storages.cls[s])] += bytes;
    if (live_bytes > report.peak_bytes) {
      report.peak_bytes = live_bytes;
      report.peak_op = gap;
      report.bytes_by_class_at_peak = by_class;
    }
  };
  for (std::uint32_t gap = 0; gap <= n; ++gap) {
    if (passed && gap % (std::uint32_t{1} << 20) == 0) passed();
    while (iteration < report.iterations.size() && gap > report.iterations[iteration].iteration.end_op)
      ++iteration;
    const bool inside = iteration < report.iterations.size() &&
                        gap >= report.iterations[iteration].iteration.first_op &&
                        gap < report.iterations[iteration].iteration.end_op;
    for (const Event& event : trace.gap(gap)) {
      if (event.kind == EventKind::alloc_op || event.kind == EventKind::alloc_external) {
        if (state[event.arg] != unborn)
          problem("storage " + std::to_string(event.arg) + " is allocated twice");
        if (trace.storages.birth_gap[event.arg] != gap)
          problem("storage " + std::to_string(event.arg) + ": wrong birth");
        state[event.arg] = live;
        add(event.arg, size(event.arg), gap);
        if (inside) ++report.iterations[iteration].allocations;
      } else if (event.kind == EventKind::free) {
        if (state[event.arg] != live)
          problem("storage " + std::to_string(event.arg) + " is freed while not live");
        if (trace.storages.death_gap[event.arg] != gap)
          problem("storage " + std::to_string(event.arg) + ": wrong death");
        state[event.arg] = dead;
        add(event.arg, -size(event.arg), gap);
      } else if (event.kind == EventKind::resize) {
        const Resize& r = trace.resizes[event.arg];
        add(index(r.storage), r.to - size(index(r.storage)), gap);
        resized[index(r.storage)] = r.to;
      } else if (event.kind == EventKind::mark && trace.marks[event.arg].kind == MarkKind::iter_end) {
        while (ended < report.iterations.size() && report.iterations[ended].iteration.end_op < gap) ++ended;
        for (std::size_t i = ended;
             i < report.iterations.size() && report.iterations[i].iteration.end_op == gap; ++i)
          report.iterations[i].live_at_end = live_bytes;
      }
    }
    if (gap == n) break;
    const auto use = [&](std::span<const StorageId> storages) {
      for (const StorageId s : storages) {
        if (state[index(s)] != live) {
          problem("operator " + std::to_string(gap) + " uses storage " + std::to_string(index(s)) +
                  ", which is not live");
        }
      }
    };
    use(trace.inputs(gap));
    use(trace.outputs(gap));
    const bool view = trace.signatures.view[index(trace.ops.signature[gap])] != 0;
    report.views += view ? 1 : 0;
    report.syncs += trace.ops.sync[gap] != SyncKind::none ? 1 : 0;
    report.streams = std::max<std::uint32_t>(report.streams, trace.ops.stream[gap] + 1u);
    ++name_counts[index(trace.signatures.name[index(trace.ops.signature[gap])])];
    if (!inside) continue;
    IterationSummary& it = report.iterations[iteration];
    it.peak_bytes = std::max(it.peak_bytes, live_bytes);
    if (view) continue;
    const Nanos time = trace.ops.device_time.empty() ? Nanos{-1} : trace.ops.device_time[gap];
    time < Nanos{0} ? void(++it.operators_without_time) : void(it.device_time += time);
  }
  report.live_bytes = live_bytes;
  if (report.peak_bytes != trace.peak_bytes) problem("peak bytes do not agree with the trace's own");
  if (report.live_bytes != trace.live_bytes)
    problem("live bytes at the end do not agree with the trace's own");
  for (const auto& [name, count] : name_counts)
    report.top_operators.emplace_back(trace.names[NameId{name}], count);
  std::stable_sort(report.top_operators.begin(), report.top_operators.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (report.top_operators.size() > 10) report.top_operators.resize(10);
  return report;
}

}  // namespace swaplab
