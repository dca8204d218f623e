// What an import of a profile found and derived, and which studies that allows.
#pragma once

#include "trace/import/kineto_drafts.hpp"
#include "trace/import/report.hpp"

namespace swaplab::kineto {

struct EmissionCounts {
  std::int64_t iterations = 0, tensor_inputs = 0, matched_inputs = 0, writes = 0, several_streams = 0;
};

// All that an import made on the way.
struct ImportSteps {
  const Events& events;
  const Nesting& nesting;
  const Storages& storages;
  const Drafts& drafts;
  const EmissionCounts& counts;
};

// What the events are, counted.
void report_events(const Events& events, ImportReport& report);
// The operators, storages and reads; the studies.
void report_operators(const ImportSteps& steps, ImportReport& report);

}  // namespace swaplab::kineto
