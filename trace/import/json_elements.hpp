// The elements of one large array in a JSON file, one at a time, in bounded memory.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/byte_source.hpp"

namespace swaplab {

// The text is one JSON value without surrounding space, followed by kJsonPadding readable bytes; it is
// valid until the call returns. `offset` is its first byte in the decompressed file. Only brackets and
// quotes have been matched: whoever parses the text finds what else is wrong (see json_error).
inline constexpr std::size_t kJsonPadding = 64;
inline constexpr std::size_t kMaxJsonElement = std::size_t{64} << 20;  // bytes
struct JsonVisitor {
  // One element of the array: of the root array, or of the root object's member `key`.
  std::function<void(std::string_view key, std::string_view text, std::uint64_t offset)> element;
  // Any other member of the root object. Of values beyond 1 MiB only the first byte is given.
  std::function<void(std::string_view key, std::string_view text)> member;
};

// Reads the whole file. `arrays` names the members whose elements are wanted; a root array counts as
// one called "". Throws Error(input) naming file, byte and what was expected.
void read_json_elements(ByteSource& source, const std::string& name, std::span<const std::string_view> arrays,
                        const JsonVisitor& visitor);

// "" when `text` is one valid JSON value, else "byte N: expected ..., found ..." for its first fault,
// where N = offset + position. No recursion: any depth.
std::string json_error(std::string_view text, std::uint64_t offset);

// What repair_json changed.
struct JsonRepairs {
  std::int64_t non_finite = 0;          // bare inf, nan, ... became null
  std::int64_t control_characters = 0;  // raw inside a string, now escaped
  std::int64_t backslashes = 0;  // strings with an impossible escape, whose backslashes are now literal
  std::int64_t utf8 = 0;         // bytes that are not UTF-8 became U+FFFD
};
// The text with its unambiguous faults mended, padded by kJsonPadding; "" when faults remain.
std::string repair_json(std::string_view text, JsonRepairs& repairs);

}  // namespace swaplab
