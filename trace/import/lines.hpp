// Text formats that are read line by line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trace/import/input.hpp"

namespace swaplab {

// Lines without their end (LF or CRLF), each followed by at least 64 readable bytes; a byte order mark
// before the first is skipped.
class Lines {
 public:
  explicit Lines(const ImportInput& input);
  // False at the end of the file. Throws Error(input) for a line above 64 MiB.
  bool next(std::string_view& line);
  std::uint64_t number() const { return number_; }  // of the line last given, from 1
  // Throws Error(input): "FILE:LINE: what".
  [[noreturn]] void fail(const std::string& what) const { fail_at(number_, what); }
  [[noreturn]] void fail_at(std::uint64_t line, const std::string& what) const;

 private:
  std::unique_ptr<ByteSource> source_;
  std::string name_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t number_ = 0;
  bool at_end_ = false;
};

}  // namespace swaplab
