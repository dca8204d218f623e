#include "trace/import/input.hpp"

#include <algorithm>
#include <cstring>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::size_t kHead = std::size_t{64} << 10;

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : bytes_(bytes) {}
  std::size_t read(char* into, std::size_t size) override {
    const std::size_t count = std::min(size, bytes_.size());
    if (count != 0) std::memcpy(into, bytes_.data(), count);
    bytes_.remove_prefix(count);
    return count;
  }
  const char* compression() const override { return ""; }

 private:
  std::string_view bytes_;
};

}  // namespace

ImportInput ImportInput::file(std::string path) {
  ImportInput input;
  input.name_ = std::move(path);
  input.read_head();
  return input;
}

ImportInput ImportInput::memory(std::string name, std::string_view bytes) {
  ImportInput input;
  input.name_ = std::move(name);
  input.bytes_ = bytes;
  input.in_memory_ = true;
  input.read_head();
  return input;
}

std::unique_ptr<ByteSource> ImportInput::open() const {
  if (in_memory_) return std::make_unique<MemorySource>(bytes_);
  return open_byte_source(name_);
}

void ImportInput::read_head() {
  const auto source = open();
  head_.resize(kHead);
  std::size_t size = 0;
  while (size < kHead) {
    const std::size_t count = source->read(head_.data() + size, kHead - size);
    if (count == 0) {
      head_is_all_ = true;
      break;
    }
    size += count;
  }
  head_.resize(size);
  if (size == 0)
    throw Error(ErrorKind::input,
                name_ + (*source->compression() == '\0' ? ": is empty" : ": is empty when decompressed"));
  if (!in_memory_ && *source->compression() == '\0') plain_path_ = name_;
}

std::string ImportInput::read_all(std::uint64_t limit) const {
  const auto source = open();
  std::string text;
  constexpr std::size_t step = std::size_t{1} << 20;
  for (;;) {
    const std::size_t old = text.size();
    text.resize(old + step);
    const std::size_t count = source->read(text.data() + old, step);
    text.resize(old + count);
    if (count == 0) return text;
    if (text.size() > limit)
      throw Error(ErrorKind::input,
                  name_ + ": longer than the " + std::to_string(limit) + " B that this format can need");
  }
}

}  // namespace swaplab
