#include "gpu_validate/calibrate/nvbandwidth.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "gpu_validate/calibrate/table_builder.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kBuffer = std::int64_t{512} << 20;
constexpr const char* kWhat = "nvbandwidth output (512 MiB copies)";

// "" for tests that say nothing about a profile. Bidirectional tests time one direction, the one that they
// are named after, while the other is busy.
std::string quantity_of(std::string_view test) {
  if (test == "host_to_device_memcpy_ce") return "copy_h2d_pinned";
  if (test == "device_to_host_memcpy_ce") return "copy_d2h_pinned";
  if (test == "host_to_device_bidirectional_memcpy_ce") return "copy_h2d_duplex";
  if (test == "device_to_host_bidirectional_memcpy_ce") return "copy_d2h_duplex";
  if (test == "device_to_device_memcpy_write_ce") return "copy_p2p";
  if (test == "device_local_copy") return "copy_d2d";
  return "";
}

class Matrices {
 public:
  explicit Matrices(const std::string& file) : builder_(file) {}

  void begin(std::string_view test) {
    quantity_ = quantity_of(test);
    if (quantity_.empty() && ignored_.insert(std::string(test)).second) builder_.ignore(std::string(test));
  }
  bool wanted() const { return !quantity_.empty(); }
  // GPU(row) <- GPU(column), or the one row of a host.
  void cell(std::size_t line, std::size_t row, std::size_t column, const std::string& text) {
    const bool between = quantity_ == "copy_p2p";
    const std::optional<double> rate = number(text);
    if (text == "N/A" || (between && row == column && rate && *rate == 0)) return;  // a device to itself
    if (!rate) builder_.fail(line, "'" + text + "' is not a bandwidth");
    builder_.add_rate(
        line, between ? quantity_ + "_" + std::to_string(column) + "_" + std::to_string(row) : quantity_,
        kBuffer, *rate);
  }
  TableBuilder& builder() { return builder_; }

 private:
  TableBuilder builder_;
  std::string quantity_;
  std::set<std::string> ignored_;
};

std::size_t device_number(const TableBuilder& builder, std::size_t line, const std::string& word) {
  const std::optional<double> value = number(word);
  if (!value || *value < 0 || *value > 999 || *value != std::floor(*value))
    builder.fail(line, "'" + word + "' is not the number of a device");
  return static_cast<std::size_t>(*value);
}

}  // namespace

std::string_view nvbandwidth_test(std::string_view line) {
  if (!line.starts_with("Running ") || !line.ends_with(".")) return "";
  line = line.substr(8, line.size() - 9);
  constexpr std::string_view older = "benchmark ";
  if (line.starts_with(older)) line.remove_prefix(older.size());
  return line.find(' ') == std::string_view::npos ? line : "";
}

Measurements nvbandwidth_text(const std::vector<std::string>& lines, const std::string& file) {
  Matrices matrices(file);
  TableBuilder& builder = matrices.builder();
  std::vector<std::size_t> columns;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (const std::string_view test = nvbandwidth_test(lines[i]); !test.empty()) {
      matrices.begin(test);
      columns.clear();
      continue;
    }
    const std::vector<std::string> words = words_of(lines[i]);
    if (!matrices.wanted() || words.empty() || !number(words[0])) continue;
    if (columns.empty()) {  // head row: device numbers
      for (const std::string& word : words) columns.push_back(device_number(builder, i, word));
      continue;
    }
    if (words.size() != columns.size() + 1)
      builder.fail(i, "expected a row number and " + std::to_string(columns.size()) + " bandwidths");
    const std::size_t row = device_number(builder, i, words[0]);
    for (std::size_t c = 0; c < columns.size(); ++c) matrices.cell(i, row, columns[c], words[c + 1]);
  }
  return builder.finish(0, kWhat);
}

bool is_nvbandwidth_json(std::string_view text) {
  const std::size_t key = text.find('"');
  return key != std::string_view::npos && text.substr(key).starts_with("\"nvbandwidth\"");
}

Measurements nvbandwidth_json(std::string_view text, const std::string& file) {
  const auto fail = [&](const std::string& message) { throw Error(ErrorKind::input, file + ": " + message); };
  Json root;
  try {
    root = Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {
    fail("byte " + std::to_string(error.byte) + ": expected JSON of nvbandwidth -j");
  }
  const Json& top = root["nvbandwidth"];
  if (!top.is_object() || !top.contains("testcases") || !top.at("testcases").is_array())
    fail("/nvbandwidth: expected an object with a list of testcases, as nvbandwidth -j writes it");
  Matrices matrices(file);
  const Json& tests = top.at("testcases");
  for (std::size_t t = 0; t < tests.size(); ++t) {
    const std::string at = "/nvbandwidth/testcases/" + std::to_string(t);
    const Json& test = tests[t];
    if (!test.is_object() || !test.contains("name") || !test.at("name").is_string())
      fail(at + ": expected an object with a name");
    if (!test.contains("bandwidth_matrix")) continue;  // waived, or failed
    const std::string name = test.at("name").get<std::string>();
    // Of the test: rows may share a line.
    const std::size_t line = static_cast<std::size_t>(std::count(
        text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find("\"" + name + "\"")), '\n'));
    matrices.begin(name);
    if (!matrices.wanted()) continue;
    const Json& rows = test.at("bandwidth_matrix");
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (!rows.is_array() || !rows[r].is_array())
        fail(at + "/bandwidth_matrix: expected a list of rows, each a list of bandwidths");
      for (std::size_t c = 0; c < rows[r].size(); ++c) {
        const Json& value = rows[r][c];
        matrices.cell(line, r, c, value.is_string() ? value.get<std::string>() : value.dump());
      }
    }
  }
  return matrices.builder().finish(0, kWhat);
}

}  // namespace swaplab
