// Independent pieces of work on threads.
#pragma once

#include <cstddef>
#include <functional>

namespace swaplab {

// Calls work(0) ... work(count - 1), each once, on up to `jobs` threads. The first exception ends the rest
// and is thrown here.
void for_each_parallel(unsigned jobs, std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace swaplab
