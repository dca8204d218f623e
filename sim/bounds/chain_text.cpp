// The bound's reasons as text. Integer arithmetic only, so that the text is the same everywhere.
#include <string>
#include <string_view>

#include "sim/bounds/swap_path.hpp"

namespace swaplab {
namespace {

// value / unit with one decimal, cut off (never more than is proven).
std::string scaled(std::int64_t value, std::int64_t unit, std::string_view name) {
  const std::int64_t tenths = value / (unit / 10) % 10;
  return std::to_string(value / unit) + "." + std::to_string(tenths) + " " + std::string(name);
}

std::string bytes_text(Bytes bytes) {
  const std::int64_t v = bytes.value;
  if (v >= 1'000'000'000) return scaled(v, 1'000'000'000, "GB");
  if (v >= 1'000'000) return scaled(v, 1'000'000, "MB");
  if (v >= 1'000) return scaled(v, 1'000, "kB");
  return std::to_string(v) + " B";
}

std::string time_text(Nanos time) {
  const std::int64_t v = time.value;
  if (v >= 1'000'000'000) return scaled(v, 1'000'000'000, "s");
  if (v >= 1'000'000) return scaled(v, 1'000'000, "ms");
  if (v >= 1'000) return scaled(v, 1'000, "us");
  return std::to_string(v) + " ns";
}

std::string point_text(const Program& program, std::uint32_t op, bool end) {
  if (op == kNever) return "the run's beginning";
  std::string text = (end ? "the end of operator " : "operator ") + std::to_string(op);
  const NameId name = program.name[op];
  if (index(name) < program.names.size() && !program.names[name].empty()) {
    text += " (" + std::string(program.names[name]) + ")";
  }
  return text;
}

}  // namespace

std::vector<std::string> chain_lines(const Program& program, const SwapBound& bound) {
  std::vector<std::string> lines;
  if (!bound.feasible) {
    lines.push_back("infeasible: " + point_text(program, bound.smallest_budget_op, false) + " alone needs " +
                    bytes_text(bound.smallest_budget) + " on the device");
    return lines;
  }
  for (const ChainLink& link : bound.chain) {
    std::string what = "compute";
    if (link.kind == ChainKind::shared) {
      what = bytes_text(link.bytes) + " out and " + bytes_text(link.beside) +
             " in, slowing each other down where they meet,";
    } else if (link.kind == ChainKind::host) {
      what = "the host issues what lies";
    } else if (link.kind != ChainKind::compute) {
      what = bytes_text(link.bytes) + " " + std::string(chain_kind_name(link.kind));
    }
    lines.push_back(what + " between " + point_text(program, link.from, link.from_end) + " and " +
                    point_text(program, link.to, link.to_end) + ": >= " + time_text(link.time));
  }
  return lines;
}

}  // namespace swaplab
