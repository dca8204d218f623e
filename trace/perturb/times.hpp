// Changes of an iteration's kernel times.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trace/perturb/edit.hpp"

namespace swaplab {

// One change of `kind`: the time of every timed kernel (views have none) of the iteration grows by
// `change_ppm()`, asked once per kernel in their order. Rounded towards zero, so that a small kernel is not
// pushed below nothing. Throws Error(usage) when the iteration has no device times.
void change_kernel_times(EditableTrace& edit, std::size_t iteration, const std::string& kind,
                         const std::function<std::int64_t()>& change_ppm);

}  // namespace swaplab
