#include "trace/swt_validate.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trace/builder.hpp"
#include "trace/error.hpp"
#include "trace/iteration_marks.hpp"
#include "trace/json_text.hpp"

namespace swaplab::swt {
namespace {

enum Life : std::uint8_t { unborn, pending, live, dead };

constexpr std::size_t kStretch = std::size_t{1} << 20;  // rows between two calls of `passed`

class Validator {
 public:
  Validator(Trace& trace, const TextColumns& text, const SectionTable& table, const std::string& name,
            const std::function<void()>& passed)
      : t_(trace), text_(text), table_(table), name_(name), passed_(passed) {}

  void run() {
    shapes();
    header();
    names();
    signatures();
    storages();
    operators();
    rows_of_events();
    replay();
    totals();
  }

 private:
  [[noreturn]] void fail(Section section, std::uint64_t row, const std::string& what) const {
    const auto i = static_cast<std::size_t>(section);
    throw Error(ErrorKind::input, name_ + ": byte " +
                                      std::to_string(table_[i].offset + row * table_[i].element_bytes) +
                                      ": section '" + std::string(kSections[i].name) + "', row " +
                                      std::to_string(row) + ": " + what);
  }
  // Calls work(first, end) for stretches of `rows` rows.
  template <class Work>
  void stretches(std::size_t rows, const Work& work) const {
    for (std::size_t first = 0; first < rows; first += kStretch) {
      work(first, std::min(first + kStretch, rows));
      if (passed_) passed_();
    }
  }
  void expect_count(Section section, std::uint64_t expected) const {
    const std::uint64_t count = table_[static_cast<std::size_t>(section)].count;
    if (count != expected)
      fail(section, 0, std::to_string(count) + " elements, expected " + std::to_string(expected));
  }

  // The elements of columns that belong together, and 32-bit ids for all of them.
  void shapes() const {
    for (const Section s :
         {Section::signature_name, Section::storage_bytes, Section::op_signature, Section::op_in,
          Section::op_out, Section::op_written, Section::events, Section::marks, Section::resizes,
          Section::saved, Section::saved_storages, Section::memory_events, Section::name_offsets}) {
      if (table_[static_cast<std::size_t>(s)].count >= kNever - 2) fail(s, 0, "more than 2^32-4 elements");
    }
    const std::uint64_t sigs = t_.signatures.name.size(), stored = t_.storages.bytes.size(),
                        ops = t_.ops.size();
    if (ops == 0) fail(Section::op_signature, 0, "the trace has no operator");
    for (const Section s : {Section::signature_detail, Section::signature_flop, Section::signature_read,
                            Section::signature_written, Section::signature_scratch, Section::signature_view})
      expect_count(s, sigs);
    for (const Section s : {Section::storage_device, Section::storage_class, Section::storage_name,
                            Section::storage_external, Section::storage_birth, Section::storage_death})
      expect_count(s, stored);
    for (const Section s : {Section::op_phase, Section::op_stream, Section::op_sync}) expect_count(s, ops);
    for (const Section s : {Section::op_device_time, Section::op_host_time, Section::op_host_gap}) {
      if (table_[static_cast<std::size_t>(s)].count != 0) expect_count(s, ops);
    }
    for (const Section s : {Section::op_in_begin, Section::op_out_begin, Section::op_written_begin})
      expect_count(s, ops + 1);
    expect_count(Section::gap_begin, ops + 2);
    expect_count(Section::header_offsets, 6);
    if (text_.name_offsets.size() < 2) fail(Section::name_offsets, 0, "expected at least the empty name");
  }

  // Offsets rise from 0 to the number of elements they cut into pieces.
  template <class T>
  void offsets(Section section, const Column<T>& begin, std::uint64_t elements) const {
    if (begin[0] != 0) fail(section, 0, "offsets must start at 0");
    std::uint8_t falls = 0;
    stretches(begin.size() - 1, [&](std::size_t first, std::size_t end) {
      for (std::size_t i = first; i < end; ++i) falls |= static_cast<std::uint8_t>(begin[i + 1] < begin[i]);
    });
    if (falls != 0) {
      for (std::size_t i = 1; i < begin.size(); ++i) {
        if (begin[i] < begin[i - 1]) fail(section, i, "offsets must not fall");
      }
    }
    if (begin[begin.size() - 1] != elements) {
      fail(section, begin.size() - 1,
           "offsets end at " + std::to_string(begin[begin.size() - 1]) + ", expected " +
               std::to_string(elements));
    }
  }

  // First a branchless pass; only a column that fails is searched for the place.
  template <class T, class Good>
  void all(Section section, const Column<T>& column, const Good& good, const char* expected) const {
    std::uint8_t bad = 0;
    stretches(column.size(), [&](std::size_t first, std::size_t end) {
      for (const T& value : column.span(first, end)) bad |= static_cast<std::uint8_t>(!good(value));
    });
    if (bad == 0) return;
    for (std::size_t i = 0; i < column.size(); ++i) {
      if (!good(column[i])) fail(section, i, expected);
    }
  }
  template <class Id>
  void ids(Section section, const Column<Id>& column, std::size_t count, const char* expected) const {
    all(
        section, column, [count](Id id) { return index(id) < count; }, expected);
  }
  template <class Enum>
  void enums(Section section, const Column<Enum>& column, Enum last) const {
    all(
        section, column, [last](Enum value) { return value <= last; }, "unknown value");
  }

  // UTF-8, piece by piece: valid as a whole, and no piece starts inside a character.
  void utf8(Section section, const Column<std::uint64_t>& begin, const Column<char>& chars) const {
    if (chars.empty()) return;
    if (!is_utf8({chars.span().data(), chars.size()})) fail(section, 0, "the text is not UTF-8");
    for (std::size_t i = 0; i + 1 < begin.size(); ++i) {
      if (begin[i] < begin[i + 1] && (static_cast<unsigned char>(chars[begin[i]]) & 0xc0) == 0x80)
        fail(section, begin[i], "a text starts inside a UTF-8 character");
    }
  }

  void header() {
    offsets(Section::header_offsets, text_.header_offsets, text_.header_chars.size());
    utf8(Section::header_chars, text_.header_offsets, text_.header_chars);
    const auto piece = [&](std::size_t i) {
      return std::string(
          text_.header_chars.begin() + static_cast<std::ptrdiff_t>(text_.header_offsets[i]),
          text_.header_chars.begin() + static_cast<std::ptrdiff_t>(text_.header_offsets[i + 1]));
    };
    t_.header = {piece(0), piece(1), piece(2), piece(3), piece(4)};
    canonical(Section::header_chars, text_.header_offsets[4], t_.header.extra_json,
              &JsonTexts::canonical_extra);
  }

  void canonical(Section section, std::uint64_t row, std::string_view json,
                 std::string (JsonTexts::*form)(std::string_view)) {
    std::string expected;
    try {
      expected = (json_.*form)(json);
    } catch (const Error& error) {
      fail(section, row, error.what());
    }
    if (expected != json)
      fail(section, row, "the JSON text is not in its canonical form, expected " + expected.substr(0, 120));
  }

  void names() {
    offsets(Section::name_offsets, text_.name_offsets, text_.name_chars.size());
    utf8(Section::name_chars, text_.name_offsets, text_.name_chars);
    t_.names = StringTable(text_.name_offsets, text_.name_chars);
    if (!t_.names[NameId{0}].empty()) fail(Section::name_offsets, 1, "name 0 must be the empty text");
    std::unordered_set<std::string_view> seen;
    seen.reserve(t_.names.size());
    for (std::uint32_t i = 0; i < t_.names.size(); ++i) {
      if (!seen.insert(t_.names[NameId{i}]).second) fail(Section::name_offsets, i, "the same name twice");
    }
  }

  void signatures() {
    const SignatureColumns& s = t_.signatures;
    ids(Section::signature_name, s.name, t_.names.size(), "no such name");
    ids(Section::signature_detail, s.detail, t_.names.size(), "no such name");
    all(
        Section::signature_flop, s.flop, [](std::int64_t v) { return v >= -1; }, "must be at least -1");
    const auto amount = [](Bytes b) { return b.value >= -1; };
    all(Section::signature_read, s.read, amount, "must be at least -1");
    all(Section::signature_written, s.written, amount, "must be at least -1");
    all(Section::signature_scratch, s.scratch, amount, "must be at least -1");
    all(
        Section::signature_view, s.view, [](std::uint8_t v) { return v <= 1; }, "must be 0 or 1");
    std::vector<std::uint8_t> checked(t_.names.size(), 0);
    for (std::size_t i = 0; i < s.size(); ++i) {
      std::uint8_t& done = checked[index(s.detail[i])];
      if (done == 0)
        canonical(Section::signature_detail, i, t_.names[s.detail[i]], &JsonTexts::canonical_detail);
      done = 1;
    }
  }

  void storages() const {
    const StorageColumns& s = t_.storages;
    all(
        Section::storage_bytes, s.bytes, [](Bytes b) { return b.value >= 0; }, "sizes are >= 0");
    ids(Section::storage_device, s.device, t_.names.size(), "no such name");
    enums(Section::storage_class, s.cls, StorageClass::data);
    ids(Section::storage_name, s.name, t_.names.size(), "no such name");
    all(
        Section::storage_external, s.external, [](std::uint8_t v) { return v <= 1; }, "must be 0 or 1");
  }

  void times(Section section, const Column<Nanos>& column) const {
    all(
        section, column, [](Nanos t) { return t.value >= -1; }, "must be at least -1");
    if (!column.empty() && std::all_of(column.begin(), column.end(), [](Nanos t) { return t.value < 0; }))
      fail(section, 0, "a column that is unknown throughout must be empty");
  }

  void operators() const {
    const OpColumns& o = t_.ops;
    ids(Section::op_signature, o.signature, t_.signatures.size(), "no such signature");
    enums(Section::op_phase, o.phase, Phase::evaluation);
    all(
        Section::op_stream, o.stream, [](std::uint16_t s) { return s < kMaxStreams; }, "streams are 0 to 63");
    enums(Section::op_sync, o.sync, SyncKind::explicit_sync);
    times(Section::op_device_time, o.device_time);
    times(Section::op_host_time, o.host_time);
    times(Section::op_host_gap, o.host_gap);
    offsets(Section::op_in_begin, o.in_begin, o.in.size());
    offsets(Section::op_out_begin, o.out_begin, o.out.size());
    offsets(Section::op_written_begin, o.written_begin, o.written.size());
    ids(Section::op_in, o.in, t_.storages.size(), "no such storage");
    ids(Section::op_out, o.out, t_.storages.size(), "no such storage");
    ids(Section::op_written, o.written, t_.storages.size(), "no such storage");
    ids(Section::saved_storages, t_.saved_storages, t_.storages.size(), "no such storage");
    offsets(Section::gap_begin, t_.gap_begin, t_.events.size());
  }

  template <class Row, class T>
  static Row raw(const Column<T>& column, std::size_t i) {
    Row row;
    std::memcpy(&row, column.span().data() + i, sizeof row);
    return row;
  }

  // Through the file's spelling of the rows: a byte that is no bool must not be read as one.
  void rows_of_events() const {
    stretches(t_.events.size(), [&](std::size_t first, std::size_t end) {
      for (std::size_t i = first; i < end; ++i) {
        const auto e = raw<EventRow>(t_.events, i);
        if (e.kind > static_cast<std::uint8_t>(EventKind::memory)) fail(Section::events, i, "unknown kind");
        if ((e.zero[0] | e.zero[1] | e.zero[2]) != 0) fail(Section::events, i, "padding must be zero");
      }
    });
    for (std::size_t i = 0; i < t_.marks.size(); ++i) {
      const auto m = raw<MarkRow>(t_.marks, i);
      if (m.kind > static_cast<std::uint8_t>(MarkKind::other)) fail(Section::marks, i, "unknown kind");
      if (m.text >= t_.names.size()) fail(Section::marks, i, "no such name");
      if (m.number < -1 || m.time < -1) fail(Section::marks, i, "number and time must be at least -1");
      if ((m.zero[0] | m.zero[1] | m.zero[2]) != 0) fail(Section::marks, i, "padding must be zero");
    }
    for (std::size_t i = 0; i < t_.resizes.size(); ++i) {
      const auto r = raw<ResizeRow>(t_.resizes, i);
      if (r.storage >= t_.storages.size()) fail(Section::resizes, i, "no such storage");
      if (r.to < 0 || r.from < 0) fail(Section::resizes, i, "sizes are >= 0");
      if (r.zero != 0) fail(Section::resizes, i, "padding must be zero");
    }
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < t_.saved.size(); ++i) {
      const Saved& s = t_.saved[i];
      if (s.first != next || s.last < s.first || s.last > t_.saved_storages.size())
        fail(Section::saved, i, "lists must follow each other within 'saved_storages'");
      if (s.iteration < -1 || s.micro_batch < -1) fail(Section::saved, i, "numbers must be at least -1");
      next = s.last;
    }
    if (next != t_.saved_storages.size()) fail(Section::saved_storages, next, "belongs to no list");
    for (std::size_t i = 0; i < t_.memory_events.size(); ++i) {
      const auto m = raw<MemoryRow>(t_.memory_events, i);
      std::uint8_t padding = 0;
      for (const std::uint8_t z : m.zero) padding |= z;
      if (m.in_op > 1 || padding != 0)
        fail(Section::memory_events, i, "'in_op' must be 0 or 1 and padding zero");
    }
  }

  void grow(Bytes by, std::uint64_t event) {
    if (by.value > std::numeric_limits<std::int64_t>::max() - live_.value)
      fail(Section::events, event, "live bytes exceed 2^63-1 B");
    live_ += by;
    peak_ = std::max(peak_, live_);
  }

  // Program order, by the rules of TraceBuilder.
  void replay() {
    life_.assign(t_.storages.size(), unborn);
    const auto ops = static_cast<std::uint32_t>(t_.ops.size());
    stretches(std::size_t{ops} + 1, [&](std::size_t first, std::size_t last) {
      for (auto gap = static_cast<std::uint32_t>(first); gap < last; ++gap) {
        const std::uint32_t end = t_.gap_begin[gap + 1];
        for (std::uint32_t e = t_.gap_begin[gap]; e < end; ++e) event(t_.events[e], e, gap);
        if (gap < ops) op(gap);
      }
    });
    if (pending_ != 0)
      fail(Section::events, t_.events.size() - 1, "a storage is allocated for an operator that never comes");
  }

  void event(const Event& event, std::uint32_t e, std::uint32_t gap) {
    const std::uint32_t arg = event.arg;
    switch (event.kind) {
      case EventKind::alloc_op:
      case EventKind::alloc_external: {
        const bool external = event.kind == EventKind::alloc_external;
        if (arg != born_ || arg >= life_.size())
          fail(Section::events, e,
               "allocates storage " + std::to_string(arg) + ", expected " + std::to_string(born_));
        ++born_;
        if (t_.storages.birth_gap[arg] != gap)
          fail(Section::storage_birth, arg, "expected gap " + std::to_string(gap));
        if ((t_.storages.external[arg] != 0) != external)
          fail(Section::storage_external, arg, "does not agree with the allocation");
        life_[arg] = external ? live : pending;
        pending_ += external ? 0 : 1;
        grow(t_.storages.bytes[arg], e);
        break;
      }
      case EventKind::free:
        if (arg >= life_.size() || life_[arg] != live)
          fail(Section::events, e, "frees storage " + std::to_string(arg) + ", which does not live");
        if (t_.storages.death_gap[arg] != gap)
          fail(Section::storage_death, arg, "expected gap " + std::to_string(gap));
        life_[arg] = dead;
        live_ -= size_now(arg);
        break;
      case EventKind::resize: {
        in_order(arg, resizes_, t_.resizes.size(), e);
        const Resize& r = t_.resizes[arg];
        alive(r.storage, Section::resizes, arg);
        const Bytes now = size_now(index(r.storage));
        if (now != r.from) fail(Section::resizes, arg, "the storage has " + std::to_string(now.value) + " B");
        grow(r.to - r.from, e);
        resized_[index(r.storage)] = r.to;
        break;
      }
      case EventKind::mark: {
        in_order(arg, marks_, t_.marks.size(), e);
        const Mark& m = t_.marks[arg];
        try {
          iterations_.add(m.kind, t_.names[m.text], m.number, gap);
        } catch (const Error& error) {
          fail(Section::marks, arg, error.what());
        }
        break;
      }
      case EventKind::saved: {
        in_order(arg, saved_, t_.saved.size(), e);
        const Saved& s = t_.saved[arg];
        for (std::uint32_t i = s.first; i < s.last; ++i)
          alive(t_.saved_storages[i], Section::saved_storages, i);
        break;
      }
      case EventKind::memory:
        in_order(arg, memory_, t_.memory_events.size(), e);
        break;
    }
  }

  Bytes size_now(std::uint32_t storage) const {
    if (!resized_.empty()) {
      if (const auto it = resized_.find(storage); it != resized_.end()) return it->second;
    }
    return t_.storages.bytes[storage];
  }

  // Rows are used once each, in order.
  void in_order(std::uint32_t arg, std::uint32_t& next, std::size_t rows, std::uint32_t e) const {
    if (arg != next || arg >= rows)
      fail(Section::events, e, "names row " + std::to_string(arg) + ", expected " + std::to_string(next));
    ++next;
  }
  void alive(StorageId s, Section section, std::uint32_t row) const {
    const std::uint8_t life = life_[index(s)];
    if (life != live && life != pending)
      fail(section, row, "storage " + std::to_string(index(s)) + " does not live here");
  }

  void op(std::uint32_t i) {
    const std::uint32_t in_first = t_.ops.in_begin[i], in_end = t_.ops.in_begin[i + 1];
    for (std::uint32_t r = in_first; r < in_end; ++r) {
      if (life_[index(t_.ops.in[r])] != live)
        fail(Section::op_in, r,
             "operator " + std::to_string(i) + " reads storage " + std::to_string(index(t_.ops.in[r])) +
                 ", which does not live yet or any more");
    }
    for (std::uint32_t r = t_.ops.out_begin[i]; r < t_.ops.out_begin[i + 1]; ++r) {
      std::uint8_t& life = life_[index(t_.ops.out[r])];
      if (life == pending) {
        life = live;
        --pending_;
      } else if (life != live) {
        fail(Section::op_out, r,
             "operator " + std::to_string(i) + " returns storage " + std::to_string(index(t_.ops.out[r])) +
                 ", which does not live");
      }
    }
    if (pending_ != 0)
      fail(Section::op_out, t_.ops.out_begin[i],
           "a storage is allocated as an output of operator " + std::to_string(i) +
               ", which does not return it");
    const std::uint32_t first = t_.ops.written_begin[i], end = t_.ops.written_begin[i + 1];
    if (first != end) written(i, in_first, in_end, first, end);
  }

  void written(std::uint32_t i, std::uint32_t in_first, std::uint32_t in_end, std::uint32_t first,
               std::uint32_t end) {
    const auto inputs = t_.ops.in.span(in_first, in_end);
    const bool wide =
        std::uint64_t{end - first} * inputs.size() > 4096;  // a long row must not cost its square
    if (wide) {
      sorted_.assign(inputs.begin(), inputs.end());
      std::sort(sorted_.begin(), sorted_.end());
    }
    for (std::uint32_t r = first; r < end; ++r) {
      const StorageId s = t_.ops.written[r];
      const bool found = wide ? std::binary_search(sorted_.begin(), sorted_.end(), s)
                              : std::find(inputs.begin(), inputs.end(), s) != inputs.end();
      if (!found)
        fail(Section::op_written, r,
             "operator " + std::to_string(i) + " writes storage " + std::to_string(index(s)) +
                 ", which is not among its inputs");
    }
  }

  void totals() {
    try {
      iterations_.finish();
    } catch (const Error& error) {
      fail(Section::marks, t_.marks.size(), error.what());
    }
    const auto used = [this](Section section, std::uint32_t next, std::size_t rows) {
      if (next != rows) fail(section, next, "no event names this row");
    };
    used(Section::storage_bytes, born_, t_.storages.size());
    used(Section::marks, marks_, t_.marks.size());
    used(Section::resizes, resizes_, t_.resizes.size());
    used(Section::saved, saved_, t_.saved.size());
    used(Section::memory_events, memory_, t_.memory_events.size());
    for (std::size_t s = 0; s < life_.size(); ++s) {
      if (life_[s] != dead && t_.storages.death_gap[s] != kNever)
        fail(Section::storage_death, s, "the storage is never freed, expected 2^32-1");
    }
    if (peak_ != t_.peak_bytes || live_ != t_.live_bytes) {
      throw Error(ErrorKind::input, name_ + ": byte " + std::to_string(offsetof(Header, peak_bytes)) +
                                        ": header: peak " + std::to_string(t_.peak_bytes.value) +
                                        " B and live " + std::to_string(t_.live_bytes.value) +
                                        " B, replaying gives " + std::to_string(peak_.value) + " and " +
                                        std::to_string(live_.value));
    }
    t_.iterations = std::move(iterations_.iterations());
  }

  Trace& t_;
  const TextColumns& text_;
  const SectionTable& table_;
  const std::string& name_;
  const std::function<void()>& passed_;
  JsonTexts json_;
  IterationMarks iterations_;
  std::vector<std::uint8_t> life_;
  std::unordered_map<std::uint32_t, Bytes> resized_;  // sizes after resizes
  std::vector<StorageId> sorted_;                     // inputs of an operator with many
  std::uint32_t born_ = 0, pending_ = 0, marks_ = 0, resizes_ = 0, saved_ = 0, memory_ = 0;
  Bytes live_, peak_;
};

}  // namespace

void validate(Trace& trace, const TextColumns& text, const SectionTable& table, const std::string& name,
              const std::function<void()>& passed) {
  Validator(trace, text, table, name, passed).run();
}

}  // namespace swaplab::swt
