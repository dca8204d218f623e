// Tables and human-readable quantities, always with a unit.
#pragma once

#include <string>
#include <vector>

#include "trace/units.hpp"

namespace swaplab {

std::string human_bytes(Bytes bytes);  // "11.20 GiB"; exact bytes below 1 KiB
std::string human_time(Nanos time);    // "412.8 ms"

// Left-aligned first columns, right-aligned others; two spaces between.
class TextTable {
 public:
  TextTable(std::vector<std::string> header, std::size_t left_columns)
      : rows_{std::move(header)}, left_columns_(left_columns) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::size_t left_columns_;
};

}  // namespace swaplab
