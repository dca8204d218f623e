// Words of reports: counts with their noun, shares, and clauses that several importers say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace swaplab {

// "1 node", "2 nodes": the noun takes an s.
std::string counted(std::int64_t count, std::string_view noun);
// "97.9 %", cut, so that only the whole is 100 %; `whole` must be above 0.
std::string share_of(std::int64_t part, std::int64_t whole);

// For the reason of a full study whose trace has no backward pass, which is what swapping serves.
inline constexpr std::string_view kForwardOnly =
    "; forward only: no backward pass asks for what has left to come back";

}  // namespace swaplab
