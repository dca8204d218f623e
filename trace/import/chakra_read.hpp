// Shared by the readers of Chakra's two forms.
#pragma once

#include "trace/import/chakra.hpp"

namespace swaplab::chakra {

inline constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;
inline constexpr std::int64_t kMaxDurationUs = std::int64_t{1} << 43;  // 101 days

// An attribute of the schema; those that an import does not need are ignored. `text` is UTF-8.
void take_attribute(Graph& graph, Node& node, std::string_view name, std::int64_t number,
                    std::string_view text);

// Sorts by id. Throws Error(input) when an id occurs twice.
void order_nodes(Graph& graph, const std::string& name);

}  // namespace swaplab::chakra
