// Lines out of a byte stream, in bounded memory.
#include "trace/jsonl_reader.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "trace/byte_source.hpp"

namespace swaplab {
namespace {

[[noreturn]] void refuse_long_line(JsonlReader& reader) {
  reader.refuse_next_line("the line is longer than " + std::to_string(kMaxJsonlLine >> 20) +
                          " MiB; expected one record per line");
}

// Whole lines; the last one may lack its newline.
void feed(JsonlReader& reader, std::string_view text) {
  while (!text.empty()) {
    const auto newline = static_cast<const char*>(std::memchr(text.data(), '\n', text.size()));
    const std::size_t length =
        newline == nullptr ? text.size() : static_cast<std::size_t>(newline - text.data());
    if (length > kMaxJsonlLine) refuse_long_line(reader);
    reader.line(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
}

}  // namespace

Trace parse_jsonl(std::string_view text, const std::string& name, ReadReport* report) {
  ReadReport own;
  ReadReport& r = report != nullptr ? *report : own;
  r.format = "jsonl";
  r.text_bytes = text.size();
  std::string padded(text);
  padded.append(kJsonlPadding, '\0');
  JsonlReader reader(name, r);
  feed(reader, std::string_view(padded).substr(0, text.size()));
  return reader.finish();
}

Trace read_jsonl(ByteSource& source, const std::string& path, ReadReport& report,
                 const std::function<void(std::uint64_t)>& progress) {
  report.format = std::string("jsonl") + source.compression();
  JsonlReader reader(path, report);
  constexpr std::size_t kChunk = 1u << 20;
  std::vector<char> buffer(kChunk + kJsonlPadding);
  std::size_t kept = 0;  // bytes of an unfinished line at the front of the buffer
  for (;;) {
    if (buffer.size() < kept + kChunk + kJsonlPadding) buffer.resize(2 * (kept + kChunk) + kJsonlPadding);
    const std::size_t count = source.read(buffer.data() + kept, kChunk);
    report.text_bytes += count;
    if (progress) progress(report.text_bytes);
    const std::size_t filled = kept + count;
    if (count == 0) {
      std::memset(buffer.data() + filled, 0, kJsonlPadding);
      feed(reader, {buffer.data(), filled});
      return reader.finish();
    }
    std::size_t whole = filled;  // what was kept holds no newline
    while (whole > kept && buffer[whole - 1] != '\n') --whole;
    if (whole == kept) whole = 0;
    feed(reader, {buffer.data(), whole});
    kept = filled - whole;
    if (kept > kMaxJsonlLine) refuse_long_line(reader);
    if (whole > 0) std::memmove(buffer.data(), buffer.data() + whole, kept);
  }
}

}  // namespace swaplab
