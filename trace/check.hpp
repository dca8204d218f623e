// Replays a finished trace and says what is in it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trace/model.hpp"

namespace swaplab {

struct IterationSummary {
  Iteration iteration;
  std::uint64_t allocations = 0;
  Bytes peak_bytes, live_at_end;
  Nanos device_time{0};  // sum of the known ones, views excluded
  std::uint32_t operators_without_time = 0;
};

struct TraceReport {
  std::vector<std::string> problems;  // empty: the trace is consistent; at most 20
  std::uint64_t operators = 0, storages = 0, views = 0, syncs = 0;
  std::uint32_t streams = 0;
  Bytes peak_bytes, live_bytes;
  std::uint32_t peak_op = 0;
  std::array<Bytes, 6> bytes_by_class_at_peak{};  // by StorageClass
  std::vector<IterationSummary> iterations;
  std::vector<std::pair<std::string, std::uint64_t>> top_operators;  // by count, at most 10
};

// Independent of the builder: works on the columns. Liveness, use after free, peak and live bytes.
// `passed` (may be empty) is called after each stretch of operators, for MappedTrace::forget_pages.
TraceReport examine_trace(const Trace& trace, const std::function<void()>& passed = {});

}  // namespace swaplab
