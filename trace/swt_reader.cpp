#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <new>

#include "trace/error.hpp"
#include "trace/swt.hpp"
#include "trace/swt_format.hpp"
#include "trace/swt_validate.hpp"

namespace swaplab {
namespace {

using swt::Section;
using swt::SectionEntry;

class Loader {
 public:
  // `passed` (may be empty) is called after each stretch of a few MB that was looked at.
  Loader(std::span<const std::byte> file, std::shared_ptr<const void> keep_alive, const std::string& name,
         std::function<void()> passed = {})
      : file_(file), keep_alive_(std::move(keep_alive)), name_(name), passed_(std::move(passed)) {}

  Trace run() {
    check_header();
    check_sections();
    Trace t;
    t.peak_bytes = Bytes{header_.peak_bytes};
    t.live_bytes = Bytes{header_.live_bytes};
    swt::for_each_column(t, [this](Section section, auto& values) { assign(section, values); });
    Column<std::uint64_t> offsets, header_offsets;
    Column<char> chars, header_chars;
    assign(Section::name_offsets, offsets);
    assign(Section::name_chars, chars);
    assign(Section::header_offsets, header_offsets);
    assign(Section::header_chars, header_chars);
    swt::validate(t, {offsets, chars, header_offsets, header_chars}, entries_, name_, passed_);
    return t;
  }

 private:
  [[noreturn]] void fail(std::uint64_t byte, const std::string& what) const {
    throw Error(ErrorKind::input, name_ + ": byte " + std::to_string(byte) + ": " + what);
  }

  void check_header() {
    if (file_.empty()) throw Error(ErrorKind::input, name_ + ": is empty");
    if (!is_swt(file_)) fail(0, "not an .swt file: expected the magic bytes 89 53 57 54 0d 0a 1a 0a");
    if (file_.size() < sizeof header_)
      fail(file_.size(),
           "the file ends inside the header, expected " + std::to_string(sizeof header_) + " bytes");
    std::memcpy(&header_, file_.data(), sizeof header_);
    if (header_.version != swt::kVersion) {
      fail(offsetof(swt::Header, version), "format version " + std::to_string(header_.version) +
                                               " is not supported, expected " +
                                               std::to_string(swt::kVersion));
    }
    if (header_.section_count != entries_.size()) {
      fail(offsetof(swt::Header, section_count), "header: " + std::to_string(header_.section_count) +
                                                     " sections, expected " +
                                                     std::to_string(entries_.size()));
    }
    if (file_.size() < swt::kTableBytes)
      fail(file_.size(),
           "the file ends inside the section table, expected " + std::to_string(swt::kTableBytes) + " bytes");
    std::memcpy(entries_.data(), file_.data() + sizeof header_, sizeof entries_);
    XXH3_state_t* state = XXH3_createState();
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, file_.data(), offsetof(swt::Header, checksum));
    XXH3_64bits_update(state, entries_.data(), sizeof entries_);
    const std::uint64_t checksum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    if (checksum != header_.checksum)
      fail(offsetof(swt::Header, checksum),
           "header and section table do not match their checksum: the file is damaged");
    if (header_.file_bytes != file_.size()) {
      fail(std::min<std::uint64_t>(header_.file_bytes, file_.size()),
           "the file has " + std::to_string(file_.size()) + " bytes, its header says " +
               std::to_string(header_.file_bytes) +
               (file_.size() < header_.file_bytes ? ": it is truncated" : ""));
    }
    if (header_.reserved[0] != 0 || header_.reserved[1] != 0)
      fail(offsetof(swt::Header, reserved), "header: reserved bytes must be zero");
  }

  void check_sections() const {
    std::uint64_t expected = swt::aligned(swt::kTableBytes);
    zeros(swt::kTableBytes, expected);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const SectionEntry& e = entries_[i];
      const std::uint64_t at = sizeof header_ + i * sizeof e;
      const std::string section = "section '" + std::string(swt::kSections[i].name) + "'";
      if (e.id != i + 1 || e.element_bytes != swt::kSections[i].element_bytes)
        fail(at, section + ": expected id " + std::to_string(i + 1) + " with elements of " +
                     std::to_string(swt::kSections[i].element_bytes) + " B");
      if (e.offset != expected)
        fail(at, section + " starts at byte " + std::to_string(e.offset) + ", expected " +
                     std::to_string(expected));
      if (e.bytes > file_.size() - expected || e.count > e.bytes || e.count * e.element_bytes != e.bytes)
        fail(at, section + ": " + std::to_string(e.count) + " elements in " + std::to_string(e.bytes) +
                     " B do not fit the file");
      if (checksum_of(e) != e.checksum)
        fail(e.offset, section + " does not match its checksum: the file is damaged");
      const std::uint64_t end = e.offset + e.bytes;
      expected = swt::aligned(end);
      if (expected > file_.size()) fail(end, section + ": the padding after it is missing");
      zeros(end, expected);
    }
    if (expected != file_.size()) fail(expected, "nothing may follow the last section");
  }

  std::uint64_t checksum_of(const SectionEntry& e) const {
    if (!passed_) return XXH3_64bits(file_.data() + e.offset, e.bytes);
    XXH3_state_t* state = XXH3_createState();
    XXH3_64bits_reset(state);
    for (std::uint64_t at = 0; at < e.bytes;) {
      const std::uint64_t part = std::min<std::uint64_t>(e.bytes - at, std::uint64_t{8} << 20);
      XXH3_64bits_update(state, file_.data() + e.offset + at, part);
      at += part;
      passed_();
    }
    const std::uint64_t checksum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return checksum;
  }

  void zeros(std::uint64_t first, std::uint64_t end) const {
    for (std::uint64_t i = first; i < std::min<std::uint64_t>(end, file_.size()); ++i) {
      if (file_[i] != std::byte{0}) fail(i, "padding must be zero");
    }
  }

  template <class T>
  void assign(Section section, Column<T>& column) const {
    const SectionEntry& e = entries_[static_cast<std::size_t>(section)];
    static_assert(std::is_trivially_copyable_v<T>);
    column =
        Column<T>({reinterpret_cast<const T*>(file_.data() + e.offset), static_cast<std::size_t>(e.count)},
                  keep_alive_);
  }

  std::span<const std::byte> file_;
  std::shared_ptr<const void> keep_alive_;
  const std::string& name_;
  const std::function<void()> passed_;
  swt::Header header_{};
  swt::SectionTable entries_{};
};

}  // namespace

bool is_swt(std::span<const std::byte> first_bytes) {
  return first_bytes.size() >= swt::kMagic.size() &&
         std::memcmp(first_bytes.data(), swt::kMagic.data(), swt::kMagic.size()) == 0;
}

Trace parse_swt(std::span<const std::byte> file, const std::string& name) {
  void* memory = ::operator new (file.size() + 1, std::align_val_t{swt::kAlignment});
  const std::shared_ptr<const void> owner(
      memory, [](void* p) { ::operator delete (p, std::align_val_t{swt::kAlignment}); });
  if (!file.empty()) std::memcpy(memory, file.data(), file.size());
  return Loader({static_cast<const std::byte*>(memory), file.size()}, owner, name).run();
}

namespace {

struct Mapping {
  std::span<const std::byte> file;
  std::shared_ptr<const void> owner;
};

Mapping map_file(const std::string& path, int flags) {
  const auto fail = [&](const char* what) {
    throw Error(ErrorKind::input, path + ": " + what + ": " + std::strerror(errno));
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail("cannot open");
  struct stat status {};
  void* memory = MAP_FAILED;
  const bool known = ::fstat(file, &status) == 0;
  const auto size = static_cast<std::size_t>(known ? status.st_size : 0);
  if (size > 0) memory = ::mmap(nullptr, size, PROT_READ, flags, file, 0);
  const int reason = errno;
  ::close(file);
  errno = reason;
  if (!known) fail("cannot read");
  if (size == 0) throw Error(ErrorKind::input, path + ": is empty");
  if (memory == MAP_FAILED) fail("cannot map");
  return {{static_cast<const std::byte*>(memory), size},
          std::shared_ptr<const void>(memory, [size](void* p) { ::munmap(p, size); })};
}

}  // namespace

Trace read_swt(const std::string& path) {
  // Every byte is read once for its checksum anyway, so the pages may as well be mapped at once.
  Mapping mapping = map_file(path, MAP_PRIVATE | MAP_POPULATE);
  return Loader(mapping.file, std::move(mapping.owner), path).run();
}

Trace map_swt(const std::string& path, std::function<void()>& forget_pages) {
  Mapping mapping = map_file(path, MAP_PRIVATE);
  // Weak: who only wants to forget pages must not keep the file mapped.
  forget_pages = [file = mapping.file, owner = std::weak_ptr<const void>(mapping.owner)] {
    const auto alive = owner.lock();
    if (!alive) return;
    // A read-only mapping has no pages of its own: this drops page-table entries and nothing else.
    ::madvise(const_cast<std::byte*>(file.data()), file.size(), MADV_DONTNEED);
  };
  return Loader(mapping.file, std::move(mapping.owner), path, forget_pages).run();
}

}  // namespace swaplab
