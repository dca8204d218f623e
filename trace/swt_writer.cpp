#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "trace/atomic_file.hpp"
#include "trace/error.hpp"
#include "trace/swt.hpp"
#include "trace/swt_format.hpp"

namespace swaplab {
namespace {

using swt::Section;

// The file's spelling of a row; columns without padding are written as they are.
swt::EventRow row(const Event& e) {
  return {static_cast<std::uint8_t>(e.kind), {}, e.arg};
}
swt::MarkRow row(const Mark& m) {
  return {static_cast<std::uint8_t>(m.kind), {}, index(m.text), m.number, m.time.value};
}
swt::ResizeRow row(const Resize& r) {
  return {index(r.storage), 0, r.from.value, r.to.value};
}
swt::MemoryRow row(const MemoryEvent& m) {
  return {m.address, m.bytes.value, static_cast<std::uint8_t>(m.in_op ? 1 : 0), {}};
}

struct HashStateDeleter {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

class Writer {
 public:
  Writer(const Trace& trace, const std::string& path, bool file_backed)
      : trace_(trace), file_(path), file_backed_(file_backed), hash_(XXH3_createState()) {}

  void run() {
    const std::vector<char> blank(swt::aligned(swt::kTableBytes), 0);
    file_.append(blank.data(), blank.size());
    header_text();
    column(Section::name_offsets, trace_.names.offsets());
    column(Section::name_chars, trace_.names.chars());
    swt::for_each_column(trace_, [this](Section section, const auto& values) { column(section, values); });
    finish();
  }

 private:
  void header_text() {
    std::vector<std::uint64_t> offsets{0};
    std::vector<char> chars;
    const TraceHeader& h = trace_.header;
    const std::string& extra = h.extra_json.empty() ? std::string("{}") : h.extra_json;
    for (const std::string* text : {&h.torch, &h.source, &h.device, &h.model, &extra}) {
      chars.insert(chars.end(), text->begin(), text->end());
      offsets.push_back(chars.size());
    }
    column(Section::header_offsets, Column<std::uint64_t>(offsets));
    column(Section::header_chars, Column<char>(chars));
  }

  template <class T>
  void column(Section section, const Column<T>& values) {
    begin(section);
    // Whole pages; small enough that the checksum finds in the cache what the kernel just copied.
    constexpr std::size_t kChunk = std::size_t{1} << 20;
    if constexpr (requires { row(std::declval<const T&>()); }) {
      std::vector<decltype(row(std::declval<const T&>()))> rows;
      for (std::size_t i = 0; i < values.size(); i += rows.size()) {
        const auto part = values.span(i, std::min(values.size(), i + kChunk / sizeof(T)));
        rows.clear();
        for (const T& value : part) rows.push_back(row(value));
        add(rows.data(), rows.size() * sizeof(T));
        if (file_backed_) forget(std::as_bytes(part));
      }
    } else {
      const auto bytes = std::as_bytes(unknown(values) ? std::span<const T>() : values.span());
      for (std::size_t i = 0; i < bytes.size(); i += kChunk) {
        const auto part = bytes.subspan(i, std::min(bytes.size() - i, kChunk));
        add(part.data(), part.size());
        if (file_backed_ && section != Section::header_offsets && section != Section::header_chars)
          forget(part);
      }
    }
    end();
  }

  // Lets the pages that lie wholly within `bytes` go; the file they are mapped from keeps them.
  static void forget(std::span<const std::byte> bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t skip = (page - reinterpret_cast<std::uintptr_t>(bytes.data()) % page) % page;
    if (bytes.size() < skip + page) return;
    const std::size_t size = (bytes.size() - skip) / page * page;
    ::madvise(const_cast<std::byte*>(bytes.data()) + skip, size, MADV_DONTNEED);
  }

  // A time column that is unknown throughout is written as an empty one.
  template <class T>
  static bool unknown(const Column<T>& values) {
    if constexpr (std::is_same_v<T, Nanos>) {
      return std::all_of(values.begin(), values.end(), [](Nanos time) { return time.value < 0; });
    }
    return false;
  }

  void begin(Section section) {
    const auto i = static_cast<std::size_t>(section);
    entries_[i] = {static_cast<std::uint32_t>(i + 1), swt::kSections[i].element_bytes, 0, file_.size(), 0, 0};
    current_ = &entries_[i];
    XXH3_64bits_reset(hash_.get());
  }
  void add(const void* data, std::size_t size) {
    file_.append(data, size);
    XXH3_64bits_update(hash_.get(), data, size);
    current_->bytes += size;
  }
  void end() {
    current_->count = current_->bytes / current_->element_bytes;
    current_->checksum = XXH3_64bits_digest(hash_.get());
    static constexpr char zeros[swt::kAlignment] = {};
    file_.append(zeros, static_cast<std::size_t>(swt::aligned(file_.size()) - file_.size()));
  }

  void finish() {
    swt::Header header{};
    header.magic = swt::kMagic;
    header.version = swt::kVersion;
    header.section_count = static_cast<std::uint32_t>(entries_.size());
    header.file_bytes = file_.size();
    header.peak_bytes = trace_.peak_bytes.value;
    header.live_bytes = trace_.live_bytes.value;
    XXH3_64bits_reset(hash_.get());
    XXH3_64bits_update(hash_.get(), &header, offsetof(swt::Header, checksum));
    XXH3_64bits_update(hash_.get(), entries_.data(), sizeof entries_);
    header.checksum = XXH3_64bits_digest(hash_.get());
    file_.write_at(0, &header, sizeof header);
    file_.write_at(sizeof header, entries_.data(), sizeof entries_);
    file_.commit();
  }

  const Trace& trace_;
  AtomicFile file_;
  const bool file_backed_;
  std::unique_ptr<XXH3_state_t, HashStateDeleter> hash_;
  std::array<swt::SectionEntry, swt::kSections.size()> entries_{};
  swt::SectionEntry* current_ = nullptr;
};

}  // namespace

void write_swt(const Trace& trace, const std::string& path, bool file_backed) {
  Writer(trace, path, file_backed).run();
}

}  // namespace swaplab
