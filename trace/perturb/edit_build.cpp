// An edited trace, turned into a valid one again: allocations and frees follow from the operators that are
// left.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "trace/builder.hpp"
#include "trace/error.hpp"
#include "trace/perturb/edit.hpp"

namespace swaplab {
namespace {

bool numbered(MarkKind kind) {
  return kind == MarkKind::iter_begin || kind == MarkKind::iter_end || kind == MarkKind::step_skipped;
}

}  // namespace

class EditableTrace::Emitter {
 public:
  explicit Emitter(const EditableTrace& edit)
      : edit_(edit),
        unchanged_(edit.changes_.empty()),
        last_use_(edit.storages_.size(), -1),
        id_of_(edit.storages_.size(), StorageId{kNever}),
        state_(edit.storages_.size(), State::unborn),
        current_(edit.storages_.size()),
        position_(edit.ops_.size(), -1),
        gone_(edit.ops_.size(), 0) {}

  Trace run() {
    copy_tables();
    find_last_uses();
    number_iterations();
    for (std::size_t i = 0; i < edit_.iterations.size(); ++i) play(edit_.iterations[i].items, i);
    play(edit_.tail_, edit_.iterations.size());
    TraceHeader header = edit_.source_.header;
    if (!unchanged_) set_perturbation_marks(header, marks());
    builder_.set_header(std::move(header));
    return builder_.finish();
  }

 private:
  enum class State : std::uint8_t { unborn, live, waiting, dead };  // waiting: freed behind its last use

  void copy_tables() {
    const auto total = edit_.source_.signatures.size() + edit_.new_signatures_.size();
    for (std::uint32_t s = 0; s < total; ++s) {
      const EditSignature sig = edit_.signature(SigId{s});
      builder_.add_signature({sig.name, sig.detail, sig.flop, sig.read, sig.written, sig.scratch, sig.view});
    }
  }

  void find_last_uses() {
    std::int64_t sequence = 0;
    const auto scan = [&](const Items& items) {
      for (const Item& item : items) {
        if (item.kind != ItemKind::op) continue;
        for (const auto* ids : {&edit_.ops_[item.arg].in, &edit_.ops_[item.arg].out}) {
          for (const StorageId s : *ids) last_use_[index(s)] = sequence;
        }
        ++sequence;
      }
    };
    for (const EditIteration& it : edit_.iterations) scan(it.items);
    scan(edit_.tail_);
  }

  void number_iterations() {
    std::int64_t inserted = 0;
    for (const EditIteration& it : edit_.iterations) {
      if (it.inserted) ++inserted;
      numbers_.push_back(it.inserted ? (numbers_.empty() ? 0 : numbers_.back() + 1) : it.number + inserted);
    }
    numbers_.push_back(-1);
  }

  void play(const Items& items, std::size_t iteration) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Item& item = items[i];
      switch (item.kind) {
        case ItemKind::op:
          position_[item.arg] = sequence_;
          op(edit_.ops_[item.arg]);
          break;
        case ItemKind::removed:
          position_[item.arg] = sequence_;
          gone_[item.arg] = 1;
          break;
        case ItemKind::alloc:
          if (made_next(items, i)) alloc(StorageId{item.arg}, false);
          break;
        case ItemKind::external:
          if (state_[item.arg] == State::unborn && (last_use_[item.arg] >= 0 || stays_unused(item.arg)))
            alloc(StorageId{item.arg}, true);
          break;
        case ItemKind::free:
          free(StorageId{item.arg});
          break;
        case ItemKind::resize:
          resize(edit_.source_.resizes[item.arg]);
          break;
        case ItemKind::mark:
          mark(edit_.marks_[item.arg], numbers_[iteration]);
          break;
        case ItemKind::saved:
          saved(edit_.saved_[item.arg], iteration);
          break;
        case ItemKind::memory:
          if (unchanged_) {
            const MemoryEvent& m = edit_.source_.memory_events[item.arg];
            builder_.memory_event(m.address, m.bytes, m.in_op);
          }
          break;
      }
    }
  }

  // Whether the next operator in the list still returns the storage, so that its allocation keeps its
  // place among the frees of that gap.
  bool made_next(const Items& items, std::size_t i) const {
    const StorageId s{items[i].arg};
    if (state_[index(s)] != State::unborn) return false;
    for (++i; i < items.size(); ++i) {
      if (items[i].kind != ItemKind::op) continue;
      const auto& out = edit_.ops_[items[i].arg].out;
      return std::find(out.begin(), out.end(), s) != out.end();
    }
    return false;
  }

  // Unused in the recording already, or part of the model: no reason to leave it out.
  bool stays_unused(std::uint32_t s) const {
    const bool recorded = s < edit_.source_.storages.size();
    return recorded && (edit_.storages_[s].last_order < 0 || edit_.is_model_state(StorageId{s}));
  }

  void alloc(StorageId s, bool external) {
    const std::uint32_t i = index(s);
    const Storage& storage = edit_.storages_[i];
    const StorageColumns& columns = edit_.source_.storages;
    const std::uint32_t origin = index(storage.origin);
    id_of_[i] = builder_.alloc(storage.bytes, edit_.source_.names[columns.device[origin]], external);
    state_[i] = State::live;
    current_[i] = storage.bytes;
    if (!storage.anonymous &&
        (columns.cls[origin] != StorageClass::unknown || columns.name[origin] != NameId{0}))
      builder_.tag(id_of_[i], columns.cls[origin], edit_.source_.names[columns.name[origin]]);
  }

  void free(StorageId s) {
    const std::uint32_t i = index(s);
    // A released storage is freed by its last use, wherever the recording frees it.
    if (state_[i] != State::live || edit_.storages_[i].released) return;
    if (last_use_[i] >= sequence_) {
      state_[i] = State::waiting;
    } else {
      end(s);
    }
  }
  void end(StorageId s) {
    builder_.free(id_of_[index(s)]);
    state_[index(s)] = State::dead;
  }

  void resize(const Resize& r) {
    const std::uint32_t i = index(r.storage);
    if (state_[i] != State::live) return;
    builder_.resize(id_of_[i], current_[i], r.to);
    current_[i] = r.to;
  }

  void mark(const EditMark& m, std::int64_t number) {
    const bool renumber = numbered(m.kind) && m.number >= 0 && number >= 0;
    builder_.mark(m.kind, m.text, renumber ? number : m.number, m.time);
  }

  void saved(const SavedList& list, std::size_t iteration) {
    std::vector<StorageId>& live = in_;
    live.clear();
    for (const StorageId s : list.storages) {
      if (state_[index(s)] == State::live || state_[index(s)] == State::waiting)
        live.push_back(id_of_[index(s)]);
    }
    const bool own = iteration < edit_.iterations.size() && !edit_.iterations[iteration].inserted &&
                     list.iteration == edit_.iterations[iteration].number;
    builder_.saved(live, own ? numbers_[iteration] : list.iteration, list.micro_batch);
  }

  void op(const EditOp& op) {
    for (const StorageId s : op.in) {
      // An external storage may be needed before the recording first saw it.
      if (state_[index(s)] == State::unborn && edit_.storages_[index(s)].external) alloc(s, true);
    }
    for (const StorageId s : op.out) {
      if (state_[index(s)] == State::unborn) alloc(s, edit_.storages_[index(s)].external);
    }
    TraceBuilder::Op o;
    o.signature = op.signature;
    o.phase = op.phase;
    o.stream = op.stream;
    o.sync = op.sync;
    o.device_time = op.device_time;
    o.host_time = op.host_time;
    o.host_gap = op.host_gap;
    o.in = mapped(op.in, in_);
    o.out = mapped(op.out, out_);
    o.written = mapped(op.written, written_);
    builder_.op(o);
    for (const auto* ids : {&op.in, &op.out}) {
      for (const StorageId s : *ids) {
        const State state = state_[index(s)];
        const bool ends_here =
            state == State::waiting || (state == State::live && edit_.storages_[index(s)].released);
        if (ends_here && last_use_[index(s)] == sequence_) end(s);
      }
    }
    ++sequence_;
  }

  std::span<const StorageId> mapped(const std::vector<StorageId>& ids, std::vector<StorageId>& into) {
    into.clear();
    for (const StorageId s : ids) {
      if (state_[index(s)] == State::unborn || state_[index(s)] == State::dead) {
        throw Error(ErrorKind::invariant, "perturbation: operator " + std::to_string(sequence_) +
                                              " uses a storage that is not there any more");
      }
      into.push_back(id_of_[index(s)]);
    }
    return into;
  }

  std::vector<PerturbationMark> marks() const {
    std::vector<PerturbationMark> all;
    for (PerturbationMark m : edit_.earlier_) {
      const bool empty = m.last_op < m.first_op;
      m.iteration = numbers_[iteration_numbered(m.iteration)];
      const auto source_ops = static_cast<std::int64_t>(edit_.source_.ops.size());
      const std::int64_t last = m.last_op;
      m.first_op = m.first_op < source_ops ? position_[static_cast<std::size_t>(m.first_op)] : sequence_;
      m.last_op = empty ? m.first_op - 1 : position_[static_cast<std::size_t>(last)];
      all.push_back(std::move(m));
    }
    std::unordered_map<std::int64_t, std::int64_t> number_at;
    for (std::size_t i = 0; i < edit_.iterations.size(); ++i)
      number_at[edit_.iterations[i].order] = numbers_[i];
    for (const Change& c : edit_.changes_) {
      PerturbationMark m{c.kind, number_at.at(c.order), sequence_ + 1, -1, 0, 0};
      std::unordered_set<std::uint32_t> seen;
      for (const auto* list : {&c.touched, &c.removed}) {
        for (const std::uint32_t op : *list) {
          // An operator may have been made and thrown away again within a change.
          if (position_[op] < 0 || !seen.insert(op).second) continue;
          m.first_op = std::min(m.first_op, position_[op]);
          m.last_op = std::max(m.last_op, position_[op] - gone_[op]);
          ++(gone_[op] != 0 ? m.removed : m.changed);
        }
      }
      all.push_back(std::move(m));
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first_op < b.first_op; });
    return all;
  }

  std::size_t iteration_numbered(std::int64_t number) const {
    for (std::size_t i = 0; i < edit_.iterations.size(); ++i) {
      if (!edit_.iterations[i].inserted && edit_.iterations[i].number == number) return i;
    }
    return 0;
  }

  const EditableTrace& edit_;
  const bool unchanged_;
  TraceBuilder builder_;
  std::int64_t sequence_ = 0;
  std::vector<std::int64_t> last_use_, numbers_;
  std::vector<StorageId> id_of_;
  std::vector<State> state_;
  std::vector<Bytes> current_;
  std::vector<std::int64_t> position_;  // by operator: its index, or that of the operator after it
  std::vector<std::uint8_t> gone_;      // by operator: no longer in the sequence
  std::vector<StorageId> in_, out_, written_;
};

Trace EditableTrace::build() const {
  return Emitter(*this).run();
}

}  // namespace swaplab
