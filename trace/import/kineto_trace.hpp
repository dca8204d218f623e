// From the events of a profile to operators, storages and iterations.
#pragma once

#include "trace/import/importer.hpp"
#include "trace/import/kineto_events.hpp"

namespace swaplab::kineto {

ImportResult import_events(const Events& events);

// What the events are, counted, into the report (shared with the linked execution trace).
void report_events(const Events& events, ImportReport& report);

}  // namespace swaplab::kineto
