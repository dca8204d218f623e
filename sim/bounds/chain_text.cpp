// The bound's reasons as text.
#include <string>
#include <string_view>

#include "sim/bounds/swap_path.hpp"
#include "trace/human.hpp"

namespace swaplab {
namespace {

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
                    exact_bytes(bound.smallest_budget) + " on the device");
    return lines;
  }
  for (const ChainLink& link : bound.chain) {
    std::string what = "compute";
    if (link.kind == ChainKind::shared) {
      what = exact_bytes(link.bytes) + " out and " + exact_bytes(link.beside) +
             " in, slowing each other down where they meet,";
    } else if (link.kind == ChainKind::slowed_by_out || link.kind == ChainKind::slowed_by_in) {
      what = "compute, slowed down by " + exact_bytes(link.bytes) +
             (link.kind == ChainKind::slowed_by_out ? " out," : " in,");
    } else if (link.kind == ChainKind::host) {
      what = "the host issues what lies";
    } else if (link.kind != ChainKind::compute) {
      what = exact_bytes(link.bytes) + " " + std::string(chain_kind_name(link.kind));
    }
    lines.push_back(what + " between " + point_text(program, link.from, link.from_end) + " and " +
                    point_text(program, link.to, link.to_end) + ": >= " + exact_time(link.time));
  }
  return lines;
}

}  // namespace swaplab
