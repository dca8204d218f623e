#include "gpu_validate/calibrate/published_tables.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "gpu_validate/calibrate/nvbandwidth.hpp"
#include "gpu_validate/calibrate/table_builder.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

class Tables : TableBuilder {
 public:
  Tables(std::string_view text, std::string file) : TableBuilder(std::move(file)), lines_(lines_of(text)) {}

  Measurements read() {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const std::string& line = lines_[i];
      if (!nvbandwidth_test(line).empty()) return nvbandwidth_text(lines_, file());
      if (line.starts_with("bandwidthTest-")) return bandwidth_test_csv();
      if (line.find("Transfer Size (Bytes)") != std::string::npos) return bandwidth_test_text();
      if (line.starts_with("size(B),") && line.find("busbw(GB/s)") != std::string::npos) return all_reduce(i);
      if (is_markdown_head(line)) return markdown(i);
    }
    throw Error(ErrorKind::input,
                file() +
                    ": neither a measurement file nor a published table that is known (nvbandwidth, "
                    "bandwidthTest, a Markdown table of Size, H2D and D2H, or an all-reduce CSV)");
  }

 private:
  // bandwidthTest-H2D-Pinned, Bandwidth = 0.4 GB/s, Time = 0.00000 s, Size = 1000 bytes, NumDevsUsed = 1
  Measurements bandwidth_test_csv() {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (!lines_[i].starts_with("bandwidthTest-")) continue;
      const std::vector<std::string> cells = split(lines_[i], ',');
      const std::string quantity = copy_quantity(cells[0]);
      if (quantity.empty()) continue;
      double rate = 0, bytes = 0;
      for (const std::string& cell : cells) {
        const std::vector<std::string> words = words_of(cell);
        if (words.size() != 4 || words[1] != "=") continue;
        if (words[0] == "Bandwidth") rate = require(i, words[2], "a bandwidth") * unit_of(i, words[3]);
        if (words[0] == "Size") bytes = require(i, words[2], "a size");
      }
      if (rate == 0 || bytes == 0) fail(i, "expected 'Bandwidth = ... GB/s' and 'Size = ... bytes'");
      add_rate(i, quantity, static_cast<std::int64_t>(bytes), rate);
    }
    return finish(0, "bandwidthTest of the CUDA samples");
  }

  double unit_of(std::size_t line, const std::string& unit) const {
    if (unit == "GB/s") return 1;
    if (unit == "MB/s") return 1e-3;
    fail(line, "'" + unit + "' is not GB/s or MB/s");
  }

  static std::string copy_quantity(const std::string& title) {
    const auto has = [&](const char* word) { return title.find(word) != std::string::npos; };
    const bool pageable = has("Paged") || has("PAGEABLE");
    if (has("H2D") || has("Host to Device")) return pageable ? "copy_h2d_pageable" : "copy_h2d_pinned";
    if (has("D2H") || has("Device to Host")) return pageable ? "copy_d2h_pageable" : "copy_d2h_pinned";
    if (has("D2D") || has("Device to Device")) return "copy_d2d";
    return "";
  }

  Measurements bandwidth_test_text() {
    std::string title, quantity;
    double unit = 0;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const std::string& line = lines_[i];
      if (line.find("Bandwidth,") != std::string::npos) {
        title = line;
        quantity = copy_quantity(title);
        unit = 0;
      } else if (line.find("Memory Transfers") != std::string::npos) {
        quantity = copy_quantity(title + line);
      } else if (line.find("Transfer Size (Bytes)") != std::string::npos) {
        const std::size_t open = line.rfind('(');
        unit = unit_of(i, line.substr(open + 1, line.find(')', open) - open - 1));
      } else if (unit > 0 && !quantity.empty()) {
        const std::vector<std::string> words = words_of(line);
        if (words.size() != 2 || !number(words[0])) continue;
        add_rate(i, quantity, static_cast<std::int64_t>(require(i, words[0], "a size")),
                 unit * require(i, words[1], "a bandwidth"));
      }
    }
    return finish(0, "bandwidthTest of the CUDA samples");
  }

  static bool is_markdown_head(const std::string& line) {
    const std::vector<std::string> cells = split(line, '|');
    return line.starts_with("|") && cells.size() > 3 && (cells[1] == "Size" || cells[1] == "size");
  }

  // "10 KB", "1 MiB"; of a range (">= 10-13 MB") the upper end: from there on the rate holds.
  std::int64_t size_of(std::size_t line, const std::string& text) const {
    const std::size_t digits = text.find_last_of("0123456789");
    if (digits == std::string::npos) fail(line, "'" + text + "' is not a size");
    std::size_t from = digits;
    while (from > 0 &&
           (std::isdigit(static_cast<unsigned char>(text[from - 1])) != 0 || text[from - 1] == '.'))
      --from;
    const std::string unit = trimmed(text.substr(digits + 1));
    const std::pair<const char*, double> units[] = {{"B", 1},           {"KB", 1e3},          {"kB", 1e3},
                                                    {"MB", 1e6},        {"GB", 1e9},          {"KiB", 1024.0},
                                                    {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
    for (const auto& [name, factor] : units)
      if (unit == name)
        return std::llround(require(line, text.substr(from, digits + 1 - from), "a size") * factor);
    fail(line, "'" + text + "' has no unit that is known (B, kB, MB, GB, KiB, MiB, GiB)");
  }

  Measurements markdown(std::size_t head) {
    const std::vector<std::string> sizes = split(lines_[head], '|');
    std::string title;
    for (std::size_t i = head; i > 0 && title.empty(); --i) title = trimmed(lines_[i - 1]);
    for (std::size_t i = head + 1; i < lines_.size() && lines_[i].starts_with("|"); ++i) {
      const std::vector<std::string> cells = split(lines_[i], '|');
      const std::string quantity = cells[1] == "H2D"   ? "copy_h2d_pinned"
                                   : cells[1] == "D2H" ? "copy_d2h_pinned"
                                                       : "";
      if (quantity.empty()) continue;
      if (cells.size() != sizes.size())
        fail(i, "has " + std::to_string(cells.size()) + " cells, its head " + std::to_string(sizes.size()));
      for (std::size_t c = 2; c < cells.size(); ++c) {
        if (cells[c].empty() || cells[c] == "-" || cells[c] == "\u2013" || cells[c] == "\u2014") continue;
        add_rate(i, quantity, size_of(head, sizes[c]), require(i, cells[c], "a bandwidth"));
      }
    }
    while (!title.empty() && title.back() == ':') title.pop_back();
    return finish(head, title.empty() ? "Markdown table of bandwidths" : title);
  }

  // The number of devices is in the figures: busbw = size / time * 2 (n - 1) / n.
  Measurements all_reduce(std::size_t head) {
    const std::vector<std::string> names = split(lines_[head], ',');
    std::vector<std::size_t> times;
    std::size_t rate = names.size();
    for (std::size_t c = 0; c < names.size(); ++c) {
      if (names[c] == "time(ns)") times.push_back(c);
      if (names[c] == "busbw(GB/s)" && rate == names.size()) rate = c;
    }
    if (times.empty() || rate == names.size()) fail(head, "expected the columns time(ns) and busbw(GB/s)");
    std::string quantity;
    for (std::size_t i = head + 1; i < lines_.size(); ++i) {
      if (trimmed(lines_[i]).empty()) continue;
      const std::vector<std::string> cells = split(lines_[i], ',');
      if (cells.size() != names.size())
        fail(i, "has " + std::to_string(cells.size()) + " cells, its head " + std::to_string(names.size()));
      const double bytes = require(i, cells[0], "a size");
      if (quantity.empty()) {
        const double factor =
            require(i, cells[rate], "a bandwidth") * require(i, cells[times[0]], "a time") / bytes;
        const double devices = 2 / (2 - factor);
        if (!(devices > 1.5 && devices < 1e4)) fail(i, "its bus bandwidth is none of an all-reduce");
        quantity = "allreduce_" + std::to_string(std::llround(devices));
      }
      for (const std::size_t c : times)
        add(i, quantity, static_cast<std::int64_t>(bytes),
            Nanos{std::llround(require(i, cells[c], "a time"))});
    }
    return finish(head, "all-reduce table");
  }

  std::vector<std::string> lines_;
};

}  // namespace

Measurements parse_published_table(std::string_view text, const std::string& file) {
  return Tables(text, file).read();
}

Measurements read_calibration_data(const std::string& path) {
  const std::string text = read_input_text(path);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{')
    return is_nvbandwidth_json(text) ? nvbandwidth_json(text, path) : parse_measurements(text, path);
  return parse_published_table(text, path);
}

}  // namespace swaplab
