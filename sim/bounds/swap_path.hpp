// The proven swap-only bound: a longest path over bytes that every schedule must move.
//
// Model, with one compute stream and a host that is always ahead: operators in program order, each needs what
// it accesses on the device while it runs; bytes leave and return over two links; nothing is recomputed; at
// any time the device holds at most the budget M. A gap is the time between two consecutive accesses a < c of
// a storage, its version the content written last, by w <= a. Points are the starts S_k of operators and the
// instants E_k- before their ends; a gap is open at the points strictly between E_a- and S_c. W_k: bytes of
// the storages that must exist during operator k; r_k = max(0, W_k - M); D: compute time between two points.
//
//   Y(p,q) = bytes of gaps open at q whose version was complete by p (w ended before p)
//   X(p,q) = bytes of gaps open at p that are still open at q
//   t(q) - t(p) >= max{ D(p,q), (r_q - Y(p,q)) / B_out, (r_p - X(p,q)) / B_in }      for all p < q
//
// Why: at q at least r_q bytes that must exist are not on the device. Each belongs to a gap open at q
// and has a valid copy on the host, made after w ended; those whose version was not complete at p
// crossed the link out in (t_p, t_q], the others are at most Y. At p at least r_p bytes are away; those
// whose gap closes by q came back before S_c <= t_q, the others are at most X. Add along any path.
//
// Where copies of both directions slow each other down, they run at any time at shares o and i of their full
// rates with i + k o <= 1 (k: path_search.cpp; the same with o and i changed over). Let p < q, and O(p,q) the
// bytes that must go out between them. Then for any path from p to q
//
//   t(q) - t(p) >= k O(p,q) / B_out + sum over the path's edges of (1 if in, 1 - k if compute or out) x its
//   time
//
// Why: during an edge in, i counts in full and k o beside it, at most 1 together. During any other edge its
// own progress, at most 1, counts 1 - k times, and k o <= k beside it. The edges do not overlap; integrate.
// Such a shared edge sees bytes that may go out early, beside those that come in, but not for free.
//
// The window is finite and unrolled, every gap is known exactly, and nothing is assumed to repeat:
// - It begins when all operators before it have ended (point E- of the last one, what that operator wrote has
// no
//   copy on the host yet) and ends when its last operator ends. Hence bounds of disjoint windows may be
//   added, though one window over all of them is never lower by more than sampling.
// - Any other content may have copies on the host at the beginning. At the run's beginning initial
//   storages may lie on either side or on both, at no cost, as long as the device holds at most M.
// - Gaps that reach over an edge of the window count as open up to that edge.
// - Sampling operators deletes points, an edge span deletes edges: both only lower the bound.
// Several streams, the host that launches the kernels, kernels slowed down by copies: README.md.
//
// Everything is integer and rounds down, so the result is never above any swap-only schedule on a
// machine whose operators take at least device_time and whose links never exceed the given rates.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/bounds/path_search.hpp"
#include "sim/bounds/swap_gaps.hpp"
#include "sim/machine.hpp"
#include "sim/program.hpp"

namespace swaplab {

SwapRates best_rates(const Machine& machine);

struct SwapPathOptions {
  // Operators that stand for an iteration, chosen by weight; 0: all. Doubling it keeps the old ones.
  std::uint32_t samples_per_iteration = 1600;
  // Longest edge in operators; 0: five quarters of the window's longest iteration.
  std::uint32_t edge_span = 0;
};

std::string_view chain_kind_name(ChainKind kind);

// One reason: the time from `from` to `to` is at least `time`.
struct ChainLink {
  std::uint32_t from, to;  // operators; kNever: the run's beginning
  bool from_end, to_end;   // just before the operator's end, else at its start
  ChainKind kind;
  Bytes bytes;   // that must cross the link; 0 for compute
  Bytes beside;  // shared: bytes in, `bytes` being those out
  Nanos time;
};

struct SwapBound {
  Bytes budget;
  bool feasible = false;                 // false iff one operator of the program needs more than the budget
  Bytes smallest_budget;                 // the largest working set of one operator ...
  std::uint32_t smallest_budget_op = 0;  // ... and that operator
  Nanos total;                           // no schedule is faster; `compute` when infeasible
  Nanos compute;                         // the window's longest chain of operators alone
  std::vector<ChainLink> chain;          // from the window's beginning to its end; times add up to `total`
};

// The bound of one window [first_op, end_op) for any number of budgets.
class SwapPathBound {
 public:
  // Throws Error(usage) on a rate < 1 or an empty or reversed window, Error(input) as SwapGapTable.
  SwapPathBound(const Program& program, std::uint32_t first_op, std::uint32_t end_op, SwapRates rates,
                SwapPathOptions options = {});
  // The same with a table of the same program made before, which windows then share.
  SwapPathBound(const Program& program, std::shared_ptr<const SwapGapTable> table, std::uint32_t first_op,
                std::uint32_t end_op, SwapRates rates, SwapPathOptions options = {});

  // O(points x points within the edge span). Throws Error(usage) for a negative budget.
  SwapBound at(Bytes budget) const;

  // Largest sum of bytes that must exist at one operator of the window: at this budget the bound is
  // `compute`.
  Bytes required_peak() const { return required_peak_; }
  std::size_t point_count() const { return points_.size(); }
  // Kernels run in the window, but none of the spine's is certain to do so: nothing is proven but 0.
  bool blind() const { return blind_; }

 private:
  void choose_points(const Program& program, std::span<const std::uint32_t> kernels,
                     const std::vector<SwapGap>& gaps, SwapPathOptions options);
  void choose_ranges(const std::vector<SwapGap>& gaps);
  void follow_host(const Program& program);

  std::shared_ptr<const SwapGapTable> table_;
  SwapRates rates_;
  std::int32_t edge_span_ = 0;
  bool blind_ = false;
  Bytes required_peak_;
  std::vector<PathPoint> points_;
  std::vector<PathRange> ranges_;      // ascending by begin
  std::vector<std::uint32_t> by_end_;  // rows of ranges_, ascending by end
  HostPath host_;
};

// One line per link, e.g. "11.2 GB out between operator 311 (aten.x) and operator 900 (aten.y): >= 203 ms".
std::vector<std::string> chain_lines(const Program& program, const SwapBound& bound);

}  // namespace swaplab
