// An editable form of a trace: each iteration is a list of items (operators, frees, marks), storages are
// free-standing, and the whole is turned into a valid Trace again at the end.
//
// Allocations and frees follow from the operators, so an edit only says which operators run on what:
// - a storage is allocated directly before the first operator that returns it;
// - a recorded free stays where it is, or moves right behind the last use where that comes later;
// - a storage that no operator makes any more takes its frees with it;
// - a storage made by an edit, or released by it, is freed right behind its last use.
// An untouched trace comes back exactly as it was.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/model.hpp"
#include "trace/perturb/marks.hpp"

namespace swaplab {

enum class ItemKind : std::uint8_t {
  op,        // arg: row of EditableTrace ops
  removed,   // the same; the operator is no longer part of the sequence
  alloc,     // arg: storage, output of the next operator
  external,  // arg: storage, first seen here
  free,      // arg: storage
  resize,    // arg: row of the source's resizes
  mark,      // arg: row of EditableTrace marks
  saved,     // arg: row of EditableTrace saved lists
  memory,    // arg: row of the source's memory events
};

struct Item {
  ItemKind kind;
  std::uint32_t arg;
};
using Items = std::vector<Item>;

struct EditOp {
  SigId signature{};
  Phase phase = Phase::unknown;
  std::uint16_t stream = 0;
  SyncKind sync = SyncKind::none;
  Nanos device_time{-1}, host_time{-1}, host_gap{-1};
  std::vector<StorageId> in, out, written;
};

struct EditSignature {
  std::string name, detail = "{}";
  std::int64_t flop = -1;
  Bytes read{-1}, written{-1}, scratch{-1};
  bool view = false;
};

struct EditMark {
  MarkKind kind;
  std::string text;
  std::int64_t number = -1;
  Nanos time{-1};
};

// Everything that follows the end of the iteration before, up to and including its own end.
struct EditIteration {
  std::int64_t number = 0;  // as recorded; what a schedule names
  IterationKind kind = IterationKind::train;
  bool inserted = false;  // by an edit: has no recorded number, and schedules pass it over
  Items items;
  std::int64_t order = 0;  // increases along the trace, stays when iterations are inserted
};

class EditableTrace {
 public:
  // A trace without iteration marks is one training iteration with number 0.
  explicit EditableTrace(const Trace& source);

  // The trace after all edits. Iterations are renumbered when some were inserted; the changes are in the
  // header (see marks.hpp). Recorded allocator addresses are dropped when anything changed.
  Trace build() const;

  std::vector<EditIteration> iterations;
  // Puts a new iteration behind the one at `index`; its `order` and `inserted` are set here.
  void insert_iteration_after(std::size_t index, EditIteration iteration);

  EditOp& op(std::uint32_t row) { return ops_[row]; }
  const EditOp& op(std::uint32_t row) const { return ops_[row]; }
  std::uint32_t op_count() const { return static_cast<std::uint32_t>(ops_.size()); }
  std::uint32_t storage_count() const { return static_cast<std::uint32_t>(storages_.size()); }

  // ---- signatures
  EditSignature signature(SigId id) const;
  std::string_view name(SigId id) const;
  bool is_view(SigId id) const;
  std::string_view op_name(std::uint32_t row) const { return name(ops_[row].signature); }
  // The same text and figures give the same id.
  SigId add_signature(const EditSignature& signature);

  // ---- storages
  Bytes bytes(StorageId s) const { return storages_[index(s)].bytes; }
  void set_bytes(StorageId s, Bytes bytes) { storages_[index(s)].bytes = bytes; }
  StorageClass storage_class(StorageId s) const;
  std::string_view storage_name(StorageId s) const;
  bool is_external(StorageId s) const { return storages_[index(s)].external; }
  // Parameter, optimizer state or buffer.
  bool is_model_state(StorageId s) const;
  // Used by an operator of a later iteration than the one at `iteration`.
  bool used_after(StorageId s, std::size_t iteration) const;
  // On the device of `like`; freed behind its last use; keeps the class and name only as a `copy`.
  StorageId add_storage(StorageId like, Bytes bytes, bool copy);
  // From now on freed behind its last use instead of where the recording frees it.
  void release(StorageId s) { storages_[index(s)].released = true; }
  bool is_released(StorageId s) const { return storages_[index(s)].released; }
  // Lives from before: content that the trace does not show being made.
  void make_external(StorageId s) { storages_[index(s)].external = true; }

  // ---- operators; additions, removals and touches are logged in the open change
  std::uint32_t add_op(EditOp op);
  void remove(Item& item);                                         // an operator's item
  void touch(std::uint32_t op) { change_.touched.push_back(op); }  // its fields were changed
  std::uint32_t add_mark(EditMark mark);
  EditMark& mark(std::uint32_t row) { return marks_[row]; }
  const EditMark& mark(std::uint32_t row) const { return marks_[row]; }

  // Copies items into the end of `into`, with fresh operators and fresh storages for all that the range
  // allocates; `map` says which (old -> new) and may hold substitutions beforehand. Frees are copied,
  // marks and saved lists too. A storage that the range uses without making it is shared, unless `map`
  // replaces it. All copies without a copied free are freed behind their last use.
  using StorageMap = std::unordered_map<std::uint32_t, StorageId>;
  void copy_range(const Items& items, std::size_t first, std::size_t end, StorageMap& map, Items& into);

  // ---- changes
  void open_change(std::string kind, std::size_t iteration);
  void open_change(std::string kind, const EditIteration& iteration);
  // Forgotten when nothing was logged. Returns whether something was.
  bool close_change();
  std::size_t change_count() const { return changes_.size(); }

 private:
  struct Storage {
    StorageId origin;  // whose device, class and name it has
    Bytes bytes;
    bool external = false, anonymous = false, released = false;
    std::int64_t last_order = -1;  // order of the last iteration that uses it
  };
  struct SavedList {
    std::vector<StorageId> storages;
    std::int64_t iteration, micro_batch;
  };
  struct Change {
    std::string kind;
    std::int64_t order = 0;                       // of the iteration
    std::vector<std::uint32_t> touched, removed;  // operators
  };
  class Emitter;

  void load_items();

  Trace source_;
  std::vector<EditOp> ops_;
  std::vector<Storage> storages_;
  std::vector<EditSignature> new_signatures_;
  std::unordered_map<std::string, SigId> signature_ids_;
  std::vector<EditMark> marks_;
  std::vector<SavedList> saved_;
  Items tail_;  // after the last iteration
  std::vector<Change> changes_;
  Change change_;
  std::vector<PerturbationMark> earlier_;  // of the source, by operator rows
};

}  // namespace swaplab
