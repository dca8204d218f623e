#include "sim/bounds/brute_force.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/error.hpp"

namespace swaplab {
namespace {

__extension__ using Wide = __int128;

constexpr std::uint32_t kMaxStorages = 12, kMaxStreams = 3;
constexpr std::uint32_t kHost = kMaxStreams - 1;  // where the host counts, its lane
constexpr std::uint8_t kIdle = 255;
using Mask = std::uint16_t;  // one bit per storage in use

// Everything the future depends on. Remaining times are those of what runs now.
struct State {
  Mask device = 0;                               // bytes taken, a copy in that still runs included
  Mask host = 0;                                 // a valid copy on the host
  std::array<std::uint8_t, kMaxStreams> next{};  // per stream: operators that have ended
  std::uint8_t running = 0;                      // one bit per stream
  std::uint8_t out = kIdle, in = kIdle;          // storage being copied
  std::array<std::int64_t, kMaxStreams> op_left{};
  std::int64_t out_left = 0, in_left = 0;  // all ns at full rate x 10^6
  bool operator==(const State&) const = default;
};

struct StateHash {
  std::size_t operator()(const State& s) const {
    std::uint64_t h = (std::uint64_t{s.device} << 48) ^ (std::uint64_t{s.host} << 32) ^
                      (std::uint64_t{s.running} << 24) ^ (std::uint64_t{s.out} << 8) ^ s.in;
    const std::int64_t places = (s.next[2] * 256 + s.next[1]) * 256 + s.next[0];
    for (const std::int64_t part :
         {places, s.op_left[0], s.op_left[1], s.op_left[2], s.out_left, s.in_left}) {
      h = (h ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15U;
      h ^= h >> 29;
    }
    return h;
  }
};

struct Operator {
  Mask access = 0, write = 0, fetch = 0;  // fetch: earlier content is needed
  std::int64_t time = 0;
  std::array<std::uint8_t, kMaxStreams> after{};  // operators of each stream that must have ended
};

struct Use {  // of a storage, in program order
  std::uint8_t stream, place;
  bool fetch;
};

std::int64_t ceil_time(Bytes bytes, std::int64_t rate) {
  return static_cast<std::int64_t>((Wide{bytes.value} * 1'000'000'000 + rate - 1) / rate);
}

// ns until `left` is done at `rate` ppm.
std::int64_t time_left(std::int64_t left, Ppm rate) {
  return (left + rate - 1) / rate;
}

class Search {
 public:
  Search(const Program& program, std::uint32_t first_op, std::uint32_t end_op, Bytes budget, SwapRates rates)
      : budget_(budget), rates_(rates) {
    // With several streams, or with a host that may have run ahead, nothing says what else has happened when
    // the kernels before the window have ended: search from the run's beginning, in which time does not count
    // until then.
    const std::uint32_t from = program.stream_count > 1 || rates.host.counts ? 0 : first_op;
    collect_storages(program, from, end_op);
    for (std::uint32_t s = 0; s < storages_.size(); ++s) {
      const Bytes bytes = program.bytes[storages_[s]];
      bytes_[s] = bytes.value;
      out_work_[s] = ceil_time(bytes, rates.out) * kUnchanged;
      in_work_[s] = ceil_time(bytes, rates.in) * kUnchanged;
    }
    add_operators(program, from, end_op);
    const auto count = [&](std::uint32_t op) {  // per stream, of those before it
      std::array<std::uint8_t, kMaxStreams> result{};
      for (std::uint32_t i = from; i < op; ++i) {
        if (runs(program, i)) ++result[program.stream[i]];
      }
      return result;
    };
    begins_ = count(first_op);
    goal_ = count(end_op);
    if (rates.host.counts) add_host(program, end_op);
    add_beginnings(program, from);
  }

  std::optional<Nanos> run() {
    while (!queue_.empty()) {
      const auto [time, state] = queue_.top();
      queue_.pop();
      if (best_.at(state) != time) continue;
      bool done = true;
      for (std::uint32_t t = 0; t < streams_; ++t) done &= state.next[t] == goal_[t];
      if (done) return Nanos{time};
      expand(time, state);
    }
    return std::nullopt;
  }

 private:
  using Entry = std::pair<std::int64_t, State>;
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const { return a.first > b.first; }
  };

  static bool runs(const Program& program, std::uint32_t op) {
    return !program.accesses_of(op).empty() || program.device_time[op] > Nanos{0};
  }

  void add_operators(const Program& program, std::uint32_t from, std::uint32_t end_op) {
    Mask known =
        0;  // content from before: what appears with an operator, even one that reads it, is not fetched
    for (std::uint32_t s : storages_) {
      if (program.initial[s] != 0) known |= bit_of(s);
    }
    for (std::uint32_t op = 0; op < program.op_count(); ++op) {
      if (op < from) {
        for (const Access& access : program.accesses_of(op)) known |= bit_of(index(access.slot));
        continue;
      }
      if (!runs(program, op)) continue;
      const std::uint16_t stream = program.stream[op];
      Operator o;
      o.time = program.device_time[op].value * kUnchanged;
      for (const Access& access : program.accesses_of(op)) {
        const Mask bit = bit_of(index(access.slot));
        if (bit == 0) continue;
        const bool write = (access.flags & kWrite) != 0;
        o.access |= bit;
        if (write) o.write |= bit;
        if ((access.flags & kRead) != 0) o.fetch |= bit & known;
        // Behind the last write, and a write behind all uses before it.
        auto& uses = uses_[static_cast<std::size_t>(std::countr_zero(bit))];
        for (const Use& use : uses) {
          if (!write && (ops_[use.stream][use.place].write & bit) == 0) continue;
          o.after[use.stream] = std::max(o.after[use.stream], static_cast<std::uint8_t>(use.place + 1));
        }
        uses.push_back({static_cast<std::uint8_t>(stream), static_cast<std::uint8_t>(ops_[stream].size()),
                        op < end_op ? (o.fetch & bit) != 0 : (access.flags & kRead) != 0});
      }
      known |= o.access;
      ops_[stream].push_back(o);
    }
  }

  // The host's work for each operator, in order; it ends with the launch.
  void add_host(const Program& program, std::uint32_t end_op) {
    const HostRules& rules = rates_.host;
    streams_ = kHost;
    std::array<std::uint8_t, kMaxStreams> launched{};
    Operator work;  // of the next operator: behind the last one's synchronization
    for (std::uint32_t op = 0; op < end_op; ++op) {
      const std::uint16_t stream = program.stream[op];
      work.time += program.host_time[op].value * kUnchanged;
      for (const GapEvent& event : program.gap(op)) {
        if (!event.is_free) work.time += rules.alloc_cached.value * kUnchanged;
      }
      ops_[kHost].push_back(work);
      work = {};
      if (runs(program, op)) {
        Operator& kernel = ops_[stream][launched[stream]];
        kernel.after[kHost] = static_cast<std::uint8_t>(ops_[kHost].size());
        // A launch that the full queue holds up: the kernel could not begin before anyway, the host goes on
        // after.
        ++launched[stream];
        if (rules.launch_queue_depth > 0 && launched[stream] > rules.launch_queue_depth) {
          work.after[stream] = static_cast<std::uint8_t>(launched[stream] - rules.launch_queue_depth);
        }
      }
      if ((program.op_flags[op] & kSync) != 0) {
        work.after[stream] = launched[stream];
        work.time += rules.sync_resume.value * kUnchanged;
      }
    }
    goal_[kHost] = static_cast<std::uint8_t>(ops_[kHost].size());
  }

  void collect_storages(const Program& program, std::uint32_t first_op, std::uint32_t end_op) {
    // In use: by the last operator before the window, in it, or on both sides of it.
    std::uint32_t start = kNever;
    for (std::uint32_t op = 0; op < first_op; ++op) {
      if (!program.accesses_of(op).empty() || program.device_time[op] > Nanos{0}) start = op;
    }
    const AccessIndex accesses = index_accesses(program);
    for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
      if (accesses.begin[s] == accesses.begin[s + 1]) continue;
      const std::uint32_t first = accesses.ops[accesses.begin[s]],
                          last = accesses.ops[accesses.begin[s + 1] - 1];
      if (last < first_op && last != start) continue;
      if (first >= end_op && program.initial[s] == 0) continue;
      storages_.push_back(s);
    }
    if (storages_.size() > kMaxStorages) {
      throw Error(ErrorKind::usage, "brute force: " + std::to_string(storages_.size()) +
                                        " storages in the window, at most 12 are supported");
    }
  }

  Mask bit_of(std::uint32_t slot) const {
    const auto it = std::lower_bound(storages_.begin(), storages_.end(), slot);
    if (it == storages_.end() || *it != slot) return 0;
    return static_cast<Mask>(1U << static_cast<unsigned>(it - storages_.begin()));
  }

  // Storages whose next use reads the content that is there.
  Mask needed(const State& state) const {
    Mask mask = 0;
    for (std::uint32_t s = 0; s < storages_.size(); ++s) {
      for (const Use& use : uses_[s]) {
        const bool begun = use.place < state.next[use.stream] + (state.running >> use.stream & 1U);
        if (begun) continue;
        if (use.fetch) mask |= static_cast<Mask>(1U << s);
        break;
      }
    }
    return mask;
  }

  void add_beginnings(const Program& program, std::uint32_t first_op) {
    Mask exists = 0, present = 0, dirty = 0;  // present: on the device in any case
    for (std::uint32_t s : storages_) {
      if (program.initial[s] != 0) exists |= bit_of(s);
    }
    for (std::uint32_t op = 0; op < first_op; ++op) {
      if (program.accesses_of(op).empty() && program.device_time[op] == Nanos{0}) continue;
      present = dirty = 0;  // only the last operator counts
      for (const Access& access : program.accesses_of(op)) {
        const Mask bit = bit_of(index(access.slot));
        exists |= bit;
        present |= bit;
        if ((access.flags & kWrite) != 0) dirty |= bit;
      }
    }
    const Mask needed_first = needed({});
    const Mask choices = static_cast<Mask>(exists & needed_first & ~present);
    for (Mask chosen = choices;; chosen = static_cast<Mask>((chosen - 1) & choices)) {
      State state;
      state.device = static_cast<Mask>(chosen | present);
      state.host = static_cast<Mask>(exists & ~dirty & needed_first);
      if (sum(state.device) <= budget_.value) {
        state.device &= needed_first;  // what is gone gives its bytes back at once
        push(0, state);
      }
      if (chosen == 0) break;
    }
  }

  std::int64_t sum(Mask mask) const {
    std::int64_t total = 0;
    for (std::uint32_t s = 0; s < storages_.size(); ++s) {
      if ((mask >> s & 1U) != 0) total += bytes_[s];
    }
    return total;
  }

  void push(std::int64_t time, const State& state) {
    const auto [it, fresh] = best_.try_emplace(state, time);
    if (!fresh) {
      if (it->second <= time) return;
      it->second = time;
    }
    queue_.emplace(time, state);
  }

  const Operator& running_on(const State& state, std::uint32_t stream) const {
    return ops_[stream][state.next[stream]];
  }

  // Storages that a running operator uses, or that a copy uses.
  Mask busy(const State& state) const {
    Mask mask = 0;
    for (std::uint32_t t = 0; t < kMaxStreams; ++t) {
      if ((state.running >> t & 1U) != 0) mask |= running_on(state, t).access;
    }
    if (state.out != kIdle) mask |= static_cast<Mask>(1U << state.out);
    if (state.in != kIdle) mask |= static_cast<Mask>(1U << state.in);
    return mask;
  }

  // Every start of an operator, copy or drop now; or the next completion. Starting anything later than at the
  // moment that made it possible (a completion) gains nothing, so these are all schedules that matter.
  void expand(std::int64_t time, const State& state) {
    const Mask used = busy(state);
    const std::int64_t taken = sum(state.device);
    Mask written = 0;
    for (std::uint32_t t = 0; t < kMaxStreams; ++t) {
      if ((state.running >> t & 1U) != 0) {
        written |= running_on(state, t).write;
      } else if (state.next[t] < goal_[t]) {
        start_operator(time, state, t, taken);
      }
    }
    for (std::uint8_t s = 0; s < static_cast<std::uint8_t>(storages_.size()); ++s) {
      const Mask bit = static_cast<Mask>(1U << s);
      const bool on_device = (state.device & bit) != 0, on_host = (state.host & bit) != 0;
      if (on_device && on_host && (used & bit) == 0) {
        State next = state;
        next.device &= static_cast<Mask>(~bit);
        push(time, next);
      }
      const bool being_written = (written & bit) != 0;
      const bool arriving = state.in == s;
      if (state.out == kIdle && on_device && !on_host && !being_written && !arriving) {
        State next = state;
        next.out = s;
        next.out_left = out_work_[s];
        push(time, next);
      }
      if (state.in == kIdle && on_host && !on_device && taken + bytes_[s] <= budget_.value) {
        State next = state;
        next.device |= bit;
        next.in = s;
        next.in_left = in_work_[s];
        push(time, next);
      }
    }
    complete_next(time, state);
  }

  void start_operator(std::int64_t time, const State& state, std::uint32_t stream, std::int64_t taken) {
    const Operator& op = running_on(state, stream);
    for (std::uint32_t t = 0; t < kMaxStreams; ++t) {
      if (state.next[t] < op.after[t]) return;
    }
    const Mask arriving = state.in == kIdle ? Mask{0} : static_cast<Mask>(1U << state.in);
    const Mask leaving = state.out == kIdle ? Mask{0} : static_cast<Mask>(1U << state.out);
    const Mask there = static_cast<Mask>(state.device & ~arriving);
    if ((op.fetch & ~there) != 0 || (op.access & arriving) != 0 || (op.write & leaving) != 0) return;
    const Mask made = static_cast<Mask>(op.access & ~state.device);
    if (taken + sum(made) > budget_.value) return;
    State next = state;
    next.device |= made;
    next.host &= static_cast<Mask>(~op.write);
    next.running |= static_cast<std::uint8_t>(1U << stream);
    next.op_left[stream] = op.time;
    push(time, next);
  }

  void complete_next(std::int64_t time, const State& state) {
    std::int64_t step = std::numeric_limits<std::int64_t>::max();
    const auto op_rate = [&](std::uint32_t stream) {
      if (stream >= streams_) return kUnchanged;
      return std::min(state.out == kIdle ? kUnchanged : rates_.kernel_beside_out,
                      state.in == kIdle ? kUnchanged : rates_.kernel_beside_in);
    };
    for (std::uint32_t t = 0; t < kMaxStreams; ++t) {
      if ((state.running >> t & 1U) != 0) step = std::min(step, time_left(state.op_left[t], op_rate(t)));
    }
    const Ppm out_rate = state.in == kIdle ? kUnchanged : rates_.out_beside_in;
    const Ppm in_rate = state.out == kIdle ? kUnchanged : rates_.in_beside_out;
    if (state.out != kIdle) step = std::min(step, time_left(state.out_left, out_rate));
    if (state.in != kIdle) step = std::min(step, time_left(state.in_left, in_rate));
    if (step == std::numeric_limits<std::int64_t>::max()) return;
    State next = state;
    const auto pass = [step](std::int64_t& left, Ppm rate) {
      left = std::max<std::int64_t>(0, left - step * rate);
      return left == 0;
    };
    if (next.out != kIdle && pass(next.out_left, out_rate)) {
      next.host |= static_cast<Mask>(1U << next.out);
      next.out = kIdle;
    }
    if (next.in != kIdle && pass(next.in_left, in_rate)) next.in = kIdle;
    for (std::uint32_t t = 0; t < kMaxStreams; ++t) {
      if ((state.running >> t & 1U) == 0 || !pass(next.op_left[t], op_rate(t))) continue;
      next.running &= static_cast<std::uint8_t>(~(1U << t));
      ++next.next[t];
    }
    // Content that nobody needs any more gives its bytes back, unless a copy or an operator still uses it.
    const Mask keep = static_cast<Mask>(needed(next) | busy(next));
    next.device &= keep;
    next.host &= keep;
    bool begun = true;  // the window
    for (std::uint32_t t = 0; t < kMaxStreams; ++t) begun &= state.next[t] >= begins_[t];
    push(begun ? time + step : time, next);
  }

  Bytes budget_;
  std::vector<std::uint32_t> storages_;  // slots in use, ascending
  SwapRates rates_;
  std::array<std::int64_t, kMaxStorages> bytes_{}, out_work_{}, in_work_{};  // work as State::out_left
  std::array<std::vector<Operator>, kMaxStreams> ops_;
  std::array<std::vector<Use>, kMaxStorages> uses_;
  std::uint32_t streams_ = kMaxStreams;                      // of the device
  std::array<std::uint8_t, kMaxStreams> begins_{}, goal_{};  // State::next at the window's ends
  std::unordered_map<State, std::int64_t, StateHash> best_;
  std::priority_queue<Entry, std::vector<Entry>, Later> queue_;
};

}  // namespace

std::optional<Nanos> brute_force_swap_time(const Program& program, std::uint32_t first_op,
                                           std::uint32_t end_op, Bytes budget, SwapRates rates) {
  if (rates.out < 1 || rates.in < 1 || rates.out_beside_in < 1 || rates.in_beside_out < 1 ||
      rates.kernel_beside_out < 1 || rates.kernel_beside_in < 1 || first_op >= end_op ||
      end_op > program.op_count() || program.op_count() > 250 ||
      program.stream_count > (rates.host.counts ? kHost : kMaxStreams) ||
      rates.host.launch_latency > Nanos{0}) {
    throw Error(ErrorKind::usage,
                "brute force: needs rates of at least 1 byte/s, a non-empty window and at most "
                "250 operators on 3 streams, or on 2 with a host without launch latency");
  }
  return Search(program, first_op, end_op, budget, rates).run();
}

}  // namespace swaplab
