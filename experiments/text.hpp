// Tables.
#pragma once

#include <string>
#include <vector>

#include "trace/human.hpp"

namespace swaplab {

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
