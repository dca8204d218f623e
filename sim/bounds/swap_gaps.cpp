#include "sim/bounds/swap_gaps.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kLargestSum = std::int64_t{1} << 62;

const Program& checked(const Program& program) {
  if (program.op_count() > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max() - 1)) {
    throw Error(ErrorKind::input, "bound: " + std::to_string(program.op_count()) +
                                      " operators, at most 2^31 - 2 are supported");
  }
  std::int64_t bytes = 0, time = 0;
  for (const Bytes b : program.bytes) {
    if (b < Bytes{0} || __builtin_add_overflow(bytes, b.value, &bytes) || bytes > kLargestSum) {
      throw Error(ErrorKind::input, "bound: storages of negative size or of more than 2^62 bytes in all");
    }
  }
  for (const auto* times : {&program.device_time, &program.host_time}) {
    for (const Nanos t : *times) {
      if (t < Nanos{0} || __builtin_add_overflow(time, t.value, &time) || time > kLargestSum) {
        throw Error(ErrorKind::input, "bound: operator times negative or of more than 2^62 ns in all");
      }
    }
  }
  return program;
}

}  // namespace

SwapGapTable::SwapGapTable(const Program& program) : order(checked(program)), host(program) {
  const std::uint32_t n = program.op_count();
  const auto& kernels = order.spine();
  elapsed.resize(n + 1, Nanos{0});
  settled.resize(n + 1, 2 * std::int64_t{kRunStart} + 1);
  required.assign(n + 2, Bytes{0});  // differences first; one spare row behind the last operator
  std::size_t next = 0;
  for (std::uint32_t op = 0; op < n; ++op) {
    const bool on_spine = next < kernels.size() && kernels[next] == op;
    next += on_spine ? 1 : 0;
    elapsed[op + 1] = elapsed[op] + (on_spine ? program.device_time[op] : Nanos{0});
    const bool kernel = !program.accesses_of(op).empty() || program.device_time[op] > Nanos{0};
    const std::int64_t end = 2 * std::int64_t{order.ends_before(op)} + (on_spine ? 1 : 0);
    settled[op + 1] = kernel ? std::max(settled[op], end) : settled[op];
    Bytes working_set{0};
    for (const Access& access : program.accesses_of(op)) working_set += program.bytes[index(access.slot)];
    if (working_set > largest_working_set) {
      largest_working_set = working_set;
      largest_working_set_op = op;
    }
  }

  const AccessIndex accesses = index_accesses(program);
  Life life{};
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
    life.slot = Slot{s};
    life.bytes = program.bytes[s];
    life.initial = program.initial[s] != 0;
    bool exists = life.initial;
    for (std::uint32_t i = accesses.begin[s]; i < accesses.begin[s + 1]; ++i) {
      const std::uint32_t op = accesses.ops[i];
      if (!exists || (accesses.flags[i] & kRead) == 0) {
        add_life(life);
        life.initial = false;
      }
      life.uses.push_back({order.begins_after(op), order.ends_before(op), (accesses.flags[i] & kWrite) != 0});
      exists = true;
    }
    add_life(life);
  }
  for (std::uint32_t k = 0; k + 1 < required.size(); ++k) required[k + 1] += required[k];
  required.pop_back();
  std::sort(gaps.begin(), gaps.end(), [](const SwapGap& a, const SwapGap& b) {
    return std::tuple(a.open, a.close, a.slot, a.stop, a.version) <
           std::tuple(b.open, b.close, b.slot, b.stop, b.version);
  });
}

// Ends the life and empties it. At a kernel p of the spine it must exist when some use is p or before it and
// some use is p or behind it. Of the latter, the one with the least `before` stands for p: the content that
// this use needs, in whatever version, is what is away at p, and it is back soonest.
void SwapGapTable::add_life(Life& life) {
  const auto& uses = life.uses;
  std::int32_t base = kBeforeRun, last = kRunStart;  // it exists behind operator base, up to last
  if (!life.initial) {
    base = std::numeric_limits<std::int32_t>::max();
    for (const Use& use : uses) base = std::min(base, use.before - 1);
  }
  for (const Use& use : uses) last = std::max(last, use.after);
  if (!uses.empty() && last > base) {
    required[static_cast<std::size_t>(base + 2)] += life.bytes;
    required[static_cast<std::size_t>(last + 2)] -= life.bytes;

    life.by_after.clear();
    life.writes.clear();
    for (std::uint32_t i = 0; i < uses.size(); ++i) {
      life.by_after.push_back(i);
      if (uses[i].write) life.writes.push_back(i);
    }
    const auto earlier = [&](std::uint32_t a, std::uint32_t b) { return uses[a].after < uses[b].after; };
    if (!std::is_sorted(life.by_after.begin(), life.by_after.end(), earlier)) {
      std::stable_sort(life.by_after.begin(), life.by_after.end(), earlier);
    }
    // From the end of the spine on.
    std::uint32_t coming = life.by_after.back();
    std::int32_t top = last;
    for (std::size_t j = life.by_after.size() - 1; j-- > 0;) {
      const std::uint32_t use = life.by_after[j];
      if (uses[use].before >= uses[coming].before) continue;
      add_gaps(life, coming, std::max(base, uses[use].after), top);
      coming = use;
      top = uses[use].after;
    }
    add_gaps(life, coming, base, top);
  }
  life.uses.clear();
}

// `coming` stands for the operators in (open, top]. The version that is there at operator p was written by
// the last write before `coming` that has ended when p begins, or by a later one.
void SwapGapTable::add_gaps(const Life& life, std::uint32_t coming, std::int32_t open, std::int32_t top) {
  const std::int32_t close = life.uses[coming].before;
  const std::int32_t stop = close == top ? top : top + 1;  // itself it is no gap
  const auto before = [&life](std::uint32_t write) { return life.uses[write].before; };
  // Each write ends before the next one begins, as it reads what that has written; so they ascend.
  const auto end = std::lower_bound(life.writes.begin(), life.writes.end(), coming);
  auto next = std::upper_bound(life.writes.begin(), end, open + 1,
                               [&](std::int32_t op, std::uint32_t write) { return op < before(write); });
  while (stop > open + 1) {
    while (next != end && before(*next) <= open + 1) ++next;
    const std::int32_t until = next == end ? stop : std::min(stop, before(*next));
    const std::int32_t version = next == life.writes.begin() ? kBeforeRun : life.uses[*(next - 1)].after;
    gaps.push_back({open, until, close, version, life.slot, life.bytes});
    longest = std::max(longest, close - open);
    open = until - 1;
  }
}

}  // namespace swaplab
