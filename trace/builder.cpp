#include "trace/builder.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "trace/error.hpp"
#include "trace/growing_column.hpp"
#include "trace/iteration_marks.hpp"
#include "trace/json_text.hpp"
#include "trace/swt.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorKind::input, message);
}

// What a storage may do next. A pending one was allocated for the operator that comes next.
enum class Life : std::uint8_t { dead, live, pending };

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

// A time column stays empty until a value is known.
void push_time(GrowingColumn<Nanos>& column, std::size_t rows_before, Nanos value) {
  if (column.empty()) {
    if (value.value < 0) return;
    for (std::size_t i = 0; i < rows_before; ++i) column.push_back(Nanos{-1});
  }
  column.push_back(value.value < 0 ? Nanos{-1} : value);
}

std::uint32_t row_of(std::size_t size, const char* what) {
  if (size >= kNever) fail(std::string("more than 2^32-2 ") + what);
  return static_cast<std::uint32_t>(size);
}

}  // namespace

struct TraceBuilder::Impl {
  const std::string folder;  // of the temporary files; empty: the columns are on the heap
  TraceHeader header;
  std::function<std::string(StorageId)> storage_name;

  std::unordered_map<std::string, NameId, TextHash, std::equal_to<>> name_ids;
  GrowingColumn<std::uint64_t> name_offsets{folder};
  GrowingColumn<char> name_chars{folder};
  std::string last_device;  // nearly every allocation is on the same device
  NameId last_device_id{};

  GrowingColumn<NameId> sig_name{folder}, sig_detail{folder};
  GrowingColumn<std::int64_t> sig_flop{folder};
  GrowingColumn<Bytes> sig_read{folder}, sig_written{folder}, sig_scratch{folder};
  GrowingColumn<std::uint8_t> sig_view{folder};

  GrowingColumn<Bytes> bytes{folder}, current{folder};  // at allocation; after resizes
  GrowingColumn<NameId> device{folder}, name{folder};
  GrowingColumn<StorageClass> cls{folder};
  GrowingColumn<std::uint8_t> external{folder};
  GrowingColumn<std::uint32_t> birth{folder}, death{folder};
  GrowingColumn<Life> life{folder};
  GrowingColumn<std::uint32_t> read_by{folder};  // operator + 1 that last had it among its inputs
  std::uint32_t pending = 0;

  GrowingColumn<SigId> op_signature{folder};
  GrowingColumn<Phase> op_phase{folder};
  GrowingColumn<std::uint16_t> op_stream{folder};
  GrowingColumn<SyncKind> op_sync{folder};
  GrowingColumn<Nanos> device_time{folder}, host_time{folder}, host_gap{folder};
  GrowingColumn<std::uint32_t> in_begin{folder}, out_begin{folder}, written_begin{folder};
  GrowingColumn<StorageId> in{folder}, out{folder}, written{folder};

  GrowingColumn<std::uint32_t> gap_begin{folder};
  GrowingColumn<Event> events{folder};
  GrowingColumn<Mark> marks{folder};
  GrowingColumn<Resize> resizes{folder};
  GrowingColumn<Saved> saved{folder};
  GrowingColumn<StorageId> saved_storages{folder};
  GrowingColumn<MemoryEvent> memory_events{folder};
  IterationMarks marks_so_far;
  JsonTexts json;
  Bytes live, peak;

  explicit Impl(std::string spool_folder) : folder(std::move(spool_folder)) {
    name_offsets.push_back(0);
    for (auto* begin : {&in_begin, &out_begin, &written_begin, &gap_begin}) begin->push_back(0);
    intern("");
  }

  std::uint32_t gap() const { return static_cast<std::uint32_t>(op_signature.size()); }

  std::string label(StorageId s) const {
    return "storage " + (storage_name ? storage_name(s) : std::to_string(index(s)));
  }
  std::string next_op() const { return "operator " + std::to_string(op_signature.size()); }

  NameId intern(std::string_view text) {
    if (const auto found = name_ids.find(text); found != name_ids.end()) return found->second;
    if (!is_utf8(text)) fail("a name is not UTF-8");
    const NameId id{row_of(name_ids.size(), "names")};
    name_chars.append(text);
    name_offsets.push_back(name_chars.size());
    name_ids.emplace(text, id);
    return id;
  }

  void add_event(EventKind kind, std::size_t arg, const char* what) {
    row_of(events.size(), "events");
    events.push_back({kind, row_of(arg, what)});
  }

  Life life_of(StorageId s) const {
    if (index(s) >= life.size()) fail("storage " + std::to_string(index(s)) + " was never allocated");
    return life[index(s)];
  }

  void must_live(StorageId s, const char* what) const {
    if (life_of(s) == Life::dead) fail(what + (" " + label(s)) + ", which was freed before");
  }

  void grow(Bytes by) {
    if (by.value > kMax - live.value) fail("live bytes exceed 2^63-1 B");
    live += by;
    peak = std::max(peak, live);
  }

  void read_inputs(std::span<const StorageId> storages) {
    const std::uint32_t stamp = gap() + 1;
    for (const StorageId s : storages) {
      if (life_of(s) != Life::live) {
        if (life[index(s)] == Life::dead) fail(next_op() + " reads " + label(s) + ", which was freed before");
        fail(next_op() + " reads " + label(s) + ", which is allocated as its output");
      }
      read_by[index(s)] = stamp;
    }
    in.append(storages);
    in_begin.push_back(row_of(in.size(), "operator inputs"));
  }

  void make_outputs(std::span<const StorageId> storages) {
    for (const StorageId s : storages) {
      const Life state = life_of(s);
      if (state == Life::dead) fail(next_op() + " returns " + label(s) + ", which was freed before");
      if (state == Life::pending) {
        life[index(s)] = Life::live;
        --pending;
      }
    }
    if (pending != 0) {
      const auto first = std::find(life.begin(), life.end(), Life::pending);
      fail(label(StorageId{static_cast<std::uint32_t>(first - life.begin())}) +
           " is allocated as an output of " + next_op() + ", which does not return it");
    }
    out.append(storages);
    out_begin.push_back(row_of(out.size(), "operator outputs"));
  }

  void write_inputs(std::span<const StorageId> storages) {
    const std::uint32_t stamp = gap() + 1;
    for (const StorageId s : storages) {
      if (index(s) >= read_by.size() || read_by[index(s)] != stamp) {
        fail(next_op() + " writes storage " +
             (index(s) < life.size() && storage_name ? storage_name(s) : std::to_string(index(s))) +
             ", which is not among its inputs ('wr' must be a subset of 'in')");
      }
    }
    written.append(storages);
    written_begin.push_back(row_of(written.size(), "operator writes"));
  }
};

TraceBuilder::TraceBuilder() : impl_(std::make_unique<Impl>(std::string())) {}
TraceBuilder::TraceBuilder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceBuilder TraceBuilder::spooled(const std::string& folder) {
  return TraceBuilder(std::make_unique<Impl>(folder.empty() ? "." : folder));
}
TraceBuilder::~TraceBuilder() = default;
TraceBuilder::TraceBuilder(TraceBuilder&&) noexcept = default;
TraceBuilder& TraceBuilder::operator=(TraceBuilder&&) noexcept = default;

void TraceBuilder::set_header(TraceHeader header) {
  header.extra_json = impl_->json.canonical_extra(header.extra_json);
  for (const std::string* text : {&header.torch, &header.source, &header.device, &header.model}) {
    if (!is_utf8(*text)) fail("a text of the header is not UTF-8");
  }
  impl_->header = std::move(header);
}

void TraceBuilder::name_storages(std::function<std::string(StorageId)> name) {
  impl_->storage_name = std::move(name);
}

NameId TraceBuilder::intern(std::string_view text) {
  return impl_->intern(text);
}

SigId TraceBuilder::add_signature(const Signature& signature) {
  Impl& b = *impl_;
  const std::string detail = b.json.canonical_detail(signature.detail);
  const SigId id{row_of(b.sig_name.size(), "signatures")};
  b.sig_name.push_back(b.intern(signature.name));
  b.sig_detail.push_back(b.intern(detail));
  b.sig_flop.push_back(std::max<std::int64_t>(signature.flop, -1));
  b.sig_read.push_back(std::max(signature.read, Bytes{-1}));
  b.sig_written.push_back(std::max(signature.written, Bytes{-1}));
  b.sig_scratch.push_back(std::max(signature.scratch, Bytes{-1}));
  b.sig_view.push_back(signature.view ? 1 : 0);
  return id;
}

StorageId TraceBuilder::alloc(Bytes bytes, std::string_view device, bool external) {
  Impl& b = *impl_;
  const StorageId id{row_of(b.bytes.size(), "storages")};
  if (bytes.value < 0) fail("allocation of " + std::to_string(bytes.value) + " B; sizes are >= 0");
  b.grow(bytes);
  if (device != b.last_device || b.bytes.empty()) {
    b.last_device_id = b.intern(device);
    b.last_device = device;
  }
  b.add_event(external ? EventKind::alloc_external : EventKind::alloc_op, index(id), "storages");
  b.bytes.push_back(bytes);
  b.current.push_back(bytes);
  b.device.push_back(b.last_device_id);
  b.cls.push_back(StorageClass::unknown);
  b.name.push_back(NameId{});
  b.external.push_back(external ? 1 : 0);
  b.birth.push_back(b.gap());
  b.death.push_back(kNever);
  b.life.push_back(external ? Life::live : Life::pending);
  b.read_by.push_back(0);
  if (!external) ++b.pending;
  return id;
}

void TraceBuilder::tag(StorageId storage, StorageClass cls, std::string_view name) {
  impl_->life_of(storage);
  impl_->cls[index(storage)] = cls;
  impl_->name[index(storage)] = impl_->intern(name);
}

void TraceBuilder::resize(StorageId storage, Bytes from, Bytes to) {
  Impl& b = *impl_;
  b.must_live(storage, "resize of");
  if (to.value < 0) {
    fail("resize of " + b.label(storage) + " to " + std::to_string(to.value) + " B; sizes are >= 0");
  }
  Bytes& current = b.current[index(storage)];
  if (current != from) {
    fail("resize of " + b.label(storage) + " from " + std::to_string(from.value) + " B, but it has " +
         std::to_string(current.value) + " B");
  }
  b.grow(to - from);
  current = to;
  b.add_event(EventKind::resize, b.resizes.size(), "resizes");
  b.resizes.push_back({storage, from, to});
}

void TraceBuilder::free(StorageId storage) {
  Impl& b = *impl_;
  b.must_live(storage, "free of");
  if (b.life[index(storage)] == Life::pending) {
    fail(b.label(storage) + " is freed between its allocation and its operator");
  }
  b.add_event(EventKind::free, index(storage), "storages");
  b.life[index(storage)] = Life::dead;
  b.death[index(storage)] = b.gap();
  b.live -= b.current[index(storage)];
}

void TraceBuilder::mark(MarkKind kind, std::string_view text, std::int64_t number, Nanos time) {
  Impl& b = *impl_;
  if (kind == MarkKind::iter_begin && text.empty()) text = "train";
  if (kind != MarkKind::iter_begin && kind != MarkKind::phase && kind != MarkKind::other) text = {};
  b.marks_so_far.add(kind, text, number, b.gap());
  b.add_event(EventKind::mark, b.marks.size(), "marks");
  b.marks.push_back({kind, b.intern(text), std::max<std::int64_t>(number, -1), std::max(time, Nanos{-1})});
}

void TraceBuilder::saved(std::span<const StorageId> storages, std::int64_t iteration,
                         std::int64_t micro_batch) {
  Impl& b = *impl_;
  for (const StorageId s : storages) b.must_live(s, "'saved' names");
  b.add_event(EventKind::saved, b.saved.size(), "saved lists");
  const std::uint32_t first = row_of(b.saved_storages.size(), "saved storages");
  b.saved_storages.append(storages);
  b.saved.push_back({first, row_of(b.saved_storages.size(), "saved storages"),
                     std::max<std::int64_t>(iteration, -1), std::max<std::int64_t>(micro_batch, -1)});
}

void TraceBuilder::memory_event(std::uint64_t address, Bytes bytes, bool in_op) {
  Impl& b = *impl_;
  b.add_event(EventKind::memory, b.memory_events.size(), "memory events");
  b.memory_events.push_back({address, bytes, in_op});
}

OpId TraceBuilder::op(const Op& op) {
  Impl& b = *impl_;
  const OpId id{row_of(b.op_signature.size() + 1, "operators") - 1};
  if (index(op.signature) >= b.sig_name.size()) {
    fail(b.next_op() + " uses signature " + std::to_string(index(op.signature)) + ", which is not defined");
  }
  if (op.stream >= kMaxStreams) {
    fail("stream " + std::to_string(op.stream) + " is out of range, expected 0 to " +
         std::to_string(kMaxStreams - 1));
  }
  b.read_inputs(op.in);
  b.make_outputs(op.out);
  b.write_inputs(op.written);
  const std::size_t rows = b.op_signature.size();
  push_time(b.device_time, rows, op.device_time);
  push_time(b.host_time, rows, op.host_time);
  push_time(b.host_gap, rows, op.host_gap);
  b.op_signature.push_back(op.signature);
  b.op_phase.push_back(op.phase);
  b.op_stream.push_back(op.stream);
  b.op_sync.push_back(op.sync);
  b.gap_begin.push_back(static_cast<std::uint32_t>(b.events.size()));
  return id;
}

std::uint64_t TraceBuilder::op_count() const {
  return impl_->op_signature.size();
}
std::uint64_t TraceBuilder::storage_count() const {
  return impl_->bytes.size();
}
Bytes TraceBuilder::peak_bytes() const {
  return impl_->peak;
}
Bytes TraceBuilder::live_bytes() const {
  return impl_->live;
}

Trace TraceBuilder::finish() {
  Impl& b = *impl_;
  if (b.op_signature.empty()) fail("the trace has no operator");
  if (b.pending != 0) {
    const auto first = std::find(b.life.begin(), b.life.end(), Life::pending);
    fail(b.label(StorageId{static_cast<std::uint32_t>(first - b.life.begin())}) +
         " is allocated for an operator that never comes");
  }
  b.marks_so_far.finish();
  if (b.header.extra_json.empty()) b.header.extra_json = "{}";
  b.gap_begin.push_back(static_cast<std::uint32_t>(b.events.size()));

  Trace t;
  t.header = std::move(b.header);
  t.names = StringTable(b.name_offsets.take(), b.name_chars.take());
  t.signatures = {b.sig_name.take(),    b.sig_detail.take(),  b.sig_flop.take(), b.sig_read.take(),
                  b.sig_written.take(), b.sig_scratch.take(), b.sig_view.take()};
  t.storages = {b.bytes.take(),    b.device.take(), b.cls.take(),  b.name.take(),
                b.external.take(), b.birth.take(),  b.death.take()};
  t.ops = {b.op_signature.take(), b.op_phase.take(),      b.op_stream.take(), b.op_sync.take(),
           b.device_time.take(),  b.host_time.take(),     b.host_gap.take(),  b.in_begin.take(),
           b.out_begin.take(),    b.written_begin.take(), b.in.take(),        b.out.take(),
           b.written.take()};
  t.gap_begin = b.gap_begin.take();
  t.events = b.events.take();
  t.marks = b.marks.take();
  t.resizes = b.resizes.take();
  t.saved = b.saved.take();
  t.saved_storages = b.saved_storages.take();
  t.memory_events = b.memory_events.take();
  t.iterations = std::move(b.marks_so_far.iterations());
  t.peak_bytes = b.peak;
  t.live_bytes = b.live;
  impl_ = std::make_unique<Impl>(b.folder);
  return t;
}

void TraceBuilder::finish_swt(const std::string& path) {
  const bool spooled = !impl_->folder.empty();
  write_swt(finish(), path, spooled);
}

}  // namespace swaplab
