#include "sim/bounds/swap_path.hpp"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "trace/error.hpp"

namespace swaplab {
namespace {

__extension__ using Wide = __int128;

// How many iterations the window touches, and the longest of them in operators.
std::pair<std::uint64_t, std::uint32_t> iterations_in(const Program& program, std::uint32_t first_op,
                                                      std::uint32_t end_op) {
  std::uint64_t count = 0;
  std::uint32_t longest = 0;
  for (const ProgramIteration& it : program.iterations) {
    if (it.first_op >= end_op || it.end_op <= first_op) continue;
    ++count;
    longest = std::max(longest, it.end_op - it.first_op);
  }
  return count == 0 ? std::pair{std::uint64_t{1}, end_op - first_op} : std::pair{count, longest};
}

// Gaps with an operator of the window, or its beginning `start`, inside.
std::vector<SwapGap> gaps_of_window(const SwapGapTable& table, std::int32_t start, std::int32_t last) {
  std::vector<SwapGap> result;
  const std::int32_t earliest = start - table.longest;
  auto it = std::lower_bound(table.gaps.begin(), table.gaps.end(), earliest,
                             [](const SwapGap& gap, std::int32_t open) { return gap.open < open; });
  for (; it != table.gaps.end() && it->open < last; ++it) {
    if (it->close > start) result.push_back(*it);
  }
  return result;
}

}  // namespace

SwapRates best_rates(const Machine& machine) {
  return {machine.link(Direction::device_to_host).best_rate(),
          machine.link(Direction::host_to_device).best_rate(),
          machine.interference.d2h_during_h2d,
          machine.interference.h2d_during_d2h,
          machine.interference.kernel_during_d2h,
          machine.interference.kernel_during_h2d,
          host_rules(machine)};
}

std::string_view chain_kind_name(ChainKind kind) {
  switch (kind) {
    case ChainKind::compute:
      return "compute";
    case ChainKind::out:
      return "out";
    case ChainKind::in:
      return "in";
    case ChainKind::shared:
      return "shared";
    case ChainKind::host:
      return "host";
    case ChainKind::slowed_by_out:
      return "compute, slowed by copies out";
    case ChainKind::slowed_by_in:
      return "compute, slowed by copies in";
  }
  return "";
}

SwapPathBound::SwapPathBound(const Program& program, std::uint32_t first_op, std::uint32_t end_op,
                             SwapRates rates, SwapPathOptions options)
    : SwapPathBound(program, std::make_shared<const SwapGapTable>(program), first_op, end_op, rates,
                    options) {}

SwapPathBound::SwapPathBound(const Program& program, std::shared_ptr<const SwapGapTable> table,
                             std::uint32_t first_op, std::uint32_t end_op, SwapRates rates,
                             SwapPathOptions options)
    : table_(std::move(table)), rates_(rates) {
  if (rates.out < 1 || rates.in < 1) {
    throw Error(ErrorKind::usage, "bound: link rates " + std::to_string(rates.out) + " and " +
                                      std::to_string(rates.in) + " bytes/s, expected at least 1");
  }
  for (const Ppm share :
       {rates.out_beside_in, rates.in_beside_out, rates.kernel_beside_out, rates.kernel_beside_in}) {
    if (share >= 1 && share <= kUnchanged) continue;
    throw Error(ErrorKind::usage, "bound: share of a rate that remains beside a copy is " +
                                      std::to_string(share) + " ppm, expected 1 to 1000000");
  }
  if (first_op >= end_op || end_op > program.op_count()) {
    throw Error(ErrorKind::usage, "bound: window [" + std::to_string(first_op) + ", " +
                                      std::to_string(end_op) + ") is not a range of the " +
                                      std::to_string(program.op_count()) + " operators");
  }
  // The window begins when all kernels before it have ended, or with the run: the place on the spine where
  // that is certain.
  const std::int64_t settled = table_->settled[first_op];
  const bool at_end = settled % 2 != 0;  // of kernel `start`, else after it
  const auto start = static_cast<std::int32_t>(at_end ? (settled - 1) / 2 : settled / 2 - 1);
  const auto& kernels = table_->order.spine();
  const auto begin = std::partition_point(kernels.begin(), kernels.end(), [start](std::uint32_t op) {
    return static_cast<std::int32_t>(op) <= start;
  });
  const auto end = std::lower_bound(begin, kernels.end(), end_op);
  if (at_end) {
    const Bytes required = table_->required[static_cast<std::size_t>(start + 1)];
    points_.push_back({start, true, table_->elapsed[static_cast<std::size_t>(start + 1)], required});
    required_peak_ = required;
  }
  if (begin == end) {  // nothing runs on the device, or nothing that the spine knows of
    for (std::uint32_t op = first_op; op < end_op; ++op) blind_ |= program.device_time[op] > Nanos{0};
    return;
  }

  const auto gaps = gaps_of_window(*table_, start, static_cast<std::int32_t>(*(end - 1)));
  choose_points(program, {begin, end}, gaps, options);
  choose_ranges(gaps);
  if (rates.host.counts) follow_host(program);
}

// Blocks of equal weight (share of the window's time + share of the bytes of opening and closing gaps), in
// each the operator with the most required bytes, the first of equals; and the window's ends. With
// twice the blocks each splits in two and one half keeps its operator: finer samples contain coarser ones.
void SwapPathBound::choose_points(const Program& program, std::span<const std::uint32_t> kernels,
                                  const std::vector<SwapGap>& gaps, SwapPathOptions options) {
  const auto begin = kernels.begin(), end = kernels.end();
  const std::uint32_t first_op = kernels.front(), end_op = kernels.back() + 1;
  const auto [iterations, longest] = iterations_in(program, first_op, end_op);
  const std::uint64_t span = options.edge_span != 0 ? options.edge_span : std::uint64_t{longest} * 5 / 4 + 1;
  edge_span_ =
      static_cast<std::int32_t>(std::min<std::uint64_t>(span, program.op_count() + std::uint64_t{1}));

  const auto required = [this](std::uint32_t op) { return table_->required[op + 1]; };
  std::vector<std::uint32_t> sample;
  const auto count = static_cast<std::uint64_t>(end - begin);
  const std::uint64_t blocks = options.samples_per_iteration * iterations;
  if (blocks == 0 || blocks >= count) {
    sample.assign(begin, end);
  } else {
    std::vector<std::int64_t> event_bytes(end_op - first_op, 0);
    std::int64_t all_bytes = 0;
    for (const SwapGap& gap : gaps) {
      for (const std::int32_t op : {gap.open, gap.close}) {
        if (op < static_cast<std::int32_t>(first_op) || op >= static_cast<std::int32_t>(end_op)) continue;
        event_bytes[static_cast<std::uint32_t>(op) - first_op] += gap.bytes.value;
        all_bytes += gap.bytes.value;
      }
    }
    const std::int64_t all_time = (table_->elapsed[end_op] - table_->elapsed[first_op]).value;
    // Shares in units of 2^-40; one unit more per operator keeps a window without either divisible.
    const auto share = [](std::int64_t part, std::int64_t whole) {
      return whole == 0 ? Wide{0} : (Wide{part} << 40) / whole;
    };
    const auto weight = [&](std::uint32_t op) {
      return share(program.device_time[op].value, all_time) + share(event_bytes[op - first_op], all_bytes) +
             1;
    };
    Wide whole = 0, sum = 0;
    for (auto it = begin; it != end; ++it) whole += weight(*it);
    Wide block = -1;
    for (auto it = begin; it != end; ++it) {
      const Wide own = sum * static_cast<Wide>(blocks) / whole;
      sum += weight(*it);
      if (own != block) {
        sample.push_back(*it);
        block = own;
      } else if (required(*it) > required(sample.back())) {
        sample.back() = *it;
      }
    }
    if (sample.back() != *(end - 1)) sample.push_back(*(end - 1));
    if (points_.empty() && sample.front() != *begin) sample.insert(sample.begin(), *begin);
  }
  for (auto it = begin; it != end; ++it) required_peak_ = std::max(required_peak_, required(*it));
  points_.reserve(1 + 2 * sample.size());
  for (const std::uint32_t op : sample) {
    points_.push_back({static_cast<std::int32_t>(op), false, table_->elapsed[op], required(op)});
    points_.push_back({static_cast<std::int32_t>(op), true, table_->elapsed[op + 1], required(op)});
  }
}

void SwapPathBound::choose_ranges(const std::vector<SwapGap>& gaps) {
  // First point of an operator behind `op`; an operator's two points are neighbours.
  const auto behind = [this](std::int32_t op) {
    const auto it = std::upper_bound(points_.begin(), points_.end(), op,
                                     [](std::int32_t o, const PathPoint& point) { return o < point.op; });
    return static_cast<std::uint32_t>(it - points_.begin());
  };
  ranges_.reserve(gaps.size());
  for (const SwapGap& gap : gaps) {
    const std::uint32_t begin = behind(gap.open), end = behind(gap.stop - 1);
    const std::int64_t bytes = gap.bytes.value;
    if (begin >= end) continue;
    ranges_.push_back({begin, end, behind(gap.version), begin, bytes});
    const std::uint32_t close = behind(gap.close - 1);
    if (close <= end) continue;
    ranges_.push_back({end, close, kNoVersion, begin, bytes});
    ranges_.push_back({end, close, kNoVersion, end, -bytes});
  }
  std::sort(ranges_.begin(), ranges_.end(), [](const PathRange& a, const PathRange& b) {
    return std::tuple(a.begin, a.end, a.version, a.from) < std::tuple(b.begin, b.end, b.version, b.from);
  });
  std::size_t kept = 0;
  for (const PathRange& range : ranges_) {
    if (kept > 0 && ranges_[kept - 1].begin == range.begin && ranges_[kept - 1].end == range.end &&
        ranges_[kept - 1].version == range.version && ranges_[kept - 1].from == range.from) {
      ranges_[kept - 1].bytes += range.bytes;
    } else {
      ranges_[kept++] = range;
    }
  }
  ranges_.resize(kept);
  by_end_.resize(kept);
  for (std::uint32_t i = 0; i < kept; ++i) by_end_[i] = i;
  std::stable_sort(by_end_.begin(), by_end_.end(),
                   [this](std::uint32_t a, std::uint32_t b) { return ranges_[a].end < ranges_[b].end; });
}

// Steps from the run's beginning, from kernels that the host waits for, and from those that must end before
// the launch queue has room.
void SwapPathBound::follow_host(const Program& program) {
  const HostClock& clock = table_->host;
  const HostRules& rules = rates_.host;
  const auto n = static_cast<std::uint32_t>(points_.size());
  host_.spent.assign(n, 0);
  const auto first_behind = [this](std::int64_t op) {
    const auto it = std::partition_point(points_.begin(), points_.end(),
                                         [op](const PathPoint& point) { return point.op <= op; });
    return static_cast<std::uint32_t>(it - points_.begin());
  };
  // `kernel` has ended when the host has spent `spent`, up to its launches from point `to` on.
  const auto add = [&](std::uint32_t kernel, std::uint32_t to, std::int64_t spent) {
    const std::int32_t before = table_->order.begins_after(kernel);
    const std::uint32_t behind = first_behind(before);
    if (behind == 0 || to >= n) return;  // outside of the window
    const PathPoint& from = points_[behind - 1];
    Nanos rest = table_->elapsed[static_cast<std::size_t>(before + 1)] - from.time;
    if (!table_->order.on_spine(kernel)) rest += program.device_time[kernel];
    host_.steps.push_back({behind - 1, to, rest.value - spent});
  };
  if (points_.front().op == kRunStart) host_.steps.push_back({0, 1, 0});
  for (std::uint32_t q = 0; q < n; ++q) {
    if (points_[q].end) continue;
    const auto op = static_cast<std::uint32_t>(points_[q].op);
    const std::int64_t spent = clock.spent(op, rules);
    host_.spent[q] = spent + rules.launch_latency.value;
    if (rules.launch_queue_depth == 0) continue;
    const std::uint32_t kernel = clock.launched_before(op, rules.launch_queue_depth);
    if (kernel != kNever) add(kernel, q, spent);
  }
  const auto& syncs = clock.syncs();
  const std::int64_t last = points_.back().op;
  for (auto it = std::partition_point(syncs.begin(), syncs.end(),
                                      [this](const HostClock::Sync& sync) {
                                        return static_cast<std::int32_t>(sync.op) < points_.front().op;
                                      });
       it != syncs.end() && it->op < last; ++it) {
    add(it->kernel, first_behind(it->op), clock.spent(it->op, rules));
  }
  std::stable_sort(host_.steps.begin(), host_.steps.end(),
                   [](const HostPath::Step& a, const HostPath::Step& b) { return a.to < b.to; });
}

SwapBound SwapPathBound::at(Bytes budget) const {
  if (budget < Bytes{0}) throw Error(ErrorKind::usage, "bound: negative budget");
  SwapBound result;
  result.budget = budget;
  result.smallest_budget = table_->largest_working_set;
  result.smallest_budget_op = table_->largest_working_set_op;
  result.feasible = budget >= table_->largest_working_set;
  if (points_.empty()) return result;
  result.compute = points_.back().time - points_.front().time;
  result.total = result.compute;
  const auto n = static_cast<std::uint32_t>(points_.size());
  if (!result.feasible || n < 2) return result;

  const LongestPath path = PathSearch(points_, ranges_, by_end_, host_, rates_, edge_span_, budget).run();
  const auto& [longest, steps] = path;
  result.total = Nanos{longest[n - 1]};

  for (std::uint32_t q = n - 1; q > 0; q = steps[q].from) {
    const PathStep& step = steps[q];
    const PathPoint &from = points_[step.from], &to = points_[q];
    const Nanos time{longest[q] - longest[step.from]};
    const bool moves = step.kind != ChainKind::compute && step.kind != ChainKind::host;
    if (!moves && !result.chain.empty() && result.chain.back().kind == step.kind) {
      ChainLink& link = result.chain.back();  // it continues: one link
      link.from = static_cast<std::uint32_t>(from.op);
      link.from_end = from.end;
      link.time += time;
      continue;
    }
    // kRunStart becomes kNever: the same bits.
    result.chain.push_back({static_cast<std::uint32_t>(from.op), static_cast<std::uint32_t>(to.op), from.end,
                            to.end, step.kind, Bytes{step.bytes}, Bytes{step.beside}, time});
  }
  std::reverse(result.chain.begin(), result.chain.end());
  std::erase_if(result.chain, [](const ChainLink& link) { return link.time == Nanos{0}; });
  return result;
}

}  // namespace swaplab
