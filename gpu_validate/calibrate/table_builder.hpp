// What the readers of published tables share: text in pieces, numbers, and series made from rates. Private to
// this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_validate/calibrate/measurements.hpp"

namespace swaplab {

std::vector<std::string> lines_of(std::string_view text);
std::string trimmed(std::string_view text);  // of spaces, tabs and Markdown's asterisks
std::vector<std::string> split(std::string_view line, char separator);
std::vector<std::string> words_of(const std::string& line);
std::optional<double> number(std::string_view text);  // nothing for infinities and NaN, too

class TableBuilder {
 public:
  explicit TableBuilder(std::string file);
  const std::string& file() const { return measurements_.file; }

  // Throws Error(input) naming file and line; lines count from 0 here.
  [[noreturn]] void fail(std::size_t line, const std::string& message) const;
  double require(std::size_t line, const std::string& text, const char* what) const;
  // One sample.
  void add(std::size_t line, const std::string& quantity, std::int64_t bytes, Nanos time);
  // The same from GB/s, which must lie above 0 and not above 10,000, or 100,000 within a device.
  void add_rate(std::size_t line, const std::string& quantity, std::int64_t bytes, double gigabytes_per_s);
  void ignore(const std::string& name) { measurements_.ignored.push_back(name); }
  Measurements finish(std::size_t line, const std::string& what);

 private:
  Measurements measurements_;
};

}  // namespace swaplab
