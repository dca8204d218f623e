#include "gpu_validate/calibrate/table_builder.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "gpu_validate/calibrate/plausible.hpp"
#include "trace/error.hpp"

namespace swaplab {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string trimmed(std::string_view text) {
  const std::size_t from = text.find_first_not_of(" \t*");
  if (from == std::string_view::npos) return "";
  return std::string(text.substr(from, text.find_last_not_of(" \t*") - from + 1));
}

std::vector<std::string> split(std::string_view line, char separator) {
  std::vector<std::string> cells;
  std::size_t from = 0;
  while (from <= line.size()) {
    const std::size_t to = std::min(line.find(separator, from), line.size());
    cells.push_back(trimmed(line.substr(from, to - from)));
    from = to + 1;
  }
  return cells;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

TableBuilder::TableBuilder(std::string file) {
  measurements_.file = std::move(file);
}

void TableBuilder::fail(std::size_t line, const std::string& message) const {
  throw Error(ErrorKind::input, file() + ":" + std::to_string(line + 1) + ": " + message);
}

double TableBuilder::require(std::size_t line, const std::string& text, const char* what) const {
  const std::optional<double> value = number(text);
  if (!value || *value <= 0 || *value > 1e15)
    fail(line, "'" + text + "' is not " + std::string(what) + " above 0");
  return *value;
}

void TableBuilder::add(std::size_t line, const std::string& quantity, std::int64_t bytes, Nanos time) {
  for (MeasuredSeries& one : measurements_.series) {
    if (one.quantity != quantity || one.x != bytes) continue;
    one.samples.push_back(time);
    return;
  }
  measurements_.series.push_back({quantity, bytes, XUnit::bytes, {time}, line + 1});
}

void TableBuilder::add_rate(std::size_t line, const std::string& quantity, std::int64_t bytes,
                            double gigabytes_per_s) {
  const std::int64_t most = quantity == "copy_d2d" ? kFastestMemory : kFastestLink;
  if (!(gigabytes_per_s > 0) || gigabytes_per_s > static_cast<double>(most)) {
    std::ostringstream found;
    found << gigabytes_per_s;
    fail(line, "a bandwidth must lie above 0 and not above " + std::to_string(most) + " GB/s, found " +
                   found.str());
  }
  add(line, quantity, bytes,
      Nanos{std::max<std::int64_t>(1, std::llround(static_cast<double>(bytes) / gigabytes_per_s))});
}

Measurements TableBuilder::finish(std::size_t line, const std::string& what) {
  if (measurements_.series.empty()) fail(line, "this table holds no figure that can be used");
  const std::string name = file().substr(file().find_last_of('/') + 1);
  measurements_.device.name = what;
  measurements_.published = what + ", published in " + name;
  return std::move(measurements_);
}

}  // namespace swaplab
