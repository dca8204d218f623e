#include "trace/extend.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trace/builder.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

// Events and operators of one iteration: what follows the previous iteration's end, up to its own end.
struct Segment {
  std::uint32_t first_event, end_event;
  std::uint32_t first_op, end_op;
};

class Extender {
 public:
  Extender(const Trace& trace, std::uint32_t iterations)
      : trace_(trace),
        wanted_(iterations),
        id_of_(trace.storages.size(), StorageId{kNever}),
        alive_(trace.storages.size(), 0) {}

  Trace run() {
    find_segments();
    copy_tables();
    const auto recorded = static_cast<std::uint32_t>(segments_.size());
    for (std::uint32_t i = 0; i < std::min(recorded, wanted_); ++i)
      play(segments_[i], trace_.iterations[i].number);
    if (wanted_ < recorded) return builder_.finish();
    const auto [first, end] = template_range();
    if (first == 0) leave_setup();
    std::int64_t number = trace_.iterations.back().number;
    Bytes live_before{-1};
    for (std::uint32_t done = recorded, i = first; done < wanted_; ++done) {
      repeat(segments_[i], ++number);
      if (++i < end) continue;
      i = first;
      const Bytes live = builder_.live_bytes();
      if (live_before >= Bytes{0} && live != live_before) {
        throw Error(ErrorKind::input, "iterations cannot be continued: each repetition leaves " +
                                          std::to_string((live - live_before).value) + " B more behind");
      }
      live_before = live;
    }
    play({segments_.back().end_event, static_cast<std::uint32_t>(trace_.events.size()),
          segments_.back().end_op, static_cast<std::uint32_t>(trace_.ops.size())},
         -1);
    return builder_.finish();
  }

 private:
  void find_segments() {
    if (trace_.iterations.empty()) {
      throw Error(
          ErrorKind::input,
          "--iterations needs a trace with iteration marks (iter_begin, iter_end); this one has none");
    }
    Segment segment{0, 0, 0, 0};
    for (std::uint32_t e = 0; e < trace_.events.size(); ++e) {
      const Event& event = trace_.events[e];
      if (event.kind != EventKind::mark || trace_.marks[event.arg].kind != MarkKind::iter_end) continue;
      segment.end_event = e + 1;
      segment.end_op = trace_.iterations[segments_.size()].end_op;
      segments_.push_back(segment);
      segment = {segment.end_event, 0, segment.end_op, 0};
    }
    if (segments_.size() != trace_.iterations.size()) {
      throw Error(ErrorKind::input, "--iterations needs complete iterations; the last one has no end mark");
    }
  }

  // A recording of one iteration begins with what lived before it. That is there already when the iteration
  // comes again: the first segment then begins at its mark, and an external storage that outlives it stays.
  void leave_setup() {
    Segment& segment = segments_.front();
    lasting_.assign(trace_.storages.size(), 0);
    from_before_.assign(trace_.storages.size(), 0);
    bool before = true;
    for (std::uint32_t e = 0; e < segment.end_event; ++e) {
      const Event& event = trace_.events[e];
      if (before && event.kind == EventKind::mark && trace_.marks[event.arg].kind == MarkKind::iter_begin) {
        segment.first_event = e;
        before = false;
      }
      if (event.kind == EventKind::alloc_external) lasting_[event.arg] = 1;
      if (event.kind == EventKind::alloc_external || (before && event.kind == EventKind::alloc_op))
        from_before_[event.arg] = 1;
      if (event.kind == EventKind::free) lasting_[event.arg] = 0;
    }
    segment.first_op = trace_.iterations.front().first_op;
  }
  static bool in(const std::vector<std::uint8_t>& set, std::uint32_t storage) {
    return !set.empty() && set[storage] != 0;
  }

  void copy_tables() {
    builder_.set_header(trace_.header);
    for (std::uint32_t s = 0; s < trace_.signatures.size(); ++s) {
      const auto& sig = trace_.signatures;
      builder_.add_signature({trace_.names[sig.name[s]], trace_.names[sig.detail[s]], sig.flop[s],
                              sig.read[s], sig.written[s], sig.scratch[s], sig.view[s] != 0});
    }
  }

  // The last cycle of unlike iterations that the recording repeats, else the last training iteration.
  std::pair<std::uint32_t, std::uint32_t> template_range() const {
    const auto n = static_cast<std::uint32_t>(segments_.size());
    const auto alike = [&](std::uint32_t a, std::uint32_t b) {
      const Segment &x = segments_[a], &y = segments_[b];
      if (x.end_op - x.first_op != y.end_op - y.first_op ||
          trace_.iterations[a].kind != trace_.iterations[b].kind)
        return false;
      for (std::uint32_t i = 0; i < x.end_op - x.first_op; ++i) {
        if (trace_.ops.signature[x.first_op + i] != trace_.ops.signature[y.first_op + i]) return false;
      }
      return true;
    };
    for (std::uint32_t period = 1; period * 2 <= n; ++period) {
      bool repeats = true;
      for (std::uint32_t i = n - period; i < n && repeats; ++i) repeats = alike(i, i - period);
      if (repeats) return {n - period, n};
    }
    for (std::uint32_t i = n; i-- > 0;) {
      if (trace_.iterations[i].kind == IterationKind::train && !trace_.iterations[i].step_skipped)
        return {i, i + 1};
    }
    return {n - 1, n};
  }

  void alloc(StorageId s, bool external) {
    const std::uint32_t i = index(s);
    id_of_[i] = builder_.alloc(trace_.storages.bytes[i], trace_.names[trace_.storages.device[i]], external);
    alive_[i] = 1;
    source_.push_back(s);
    live_.push_back(1);
    if (trace_.storages.cls[i] != StorageClass::unknown || trace_.storages.name[i] != NameId{0}) {
      builder_.tag(id_of_[i], trace_.storages.cls[i], trace_.names[trace_.storages.name[i]]);
    }
  }

  void free(StorageId s) {
    const std::uint32_t i = index(s);
    if (alive_[i] == 0) return;  // nothing was left that it could stand for
    builder_.free(id_of_[i]);
    live_[index(id_of_[i])] = 0;
    alive_[i] = 0;
  }

  void mark(const Mark& m, std::int64_t iteration) {
    const bool numbered =
        m.kind == MarkKind::iter_begin || m.kind == MarkKind::iter_end || m.kind == MarkKind::step_skipped;
    builder_.mark(m.kind, trace_.names[m.text],
                  numbered && m.number >= 0 && iteration >= 0 ? iteration : m.number, m.time);
  }

  std::vector<StorageId>& mapped(std::span<const StorageId> storages, std::vector<StorageId>& into) {
    into.clear();
    for (const StorageId s : storages) into.push_back(id_of_[index(s)]);
    return into;
  }

  void play(const Segment& segment, std::int64_t iteration) {
    std::uint32_t e = segment.first_event;
    for (std::uint32_t op = segment.first_op;; ++op) {
      const std::uint32_t gap_end = op < segment.end_op ? trace_.gap_begin[op + 1] : segment.end_event;
      for (; e < gap_end; ++e) play_event(trace_.events[e], iteration);
      if (op == segment.end_op) return;
      TraceBuilder::Op o;
      o.signature = trace_.ops.signature[op];
      o.phase = trace_.ops.phase[op];
      o.stream = trace_.ops.stream[op];
      o.sync = trace_.ops.sync[op];
      const auto value = [op](const Column<Nanos>& column) {
        return column.empty() ? Nanos{-1} : column[op];
      };
      o.device_time = value(trace_.ops.device_time);
      o.host_time = value(trace_.ops.host_time);
      o.host_gap = value(trace_.ops.host_gap);
      o.in = mapped(trace_.inputs(op), in_);
      o.out = mapped(trace_.outputs(op), out_);
      o.written = mapped(trace_.written(op), written_);
      builder_.op(o);
    }
  }

  void play_event(const Event& event, std::int64_t iteration) {
    switch (event.kind) {
      case EventKind::alloc_op:
      case EventKind::alloc_external:
        if (!in(lasting_, event.arg)) alloc(StorageId{event.arg}, event.kind == EventKind::alloc_external);
        break;
      case EventKind::free:
        free(StorageId{event.arg});
        break;
      case EventKind::resize: {
        const Resize& r = trace_.resizes[event.arg];
        try {
          builder_.resize(id_of_[index(r.storage)], r.from, r.to);
        } catch (const Error& error) {
          // A storage that persists and ends the iteration with another size than it began with.
          throw Error(ErrorKind::input, std::string("iterations cannot be continued: ") + error.what());
        }
        break;
      }
      case EventKind::mark:
        mark(trace_.marks[event.arg], iteration);
        break;
      case EventKind::saved: {
        const Saved& s = trace_.saved[event.arg];
        builder_.saved(mapped(trace_.saved_storages.span(s.first, s.last), in_),
                       iteration >= 0 ? iteration : s.iteration, s.micro_batch);
        break;
      }
      case EventKind::memory:
        break;  // recorded addresses do not repeat
    }
  }

  // What the segment uses or frees without having allocated it, and that is gone by now, is what an
  // earlier iteration left behind for it: find the counterpart among what is alive.
  void repeat(const Segment& segment, std::int64_t iteration) {
    std::vector<std::uint8_t> born(trace_.storages.size(), 0), freed(trace_.storages.size(), 0);
    std::vector<StorageId> consumed;
    std::vector<std::uint8_t> used(trace_.storages.size(), 0);
    for (std::uint32_t e = segment.first_event; e < segment.end_event; ++e) {
      const Event& event = trace_.events[e];
      const bool alloc = event.kind == EventKind::alloc_op || event.kind == EventKind::alloc_external;
      if (alloc && !in(lasting_, event.arg)) born[event.arg] = 1;
      if (event.kind == EventKind::free && born[event.arg] == 0) {
        freed[event.arg] = 1;
        consumed.push_back(StorageId{event.arg});
      }
      if (event.kind == EventKind::resize) used[index(trace_.resizes[event.arg].storage)] = 1;
      if (event.kind == EventKind::saved) {
        const Saved& s = trace_.saved[event.arg];
        for (const StorageId held : trace_.saved_storages.span(s.first, s.last)) used[index(held)] = 1;
      }
    }
    for (std::uint32_t op = segment.first_op; op < segment.end_op; ++op) {
      for (const StorageId s : trace_.inputs(op)) used[index(s)] = 1;
      for (const StorageId s : trace_.outputs(op)) used[index(s)] = 1;
    }
    // Freed after the segment, by a later iteration that is not repeated with it.
    for (std::uint32_t s = 0; s < used.size(); ++s) {
      if (used[s] != 0 && born[s] == 0 && freed[s] == 0 && alive_[s] == 0) consumed.push_back(StorageId{s});
    }
    match(consumed, born, used);
    for (const StorageId s : std::exchange(renewed_, {})) alloc(s, true);
    play(segment, iteration);
  }

  void match(const std::vector<StorageId>& consumed, const std::vector<std::uint8_t>& born,
             const std::vector<std::uint8_t>& used) {
    // Candidates: alive now, and their recorded counterpart is consumed or (re)born by the segment.
    using Key = std::tuple<StorageClass, NameId, std::int64_t>;
    std::map<Key, std::vector<StorageId>> by_identity;
    std::vector<StorageId> loose;
    std::vector<std::uint8_t> is_consumed(trace_.storages.size(), 0);
    for (const StorageId s : consumed) is_consumed[index(s)] = 1;
    for (std::uint32_t b = 0; b < live_.size(); ++b) {
      const std::uint32_t s = index(source_[b]);
      if (live_[b] == 0 || (born[s] == 0 && is_consumed[s] == 0)) continue;
      loose.push_back(StorageId{b});
      by_identity[key(s)].push_back(StorageId{b});
    }
    std::vector<std::uint8_t> taken(live_.size(), 0);
    const auto take = [&](StorageId wanted, StorageId found) {
      taken[index(found)] = 1;
      id_of_[index(wanted)] = found;
      alive_[index(wanted)] = 1;
    };
    std::vector<StorageId> unmatched;
    for (const StorageId s : consumed) {
      alive_[index(s)] = 0;
      auto it = by_identity.find(key(index(s)));
      if (it == by_identity.end() || it->second.empty()) {
        unmatched.push_back(s);
        continue;
      }
      take(s, it->second.front());
      it->second.erase(it->second.begin());
    }
    for (const StorageId s : unmatched) {
      const std::uint32_t i = index(s);
      StorageId found{kNever};
      for (const StorageId b : loose) {
        if (taken[index(b)] != 0) continue;
        const bool same_size = trace_.storages.bytes[index(source_[index(b)])] == trace_.storages.bytes[i];
        if (same_size || (used[i] == 0 && index(found) == kNever)) found = b;
        if (same_size) break;
      }
      if (index(found) != kNever) {
        take(s, found);
      } else if (used[i] != 0 && in(from_before_, i)) {
        // It lived before the one recorded iteration and ended in it, like a batch of data: it comes anew.
        renewed_.push_back(s);
      } else if (used[i] != 0) {
        throw Error(ErrorKind::input, "iterations cannot be continued: the last iteration uses storage " +
                                          std::to_string(i) + " '" +
                                          std::string(trace_.names[trace_.storages.name[i]]) + "' (" +
                                          std::to_string(trace_.storages.bytes[i].value) +
                                          " B) of an earlier one, and leaves none of its kind behind");
      }
    }
    // What the last repetition left and nobody consumes is replaced by this one's: a gradient that the
    // recorded iteration did not find, say, because its expert had been idle before.
    for (const StorageId b : loose) {
      if (taken[index(b)] != 0) continue;
      builder_.free(b);
      live_[index(b)] = 0;
    }
    // The segment's own storages are about to be born again.
    for (std::uint32_t s = 0; s < born.size(); ++s) {
      if (born[s] != 0) alive_[s] = 0;
    }
  }

  std::tuple<StorageClass, NameId, std::int64_t> key(std::uint32_t s) const {
    return {trace_.storages.cls[s], trace_.storages.name[s], trace_.storages.bytes[s].value};
  }

  const Trace& trace_;
  const std::uint32_t wanted_;
  std::vector<Segment> segments_;
  TraceBuilder builder_;
  std::vector<StorageId> id_of_;     // recorded storage -> the new trace's
  std::vector<std::uint8_t> alive_;  // recorded storage: id_of_ is alive
  std::vector<StorageId> source_;    // new storage -> recorded
  std::vector<std::uint8_t> live_;   // new storage
  // Recorded storages, empty unless the first iteration is repeated: external and alive at its end; external
  // or made before its mark.
  std::vector<std::uint8_t> lasting_, from_before_;
  std::vector<StorageId> renewed_;  // storages that the next repetition begins with
  std::vector<StorageId> in_, out_, written_;
};

}  // namespace

Trace extend_iterations(const Trace& trace, std::uint32_t iterations) {
  if (iterations == 0) throw Error(ErrorKind::usage, "--iterations must be at least 1");
  return Extender(trace, iterations).run();
}

}  // namespace swaplab
