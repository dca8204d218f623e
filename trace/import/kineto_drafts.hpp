// The operators of a profile before they become a trace: who launches what, allocates what, and when.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trace/import/kineto_events.hpp"
#include "trace/import/kineto_nesting.hpp"
#include "trace/import/kineto_storages.hpp"
#include "trace/model.hpp"

namespace swaplab::kineto {

// What becomes one operator of the trace.
struct Draft {
  std::int64_t ts, end;
  std::uint32_t thread, name, op;  // op: kNoIndex when no CPU operator stands behind it
  std::int64_t device_time = 0, wait = 0, device_events = 0;
  std::map<std::uint32_t, std::int64_t> by_stream{};
  Phase phase = Phase::unknown;
  SyncKind sync = SyncKind::none;
  std::vector<std::uint32_t> born{}, freed{};  // lifetimes, freed: after the operator
  std::int64_t scratch_now = 0, scratch = 0;
};

// A time span on one thread: an annotation or a ProfilerStep.
struct Window {
  std::int64_t begin, end;
  std::uint32_t thread;
  Phase phase;
  std::int64_t number;
};

struct Drafts {
  std::vector<Draft> operators;             // in program order
  std::vector<std::uint32_t> birth;         // of each lifetime: the operator, kNoIndex when it lived before
  std::vector<std::uint32_t> freed_before;  // lifetimes that end before the first operator
  std::vector<Window> steps;                // iterations, in order, apart from each other
  // For the report.
  std::int64_t dispatched = 0, wrappers = 0, launches_alone = 0, allocations_alone = 0, device_time = 0;
  std::int64_t syncs = 0, backward = 0, annotated = 0, scratch_storages = 0, overlapping_steps = 0;
  std::int64_t unnamed_backward = 0;
};

Drafts draft_operators(const Events& events, const Nesting& nesting, const Storages& storages);

}  // namespace swaplab::kineto
