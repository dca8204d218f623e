// From the events of a profile to operators, storages and iterations.
#pragma once

#include "trace/import/importer.hpp"
#include "trace/import/kineto_events.hpp"

namespace swaplab::kineto {

ImportResult import_events(const Events& events);

}  // namespace swaplab::kineto
