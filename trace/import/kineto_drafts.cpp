#include "trace/import/kineto_drafts.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "trace/import/sum.hpp"

namespace swaplab::kineto {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

class Drafting {
 public:
  Drafting(const Events& events, const Nesting& nesting, const Storages& storages)
      : e_(events), n_(nesting), s_(storages) {}

  Drafts run() {
    draft_dispatched();
    draft_device_work();
    draft_memory();
    order();
    place_storages();
    phases();
    iterations();
    return std::move(out_);
  }

 private:
  std::uint32_t add_draft(std::int64_t ts, std::int64_t dur, std::uint32_t thread, std::uint32_t name,
                          std::uint32_t op) {
    out_.operators.push_back({ts, ts + dur, thread, name, op});
    return static_cast<std::uint32_t>(out_.operators.size() - 1);
  }
  // The draft of the operator that stands for `op`; made here when it is a wrapper with work of its own.
  std::uint32_t draft_of(std::uint32_t op, std::int64_t ts, std::int64_t dur) {
    const std::uint32_t unit = n_.unit[op];
    std::uint32_t& draft = draft_of_unit_[unit];
    if (draft == kNoIndex) {
      draft = add_draft(ts, dur, e_.ops[unit].thread, e_.ops[unit].name, unit);
      ++out_.wrappers;
    }
    return draft;
  }

  void draft_dispatched() {
    draft_of_unit_.assign(e_.ops.size(), kNoIndex);
    for (std::uint32_t i = 0; i < e_.ops.size(); ++i) {
      const CpuOp& op = e_.ops[i];
      if (n_.unit[i] == i && is_dispatched(e_.texts[op.name]))
        draft_of_unit_[i] = add_draft(op.ts, op.dur, op.thread, op.name, i);
    }
    out_.dispatched = static_cast<std::int64_t>(out_.operators.size());
  }

  void draft_device_work() {
    std::vector<std::uint32_t> draft_of_launch(e_.launches.size(), kNoIndex);
    for (std::uint32_t i = 0; i < e_.device.size(); ++i) {
      const DeviceEvent& d = e_.device[i];
      std::uint32_t draft = kNoIndex;
      const std::uint32_t launch = n_.device_launch[i];
      if (n_.device_op[i] != kNoIndex) {
        const CpuOp& op = e_.ops[n_.device_op[i]];
        draft = launch == kNoIndex
                    ? draft_of(n_.device_op[i], op.ts, op.dur)
                    : draft_of(n_.device_op[i], e_.launches[launch].ts, e_.launches[launch].dur);
      } else if (launch != kNoIndex) {
        std::uint32_t& own = draft_of_launch[launch];
        if (own == kNoIndex) {
          own = add_draft(e_.launches[launch].ts, e_.launches[launch].dur, e_.launches[launch].thread, d.name,
                          kNoIndex);
          ++out_.launches_alone;
        }
        draft = own;
      } else {
        draft = add_draft(d.ts, 0, kNoIndex, d.name, kNoIndex);
      }
      out_.operators[draft].device_time += d.dur;
      out_.operators[draft].by_stream[d.stream] += d.dur;
      ++out_.operators[draft].device_events;
      add_checked(out_.device_time, d.dur);
    }
    for (std::uint32_t i = 0; i < e_.launches.size(); ++i) {
      const Launch& launch = e_.launches[i];
      const std::string& name = e_.texts[launch.name];
      if (!has(name, "Synchronize") || n_.launch_op[i] == kNoIndex) continue;
      const std::uint32_t draft = draft_of(n_.launch_op[i], launch.ts, launch.dur);
      const std::string& op = e_.texts[out_.operators[draft].name];
      add_checked(out_.operators[draft].wait, launch.dur);
      out_.operators[draft].sync =
          has(op, "item") || has(op, "_local_scalar_dense") ? SyncKind::item
          : has(op, "copy") || has(op, "::to")              ? SyncKind::d2h
          : has(op, "nonzero") || has(op, "unique") || has(op, "masked_select") || has(op, "index")
              ? SyncKind::shape
              : SyncKind::explicit_sync;
      ++out_.syncs;
    }
  }

  void draft_memory() {
    draft_of_row_.assign(e_.memory.size(), kNoIndex);
    const std::uint32_t name = kNoIndex;
    for (const std::uint32_t row : s_.rows) {
      const MemoryEvent& m = e_.memory[row];
      const std::uint32_t op = n_.memory_op[row];
      if (op != kNoIndex && (m.bytes > 0 || draft_of_unit_[n_.unit[op]] != kNoIndex)) {
        draft_of_row_[row] = draft_of(op, m.ts, 0);
      } else if (m.bytes > 0) {
        draft_of_row_[row] = add_draft(m.ts, 0, m.thread, name, kNoIndex);
        ++out_.allocations_alone;
      }
    }
  }

  // Program order; every number of a draft changes with it.
  void order() {
    std::vector<std::uint32_t> by_time(out_.operators.size()), place(out_.operators.size());
    for (std::uint32_t i = 0; i < by_time.size(); ++i) by_time[i] = i;
    std::stable_sort(by_time.begin(), by_time.end(), [&](std::uint32_t a, std::uint32_t b) {
      return out_.operators[a].ts < out_.operators[b].ts;
    });
    std::vector<Draft> sorted;
    sorted.reserve(out_.operators.size());
    for (std::uint32_t i = 0; i < by_time.size(); ++i) {
      place[by_time[i]] = i;
      sorted.push_back(std::move(out_.operators[by_time[i]]));
    }
    out_.operators = std::move(sorted);
    for (std::uint32_t& draft : draft_of_row_) {
      if (draft != kNoIndex) draft = place[draft];
    }
  }

  // The last operator that begins at or before `ts`; kNoIndex when there is none.
  std::uint32_t last_before(std::int64_t ts) const {
    const auto after = std::upper_bound(out_.operators.begin(), out_.operators.end(), ts,
                                        [](std::int64_t t, const Draft& d) { return t < d.ts; });
    return after == out_.operators.begin() ? kNoIndex
                                           : static_cast<std::uint32_t>(after - out_.operators.begin() - 1);
  }

  void place_storages() {
    out_.birth.assign(s_.lifetimes.size(), kNoIndex);
    scratch_.assign(s_.lifetimes.size(), 0);
    std::vector<std::uint32_t> storage_of_birth(e_.memory.size(), kNoIndex),
        storage_of_death(e_.memory.size(), kNoIndex);
    for (std::uint32_t i = 0; i < s_.lifetimes.size(); ++i) {
      const Lifetime& l = s_.lifetimes[i];
      if (l.birth != kNoIndex) out_.birth[i] = draft_of_row_[l.birth];
      if (l.death != kNoIndex) {
        const std::uint32_t owner = draft_of_row_[l.death];
        scratch_[i] = l.birth != kNoIndex && owner == out_.birth[i] && e_.memory[l.death].bytes < 0 ? 1 : 0;
      }
      if (scratch_[i] != 0) {
        storage_of_birth[l.birth] = storage_of_death[l.death] = i;
        continue;
      }
      if (l.birth != kNoIndex) out_.operators[out_.birth[i]].born.push_back(i);
      if (l.death == kNoIndex) continue;
      const std::uint32_t owner = draft_of_row_[l.death];
      std::uint32_t after =
          owner != kNoIndex && e_.memory[l.death].bytes < 0 ? owner : last_before(e_.memory[l.death].ts);
      if (l.birth != kNoIndex) after = after == kNoIndex ? out_.birth[i] : std::max(after, out_.birth[i]);
      if (after == kNoIndex) {
        out_.freed_before.push_back(i);
      } else {
        out_.operators[after].freed.push_back(i);
      }
    }
    for (const std::uint32_t row : s_.rows) {
      const std::uint32_t storage = e_.memory[row].bytes > 0 ? storage_of_birth[row] : storage_of_death[row];
      if (storage == kNoIndex) continue;
      Draft& draft = out_.operators[out_.birth[storage]];
      draft.scratch_now +=
          e_.memory[row].bytes > 0 ? s_.lifetimes[storage].bytes : -s_.lifetimes[storage].bytes;
      draft.scratch = std::max(draft.scratch, draft.scratch_now);
      out_.scratch_storages += e_.memory[row].bytes > 0 ? 1 : 0;
    }
  }

  // By the name of a node around it, else by what the profiler says: a flow from the forward operator ends at
  // it, or it names the forward thread.
  bool is_backward(std::uint32_t op) {
    bool marked = false;
    for (; op != kNoIndex; op = n_.parent[op]) {
      const std::string& name = e_.texts[e_.ops[op].name];
      if (has(name, "Backward") || name.rfind("autograd::engine::evaluate_function", 0) == 0) return true;
      marked |= e_.ops[op].on_backward_thread ||
                std::binary_search(flows_.begin(), flows_.end(), std::pair(e_.ops[op].thread, e_.ops[op].ts));
    }
    out_.unnamed_backward += marked ? 1 : 0;
    return marked;
  }

  void phases() {
    flows_ = e_.backward_flows;
    std::sort(flows_.begin(), flows_.end());
    std::vector<Window> windows;
    for (const Annotation& a : e_.annotations) {
      const std::string& name = e_.texts[a.name];
      const Phase phase = name.rfind("Optimizer.step", 0) == 0          ? Phase::optimizer
                          : name.rfind("Optimizer.zero_grad", 0) == 0   ? Phase::zero_grad
                          : name.rfind("enumerate(DataLoader)", 0) == 0 ? Phase::data
                                                                        : Phase::unknown;
      if (phase != Phase::unknown) windows.push_back({a.ts, a.ts + a.dur, a.thread, phase, 0});
    }
    std::sort(windows.begin(), windows.end(), [](const Window& a, const Window& b) {
      return std::tie(a.thread, a.begin, a.end) < std::tie(b.thread, b.begin, b.end);
    });
    for (Draft& d : out_.operators) {
      if (d.op != kNoIndex && is_backward(d.op)) {
        d.phase = Phase::backward;
        ++out_.backward;
        continue;
      }
      auto after =
          std::upper_bound(windows.begin(), windows.end(), std::pair(d.thread, d.ts),
                           [](const auto& at, const Window& w) { return at < std::pair(w.thread, w.begin); });
      if (after != windows.begin() && (--after)->thread == d.thread && d.ts <= after->end) {
        d.phase = after->phase;
        ++out_.annotated;
      }
    }
    if (out_.backward == 0) return;
    for (Draft& d : out_.operators) {
      if (d.phase == Phase::unknown) d.phase = Phase::forward;
    }
  }

  void iterations() {
    static constexpr std::string_view prefix = "ProfilerStep";
    for (const Annotation& a : e_.annotations) {
      const std::string_view name = e_.texts[a.name];
      if (name.rfind(prefix, 0) != 0) continue;
      std::int64_t number = static_cast<std::int64_t>(out_.steps.size());
      const auto digits = name.find_first_of("0123456789");
      if (digits != std::string_view::npos) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(name.data() + digits, name.data() + name.size(), value);
        if (error == std::errc()) number = value;
      }
      out_.steps.push_back({a.ts, a.ts + a.dur, a.thread, Phase::unknown, number});
    }
    std::sort(out_.steps.begin(), out_.steps.end(), [](const Window& a, const Window& b) {
      return std::tie(a.begin, a.number) < std::tie(b.begin, b.number);
    });
    std::vector<Window> apart;
    for (const Window& step : out_.steps) {
      if (!apart.empty() && step.begin < apart.back().end) {
        ++out_.overlapping_steps;
      } else {
        apart.push_back(step);
      }
    }
    out_.steps = std::move(apart);
  }

  const Events& e_;
  const Nesting& n_;
  const Storages& s_;
  Drafts out_;
  std::vector<std::uint32_t> draft_of_unit_, draft_of_row_;
  std::vector<std::uint8_t> scratch_;
  std::vector<std::pair<std::uint32_t, std::int64_t>> flows_;  // sorted
};

}  // namespace

Drafts draft_operators(const Events& events, const Nesting& nesting, const Storages& storages) {
  return Drafting(events, nesting, storages).run();
}

}  // namespace swaplab::kineto
