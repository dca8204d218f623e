// What the tests of the perturbations share: bundled traces, requests, and the check that marks are exact.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/shared.hpp"
#include "trace/check.hpp"
#include "trace/diff.hpp"
#include "trace/io.hpp"
#include "trace/perturb/perturb.hpp"

namespace swaplab::test {

inline const Trace& bundled(const std::string& name) {
  static std::map<std::string, Trace> traces;
  auto found = traces.find(name);
  if (found == traces.end())
    found = traces.emplace(name, read_trace(source_path("configs/traces/" + name + ".jsonl.gz"))).first;
  return found->second;
}

inline Trace perturbed(const Trace& trace, const std::vector<std::string>& requests, std::uint64_t seed = 1,
                       PerturbationReport* report = nullptr) {
  std::vector<PerturbationRequest> parsed;
  for (const std::string& text : requests) parsed.push_back(parse_perturbation(text));
  return perturb_trace(trace, parsed, seed, report);
}

// What makes an operator what it is, in one number space for several traces.
struct OperatorText {
  std::string signature;
  Phase phase;
  std::int64_t device_time, host_time;
  bool operator==(const OperatorText&) const = default;
};
inline OperatorText operator_text(const Trace& trace, std::uint32_t op) {
  const auto time = [op](const Column<Nanos>& column) { return column.empty() ? -1 : column[op].value; };
  return {std::string(trace.op_name(op)) +
              std::string(trace.names[trace.signatures.detail[index(trace.ops.signature[op])]]),
          trace.ops.phase[op], time(trace.ops.device_time), time(trace.ops.host_time)};
}

// Outside the marks both traces hold the same operators in the same order, and the marks' counts fit the
// numbers of operators; so the marks cover every change.
inline void check_marks(const Trace& before, const Trace& after) {
  const std::vector<PerturbationMark> marks = perturbation_marks(after.header);
  std::vector<std::uint8_t> covered(after.ops.size(), 0);
  std::int64_t changed = 0, removed = 0;
  for (const PerturbationMark& m : marks) {
    REQUIRE(m.first_op >= 0);
    REQUIRE(m.last_op < static_cast<std::int64_t>(after.ops.size()));
    REQUIRE(m.first_op <= m.last_op + 1);
    REQUIRE(m.changed + m.removed > 0);
    CHECK(m.changed <= m.last_op - m.first_op + 1);
    const auto in_iteration = [&](const Iteration& it) { return it.number == m.iteration; };
    const auto found = std::find_if(after.iterations.begin(), after.iterations.end(), in_iteration);
    REQUIRE(found != after.iterations.end());
    CHECK(m.first_op >= found->first_op);
    CHECK(m.last_op < static_cast<std::int64_t>(found->end_op));
    for (std::int64_t op = m.first_op; op <= m.last_op; ++op) covered[static_cast<std::size_t>(op)] = 1;
    changed += m.changed;
    removed += m.removed;
  }
  // The uncovered operators are a subsequence of the original.
  std::uint32_t next = 0;
  for (std::uint32_t op = 0; op < after.ops.size(); ++op) {
    if (covered[op] != 0) continue;
    const OperatorText text = operator_text(after, op);
    while (next < before.ops.size() && !(operator_text(before, next) == text)) ++next;
    REQUIRE_MESSAGE(next < before.ops.size(), "operator " << op << " is changed but not marked");
    ++next;
  }
  // What was neither changed nor removed stands in both.
  const auto size = [](const Trace& trace) { return static_cast<std::int64_t>(trace.ops.size()); };
  CHECK(size(after) - changed <= size(before) - removed);
  CHECK(size(before) - removed <= size(after));
}

}  // namespace swaplab::test
