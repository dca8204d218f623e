// Reader of JSON lines schema v1 (private to trace/; use trace/io.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trace/io.hpp"

namespace swaplab {

// Fed whole lines in order; every complaint is Error(input) "<name>:<line>: …".
class JsonlReader {
 public:
  JsonlReader(std::string name, ReadReport& report);
  ~JsonlReader();
  // `text` holds whole lines and is followed by at least 64 readable bytes.
  void lines(std::string_view text);
  Trace finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace swaplab
