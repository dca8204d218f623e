// Edits: operators, storages and iterations of a trace in its editable form.
#include "trace/perturb/edit.hpp"

#include <algorithm>
#include <utility>

#include "trace/error.hpp"

namespace swaplab {
namespace {

std::uint32_t row(std::size_t size) {
  return static_cast<std::uint32_t>(size);
}

std::string signature_key(const EditSignature& s) {
  return s.name + '\n' + s.detail + '\n' + std::to_string(s.flop) + ' ' + std::to_string(s.read.value) + ' ' +
         std::to_string(s.written.value) + ' ' + std::to_string(s.scratch.value) + (s.view ? " view" : "");
}

// Room between two recorded iterations for inserted ones.
constexpr std::int64_t kOrderStep = std::int64_t{1} << 20;
std::int64_t order_of(std::size_t recorded) {
  return static_cast<std::int64_t>(recorded) * kOrderStep;
}

}  // namespace

EditableTrace::EditableTrace(const Trace& source) : source_(source) {
  const OpColumns& ops = source_.ops;
  ops_.reserve(ops.size());
  const auto time = [](const Column<Nanos>& column, std::uint32_t i) {
    return column.empty() ? Nanos{-1} : column[i];
  };
  const auto list = [](std::span<const StorageId> ids) {
    return std::vector<StorageId>(ids.begin(), ids.end());
  };
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    ops_.push_back({ops.signature[i], ops.phase[i], ops.stream[i], ops.sync[i], time(ops.device_time, i),
                    time(ops.host_time, i), time(ops.host_gap, i), list(source_.inputs(i)),
                    list(source_.outputs(i)), list(source_.written(i))});
  }
  for (std::uint32_t s = 0; s < source_.storages.size(); ++s) {
    storages_.push_back({StorageId{s}, source_.storages.bytes[s], source_.storages.external[s] != 0});
  }
  for (std::uint32_t s = 0; s < source_.signatures.size(); ++s) {
    signature_ids_.try_emplace(signature_key(signature(SigId{s})), SigId{s});
  }
  load_items();
  earlier_ = perturbation_marks(source_.header);
}

void EditableTrace::load_items() {
  static constexpr ItemKind kinds[] = {ItemKind::alloc, ItemKind::external, ItemKind::free,  ItemKind::resize,
                                       ItemKind::mark,  ItemKind::saved,    ItemKind::memory};
  Items items;
  std::size_t next_iteration = 0;
  const auto n = row(source_.ops.size());
  for (std::uint32_t gap = 0; gap <= n; ++gap) {
    for (const Event& event : source_.gap(gap)) {
      Item item{kinds[static_cast<std::size_t>(event.kind)], event.arg};
      bool ends = false;
      if (event.kind == EventKind::mark) {
        const Mark& m = source_.marks[event.arg];
        item.arg = row(marks_.size());
        marks_.push_back({m.kind, std::string(source_.names[m.text]), m.number, m.time});
        ends = m.kind == MarkKind::iter_end;
      } else if (event.kind == EventKind::saved) {
        const Saved& s = source_.saved[event.arg];
        const auto listed = source_.saved_storages.span(s.first, s.last);
        item.arg = row(saved_.size());
        saved_.push_back({{listed.begin(), listed.end()}, s.iteration, s.micro_batch});
      }
      items.push_back(item);
      if (!ends) continue;
      const Iteration& it = source_.iterations[next_iteration++];
      iterations.push_back(
          {it.number, it.kind, false, std::exchange(items, {}), order_of(iterations.size())});
    }
    if (gap < n) items.push_back({ItemKind::op, gap});
  }
  if (iterations.empty()) {
    iterations.push_back({0, IterationKind::train, false, std::exchange(items, {}), 0});
  }
  tail_ = std::move(items);
  for (std::size_t i = 0; i <= iterations.size(); ++i) {
    for (const Item& item : i < iterations.size() ? iterations[i].items : tail_) {
      if (item.kind != ItemKind::op) continue;
      for (const auto* ids : {&ops_[item.arg].in, &ops_[item.arg].out}) {
        for (const StorageId s : *ids) storages_[index(s)].last_order = order_of(i);
      }
    }
  }
}

void EditableTrace::insert_iteration_after(std::size_t index, EditIteration iteration) {
  const std::int64_t before = iterations[index].order;
  const std::int64_t after =
      index + 1 < iterations.size() ? iterations[index + 1].order : before + kOrderStep;
  if (after - before < 2) {
    throw Error(ErrorKind::usage, "too many iterations are inserted behind iteration " +
                                      std::to_string(iterations[index].number));
  }
  iteration.inserted = true;
  iteration.order = before + (after - before) / 2;
  iterations.insert(iterations.begin() + static_cast<std::ptrdiff_t>(index) + 1, std::move(iteration));
}

// ---- signatures and storages

EditSignature EditableTrace::signature(SigId id) const {
  const std::uint32_t i = index(id);
  const SignatureColumns& s = source_.signatures;
  if (i >= s.size()) return new_signatures_[i - s.size()];
  return {std::string(source_.names[s.name[i]]),
          std::string(source_.names[s.detail[i]]),
          s.flop[i],
          s.read[i],
          s.written[i],
          s.scratch[i],
          s.view[i] != 0};
}

std::string_view EditableTrace::name(SigId id) const {
  const std::uint32_t i = index(id);
  const SignatureColumns& s = source_.signatures;
  return i < s.size() ? source_.names[s.name[i]] : std::string_view(new_signatures_[i - s.size()].name);
}

bool EditableTrace::is_view(SigId id) const {
  const std::uint32_t i = index(id);
  const SignatureColumns& s = source_.signatures;
  return i < s.size() ? s.view[i] != 0 : new_signatures_[i - s.size()].view;
}

SigId EditableTrace::add_signature(const EditSignature& signature) {
  const SigId next{row(source_.signatures.size() + new_signatures_.size())};
  const auto [found, added] = signature_ids_.try_emplace(signature_key(signature), next);
  if (added) new_signatures_.push_back(signature);
  return found->second;
}

StorageClass EditableTrace::storage_class(StorageId s) const {
  const Storage& storage = storages_[index(s)];
  return storage.anonymous ? StorageClass::unknown : source_.storages.cls[index(storage.origin)];
}

std::string_view EditableTrace::storage_name(StorageId s) const {
  const Storage& storage = storages_[index(s)];
  return storage.anonymous ? std::string_view() : source_.names[source_.storages.name[index(storage.origin)]];
}

bool EditableTrace::is_model_state(StorageId s) const {
  const StorageClass cls = storage_class(s);
  return cls == StorageClass::parameter || cls == StorageClass::optimizer_state ||
         cls == StorageClass::buffer;
}

bool EditableTrace::used_after(StorageId s, std::size_t iteration) const {
  return storages_[index(s)].last_order > iterations[iteration].order;
}

StorageId EditableTrace::add_storage(StorageId like, Bytes bytes, bool copy) {
  const StorageId id{row(storages_.size())};
  const Storage& model = storages_[index(like)];
  storages_.push_back({model.origin, bytes, copy && model.external, !copy || model.anonymous, true});
  return id;
}

// ---- operators

std::uint32_t EditableTrace::add_op(EditOp op) {
  ops_.push_back(std::move(op));
  const std::uint32_t id = row(ops_.size() - 1);
  touch(id);
  return id;
}

void EditableTrace::remove(Item& item) {
  item.kind = ItemKind::removed;
  change_.removed.push_back(item.arg);
}

std::uint32_t EditableTrace::add_mark(EditMark mark) {
  marks_.push_back(std::move(mark));
  return row(marks_.size() - 1);
}

void EditableTrace::copy_range(const Items& items, std::size_t first, std::size_t end, StorageMap& map,
                               Items& into) {
  const auto own = static_cast<std::uint32_t>(storages_.size());  // from here on: made by this copy
  const auto fresh = [&](StorageId s) {
    if (map.count(index(s)) == 0) map.emplace(index(s), add_storage(s, bytes(s), true));
  };
  const auto mapped = [&](StorageId s) {
    const auto found = map.find(index(s));
    return found == map.end() ? s : found->second;
  };
  for (std::size_t i = first; i < end; ++i) {
    const Item item = items[i];
    switch (item.kind) {
      case ItemKind::external:
        fresh(StorageId{item.arg});
        into.push_back({item.kind, index(mapped(StorageId{item.arg}))});
        break;
      case ItemKind::op: {
        EditOp copy = ops_[item.arg];
        for (const StorageId s : copy.out) {
          // Returned without having been an argument: made here.
          const bool argument = std::find(copy.in.begin(), copy.in.end(), s) != copy.in.end();
          if (!argument && !storages_[index(s)].external) fresh(s);
        }
        for (auto* ids : {&copy.in, &copy.out, &copy.written}) {
          for (StorageId& s : *ids) s = mapped(s);
        }
        into.push_back({ItemKind::op, add_op(std::move(copy))});
        break;
      }
      case ItemKind::free:
        // The freed copy keeps its place instead of being freed behind its last use.
        if (const auto found = map.find(item.arg); found != map.end() && index(found->second) >= own) {
          storages_[index(found->second)].released = storages_[item.arg].released;
          into.push_back({ItemKind::free, index(found->second)});
        }
        break;
      case ItemKind::mark:
        into.push_back({ItemKind::mark, add_mark(marks_[item.arg])});
        break;
      case ItemKind::saved: {
        SavedList list = saved_[item.arg];
        for (StorageId& s : list.storages) s = mapped(s);
        saved_.push_back(std::move(list));
        into.push_back({ItemKind::saved, row(saved_.size() - 1)});
        break;
      }
      case ItemKind::alloc:   // follow from the operators
      case ItemKind::resize:  // a copy keeps the size that it was allocated with
      case ItemKind::memory:
      case ItemKind::removed:
        break;
    }
  }
}

void EditableTrace::open_change(std::string kind, std::size_t iteration) {
  open_change(std::move(kind), iterations[iteration]);
}
void EditableTrace::open_change(std::string kind, const EditIteration& iteration) {
  change_ = {std::move(kind), iteration.order, {}, {}};
}

bool EditableTrace::close_change() {
  if (change_.touched.empty() && change_.removed.empty()) return false;
  changes_.push_back(std::exchange(change_, {}));
  return true;
}

}  // namespace swaplab
