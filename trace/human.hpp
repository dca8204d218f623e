// Amounts for people: the one place where bytes and times become text with a unit.
#pragma once

#include <string>

#include "trace/units.hpp"

namespace swaplab {

std::string human_bytes(Bytes bytes);  // "11.20 GiB"; exact bytes below 1 KiB
std::string human_time(Nanos time);    // "412.80 ms"; exact nanoseconds below 1 us

// The exact amount with the readable one behind it, where they differ: "1572864 B (1.50 MiB)", "512 B".
std::string exact_bytes(Bytes bytes);
std::string exact_time(Nanos time);  // "412800123 ns (412.80 ms)"

}  // namespace swaplab
