#include "trace/import/g10_tables.hpp"

#include <algorithm>
#include <string>

#include "trace/import/decimal.hpp"
#include "trace/import/lines.hpp"

namespace swaplab::g10 {
namespace {

constexpr std::int64_t kMaxTime = std::int64_t{1} << 53;  // ns

// Number, value and unit of a row; false when the line is none.
bool split(std::string_view line, std::string_view (&words)[3]) {
  for (std::string_view& word : words) {
    const auto first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos) return false;
    line.remove_prefix(first);
    const auto end = std::min(line.find_first_of(" \t"), line.size());
    word = line.substr(0, end);
    line.remove_prefix(end);
  }
  return line.find_first_not_of(" \t\r") == std::string_view::npos && unsigned_integer(words[0]).has_value();
}

}  // namespace

bool looks_like_table(std::string_view head) {
  std::string_view line = head.substr(0, head.find('\n')), words[3];
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return split(line, words) && unsigned_integer(words[0]) == 0u && (words[2] == "ms" || words[2] == "B") &&
         scaled_decimal(words[1], 6).has_value();
}

Table read_table(const ImportInput& input) {
  Table table;
  Lines lines(input);
  std::string_view line, words[3];
  while (lines.next(line)) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (!split(line, words)) lines.fail("expected 'NUMBER VALUE ms' or 'NUMBER VALUE B'");
    if (unsigned_integer(words[0]) != table.value.size())
      lines.fail("expected the row of kernel " + std::to_string(table.value.size()) + ", found '" +
                 std::string(words[0].substr(0, 40)) + "'");
    if (table.value.empty()) table.bytes = words[2] == "B";
    if (words[2] != (table.bytes ? "B" : "ms"))
      lines.fail(std::string("expected the unit ") + (table.bytes ? "B" : "ms") + " as in the first row");
    bool cut = false;
    const auto value = scaled_decimal(words[1], table.bytes ? 0 : 6, &cut);
    if (!value || *value < 0 || *value > (table.bytes ? kMaxBytes : kMaxTime))
      lines.fail("expected a value that is not negative, found '" + std::string(words[1].substr(0, 40)) +
                 "'");
    if (table.sum > (std::int64_t{1} << 62) - *value) lines.fail("the sum exceeds 2^62");
    table.sum += *value;
    table.cut += cut ? 1 : 0;
    table.value.push_back(*value);
  }
  return table;
}

bool parse_tensor(std::string_view line, Tensor& tensor) {
  static constexpr std::string_view start = "tensor",
                                    weight = " Is weight (global)?: ", size = ", Size in byte: ";
  const auto at_weight = line.find(weight), at_size = line.find(size), range = line.find(", Range:");
  if (line.substr(0, start.size()) != start || at_weight == std::string_view::npos ||
      at_size == std::string_view::npos || at_size < at_weight || range == std::string_view::npos ||
      range < at_size)
    return false;
  const auto id = unsigned_integer(line.substr(start.size(), at_weight - start.size()));
  const auto from = at_size + size.size();
  const auto bytes = unsigned_integer(line.substr(from, range - from));
  // The range repeats the size, so that a line cut short does not pass for a smaller tensor.
  std::string_view ends = line.substr(range + 8);
  if (!ends.empty() && ends.back() == '\r') ends.remove_suffix(1);
  const auto dash = std::min(ends.find("--"), ends.size());
  const auto begin = unsigned_integer(ends.substr(0, dash)),
             end = unsigned_integer(ends.substr(std::min(dash + 2, ends.size())));
  const std::string_view flag = line.substr(at_weight + weight.size(), 1);
  if (!id || !bytes || !begin || !end || *end - *begin != *bytes ||
      *bytes > static_cast<std::uint64_t>(kMaxBytes) || (flag != "0" && flag != "1"))
    return false;
  tensor = {*id, static_cast<std::int64_t>(*bytes), flag == "1"};
  return true;
}

std::vector<Tensor> read_tensors(const ImportInput& input) {
  std::vector<Tensor> tensors;
  Lines lines(input);
  std::string_view line;
  while (lines.next(line)) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    Tensor tensor{};
    if (!parse_tensor(line, tensor))
      lines.fail(
          "expected 'tensorN Is weight (global)?: 0, Size in byte: B, Range:A--Z' with B = Z - A of at most "
          "2^50");
    if (!tensors.empty() && tensor.id <= tensors.back().id)
      lines.fail("expected a tensor after tensor" + std::to_string(tensors.back().id) + ", found tensor" +
                 std::to_string(tensor.id));
    tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace swaplab::g10
