#include "sim/bounds/steady_bound.hpp"

#include <algorithm>

#include "trace/error.hpp"

namespace swaplab {

RunBounds::RunBounds(const Program& program, SwapRates rates, SwapPathOptions options) {
  if (program.op_count() == 0) throw Error(ErrorKind::usage, "bound: the program has no operators");
  const auto table = std::make_shared<const SwapGapTable>(program);
  for (const ProgramIteration& it : program.iterations) {
    auto& window = iterations_.emplace_back();
    if (it.first_op < it.end_op) window.emplace(program, table, it.first_op, it.end_op, rates, options);
  }
  std::uint32_t first = 0, end = program.op_count();
  if (!program.iterations.empty() && program.steady_first < program.steady_end) {
    first = program.iterations[program.steady_first].first_op;
    end = program.iterations[program.steady_end - 1].end_op;
    steady_count_ = program.steady_end - program.steady_first;
  } else {
    steady_count_ = 1;  // not divided into iterations: the run counts as one
  }
  steady_.emplace(program, table, first, end, rates, options);
}

RunBound RunBounds::at(Bytes budget) const {
  RunBound result;
  result.steady = steady_->at(budget);
  result.steady_count = steady_count_;
  result.iterations.reserve(iterations_.size());
  for (const auto& window : iterations_) {
    result.iterations.push_back(window ? window->at(budget).total : Nanos{0});
  }
  return result;
}

std::string RunBounds::refusal() const {
  if (!steady_->blind()) return {};
  return "the compute streams do not meet: no kernel of the longest chain in the steady iterations waits for "
         "all "
         "kernels before them";
}

Bytes RunBounds::required_peak() const {
  return steady_->required_peak();
}

std::optional<SwapBound> lap_bound(const Program& program, const std::shared_ptr<const SwapGapTable>& table,
                                   std::uint32_t iteration, Bytes budget, SwapRates rates,
                                   SwapPathOptions options) {
  if (iteration + 1 >= program.iterations.size()) return std::nullopt;
  const ProgramIteration &lap = program.iterations[iteration], &next = program.iterations[iteration + 1];
  const std::uint32_t length = lap.end_op - lap.first_op;
  if (length == 0 || next.end_op - next.first_op != length) return std::nullopt;

  std::vector<std::uint32_t> starts{lap.first_op};
  const SwapBound two_laps =
      SwapPathBound(program, table, lap.first_op, next.end_op, rates, options).at(budget);
  for (const ChainLink& link : two_laps.chain) {
    for (const auto& [op, at_end] : {std::pair{link.from, link.from_end}, std::pair{link.to, link.to_end}}) {
      const std::uint32_t start = op + (at_end ? 1 : 0);  // kNever + 1 is 0
      if (start >= lap.first_op && start <= next.first_op + length) {
        starts.push_back(lap.first_op + (start - lap.first_op) % length);
      }
    }
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  std::optional<SwapBound> best;
  for (const std::uint32_t start : starts) {
    SwapBound bound = SwapPathBound(program, table, start, start + length, rates, options).at(budget);
    if (!best || bound.total > best->total) best = std::move(bound);
  }
  return best;
}

}  // namespace swaplab
