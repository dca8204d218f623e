// Reader of JSON lines schema v1 (private to trace/; use trace/io.hpp).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "trace/io.hpp"

namespace swaplab {

class ByteSource;

// A longer line is refused: the largest real ones (a 'saved' list of a big model) stay below 1 MiB.
constexpr std::size_t kMaxJsonlLine = std::size_t{64} << 20;
// Readable bytes that must follow a line's text.
constexpr std::size_t kJsonlPadding = 64;

// Fed lines in order; every complaint is Error(input) "<name>:<line>: ...".
class JsonlReader {
 public:
  JsonlReader(std::string name, ReadReport& report);
  ~JsonlReader();
  JsonlReader(const JsonlReader&) = delete;
  JsonlReader& operator=(const JsonlReader&) = delete;
  // One line without its newline, followed by at least kJsonlPadding readable bytes.
  void line(std::string_view json);
  [[noreturn]] void refuse_next_line(const std::string& why);
  Trace finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Trace read_jsonl(ByteSource& source, const std::string& path, ReadReport& report,
                 const std::function<void(std::uint64_t)>& progress);

}  // namespace swaplab
